#pragma once

#include "csrc/torch/step/record.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

namespace berth::torch::step {

// The last records of programs whose steps data may have given their shapes.
//
// A later step that is the same but for such shapes joins the record: what differs varies there
// from then on. Of a program whose records had equal shapes, perhaps by chance, the first step that
// differs does. Holds storages weakly. A search costs O(records) where a step is none of theirs.
class VaryingSteps {
 public:
  // Both records of a program are equal to this one.
  void note_equal(const StepRecord& record);
  // The record has begun to vary.
  void add(StepRecord& record);
  // The record that this step joins. `forget` is told of it as it was before, since its program is
  // known no more.
  std::optional<StepRecord> join(const StepRecord& record,
                                 const std::function<void(const StepRecord&)>& forget);

 private:
  std::deque<StepRecord> varying_, equal_;
  std::uint64_t last_ = 0;  // number of one that varies
};

}  // namespace berth::torch::step
