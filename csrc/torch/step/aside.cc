#include "csrc/torch/step/aside.h"

#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/tensors.h"

#include <algorithm>

namespace berth::torch::step {

void Aside::see(c10::ArrayRef<Call> calls) {
  const auto note = [&](StorageNumber storage) {
    if (storage == kNoStorage) return;
    if (storage >= changed_.size()) changed_.resize(storage + 1);
    changed_[storage] = 1;
  };
  for (; seen_ < calls.size(); ++seen_) {
    const Call& call = calls[seen_];
    for (const std::uint32_t written : call.writes) note(call.operands[written].storage);
    for (const ResultTensor& one : call.result_tensors)
      if (one.argument == ResultTensor::kNew) note(one.operand.storage);
  }
}

bool Aside::has(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                c10::ArrayRef<Call> calls,
                const std::function<StorageNumber(const c10::StorageImpl*)>& number_of) {
  if (!is_aside()) [[likely]]
    return false;
  const OperatorFacts& facts = facts_of(op);
  if (facts.opaque || !facts.refusal.empty()) return false;
  if (facts.random && std::none_of(arguments.begin(), arguments.end(), is_own_generator))
    return false;
  see(calls);
  bool aside = true;
  for (std::size_t n = 0; n < arguments.size(); ++n)
    for_each_tensor(arguments[n], form_of(arguments[n]), [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !aside) return;
      aside = why_refused(tensor).empty();
      if (!aside) return;
      const StorageNumber storage = number_of(tensor.storage().unsafeGetStorageImpl());
      const bool taken = storage != kNoStorage;
      aside =
          !taken || (!facts.writes[n] && (storage >= changed_.size() || changed_[storage] == 0));
    });
  return aside;
}

}  // namespace berth::torch::step
