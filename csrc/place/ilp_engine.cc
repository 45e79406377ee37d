#include "csrc/place/ilp_engine.h"

#include "csrc/core/check.h"

#include <mutex>

namespace berth::place {
namespace {

const std::optional<std::string>& not_linked() {
  static const std::optional<std::string> kReason =
      "integer programs are a library of their own, which this program does not use: link "
      "berth::place_ilp and call berth::use_ilp() (berth/place_ilp.h); the program berth does";
  return kReason;
}

IlpResult refuse(const Conflicts&, FirstFit&, const IlpSettings&, const IlpEvents&) {
  throw Error(ErrorKind::kUsage, *not_linked());
}

std::mutex mutex;
IlpEngine current{not_linked, refuse};

}  // namespace

void set_ilp_engine(const IlpEngine& engine) {
  const std::lock_guard lock(mutex);
  current = engine;
}

IlpEngine ilp_engine() {
  const std::lock_guard lock(mutex);
  return current;
}

}  // namespace berth::place
