#include "bench/train/target.h"

#include <berth/torch.h>

namespace berth::bench {

const char* const kTarget = "cpu";

void install() { berth::torch::install(); }

nlohmann::json statistics() {
  return berth::torch::installed() ? nlohmann::json::parse(berth::torch::stats().to_json())
                                   : nlohmann::json();
}

nlohmann::json memory() { return {}; }
void reset_memory() {}

}  // namespace berth::bench
