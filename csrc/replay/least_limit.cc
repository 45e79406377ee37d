#include "csrc/replay/least_limit.h"

#include <algorithm>

namespace berth::replay {
namespace {

constexpr Bytes kLimitPage = Bytes{2} << 20;

}  // namespace

LeastLimit least_limit(const LeastLimitOptions& options,
                       const std::function<bool(Bytes)>& finishes) {
  Bytes low = options.too_little / kLimitPage * kLimitPage;
  LeastLimit least{.bytes = options.enough};
  const auto attempt = [&](Bytes limit) {
    ++least.trials;
    if (finishes(limit))
      least.bytes = limit;
    else
      low = limit;
  };
  if (options.first > low && options.first < least.bytes) attempt(options.first);
  const auto near = [&] {
    return std::max(kLimitPage,
                    static_cast<Bytes>(options.precision * static_cast<double>(least.bytes)));
  };
  while (least.bytes > low && least.bytes - low > near()) {
    const Bytes middle = (low + (least.bytes - low) / 2) / kLimitPage * kLimitPage;
    if (middle <= low) break;
    attempt(middle);
  }
  return least;
}

}  // namespace berth::replay
