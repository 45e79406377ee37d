#include "csrc/place/stages/birth_fit.h"

#include "csrc/place/fits/order_search.h"

#include <limits>

namespace berth::place {

void BirthFit::start(const Packing* known, const std::string& engine) {
  if (known != nullptr) {
    best_ = *known;
    engine_ = engine;
    return;
  }
  std::vector<Bytes> births;
  for (const Buffer& buffer : problem_.buffers) births.push_back(buffer.birth);
  best_ =
      *first_fit_.run(order_of(births), Fit::kFirst, std::numeric_limits<Bytes>::max(), nullptr);
  engine_ = "first_fit birth";
  ++iterations_;
}

}  // namespace berth::place
