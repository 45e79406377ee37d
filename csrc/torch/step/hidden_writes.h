#pragma once

#include "csrc/torch/step/record.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace berth::torch::step {

// Of a storage on the CPU; 0 where it has none.
[[nodiscard]] std::uint64_t hash_of_bytes(const c10::StorageImpl& storage);

// Looks at the bytes of storages around each operator of a step that is recorded: finds what an
// operator writes without saying so, and what is written behind libtorch's operators, by a pointer.
// On the CPU; devices are not looked at. O(bytes of the operands) an operator, twice: for
// BERTH_CHECK=full.
class HiddenWrites {
 public:
  // Before the call's kernel. In words what somebody has written since an operator took it last;
  // empty where nobody has.
  [[nodiscard]] std::string before(const Call& call, c10::ArrayRef<c10::IValue> arguments);
  // After it, with its results described. In words what it writes without saying so.
  [[nodiscard]] std::string after(const Call& call, c10::ArrayRef<c10::IValue> arguments,
                                  c10::ArrayRef<c10::IValue> results);

 private:
  std::unordered_map<StorageNumber, std::uint64_t> hashes_;
  std::unordered_set<StorageNumber> of_body_;  // that the body has said it writes, or may
};

}  // namespace berth::torch::step
