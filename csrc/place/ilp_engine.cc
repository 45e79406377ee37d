#include "csrc/place/ilp_engine.h"

#include "csrc/core/check.h"

#include <atomic>

namespace berth::place {
namespace {

const std::optional<std::string>& not_linked() {
  static const auto& kReason = *new const std::optional<std::string>(
      "integer programs are a library of their own, which this program does not use: link "
      "berth::place_ilp and call berth::use_ilp() (berth/place_ilp.h); the program berth does");
  return kReason;
}

IlpResult refuse(const Conflicts&, FirstFit&, const IlpSettings&, const IlpEvents&) {
  throw Error(ErrorKind::kUsage, *not_linked());
}

constexpr IlpEngine kNone{not_linked, refuse};
std::atomic<const IlpEngine*> current{&kNone};

}  // namespace

void set_ilp_engine(const IlpEngine& engine) noexcept { current = &engine; }

const IlpEngine& ilp_engine() noexcept { return *current; }

}  // namespace berth::place
