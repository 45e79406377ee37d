#include "csrc/papers/checkmate_engine.h"

#include "csrc/core/check.h"

#include <atomic>

namespace berth::schedule {
namespace {

const std::optional<std::string>& not_linked() {
  static const auto& kReason = *new const std::optional<std::string>(
      "the engine checkmate is a library of its own, which this program does not use: link "
      "berth::schedule_ilp and call berth::use_checkmate() (berth/schedule_ilp.h); the program "
      "berth does");
  return kReason;
}

CheckmateResult refuse(const StageProblem&, const CheckmateOptions&,
                       const std::function<void(const Recomputation&)>&) {
  throw Error(ErrorKind::kUsage, *not_linked());
}

constexpr CheckmateEngine kNone{not_linked, refuse};
std::atomic<const CheckmateEngine*> current{&kNone};

}  // namespace

void set_checkmate_engine(const CheckmateEngine& engine) noexcept { current = &engine; }

const CheckmateEngine& checkmate_engine() noexcept { return *current; }

}  // namespace berth::schedule
