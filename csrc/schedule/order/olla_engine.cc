#include "csrc/schedule/order/olla_engine.h"

#include "csrc/core/check.h"

#include <atomic>

namespace berth::schedule {
namespace {

const std::optional<std::string>& not_linked() {
  static const auto& kReason = *new const std::optional<std::string>(
      "the engine olla is a library of its own, which this program does not use: link "
      "berth::schedule_ilp and call berth::use_olla() (berth/schedule_ilp.h); the program berth "
      "does");
  return kReason;
}

OllaResult refuse(const OrderProblem&, const OllaSettings&, const OllaEvents&) {
  throw Error(ErrorKind::kUsage, *not_linked());
}

constexpr OllaEngine kNone{not_linked, refuse};
std::atomic<const OllaEngine*> current{&kNone};

}  // namespace

void set_olla_engine(const OllaEngine& engine) noexcept { current = &engine; }

const OllaEngine& olla_engine() noexcept { return *current; }

}  // namespace berth::schedule
