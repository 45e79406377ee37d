#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <memory>

// The three accounts of memory and time, each in a file of its own.
namespace berth::schedule {

[[nodiscard]] std::unique_ptr<StageModel> make_exact_model(const StageProblem& problem);
[[nodiscard]] std::unique_ptr<StageModel> make_checkmate_model(const StageProblem& problem);
[[nodiscard]] std::unique_ptr<StageModel> make_monet_model(const StageProblem& problem);

}  // namespace berth::schedule
