#include "csrc/core/members_json.h"
#include "csrc/torch/step/step_program_members.h"

namespace berth::torch {

std::string StepProgramStats::to_json() const {
  std::string all;
  append_members(all, *this, "{\"", ", \"");
  return all + "}";
}

}  // namespace berth::torch
