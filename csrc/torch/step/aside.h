#pragma once

#include "csrc/torch/step/record.h"

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace berth::torch::step {

// Calls of a data loader that are none of the step's, though they come within it: they run when
// they are called, and what they make comes from outside. Else no two steps would be the same,
// where a loader does something else for each item.
//
// Such a call draws from no generator but its own, takes nothing that the step has made or written,
// and writes nothing that the step has taken. The recorder and the ghost decide it by the same
// calls, so they agree. Not thread-safe.
class Aside {
 public:
  // Whether this call is one, given the step's calls so far and the numbers of its storages.
  // O(operands), and O(operands of a call of the step) once for each of these.
  [[nodiscard]] bool has(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                         c10::ArrayRef<Call> calls,
                         const std::function<StorageNumber(const c10::StorageImpl*)>& number_of);

 private:
  void see(c10::ArrayRef<Call> calls);

  std::size_t seen_ = 0;               // calls
  std::vector<std::uint8_t> changed_;  // by storage: made or written by one of them
};

}  // namespace berth::torch::step
