#include "csrc/torch/step/hidden_writes.h"

#include "csrc/core/checksum.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace berth::torch::step {

std::uint64_t hash_of_bytes(const c10::StorageImpl& storage) {
  // Its bytes are there meanwhile.
  const Spills::Use there(c10::Storage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(const_cast<c10::StorageImpl*>(&storage))));
  if (storage.data() == nullptr) return 0;
  return checksum(std::span(static_cast<const std::byte*>(storage.data()), storage.nbytes()));
}

namespace {

std::uint64_t hash_of(const at::Tensor& tensor) {
  return hash_of_bytes(*tensor.storage().unsafeGetStorageImpl());
}

// Calls visit(number of the operand, tensor) for each operand on the CPU.
template <typename Visit>
void for_each_operand(const Call& call, c10::ArrayRef<c10::IValue> arguments, const Visit& visit) {
  std::uint32_t operand = 0;
  for (std::size_t n = 0; n < arguments.size(); ++n)
    for_each_tensor(arguments[n], call.arguments[n].form, [&](const at::Tensor& tensor) {
      const std::uint32_t number = operand++;
      if (tensor.defined() && tensor.is_cpu() && call.operands[number].storage != kNoStorage)
        visit(number, tensor);
    });
}

}  // namespace

std::string HiddenWrites::before(const Call& call, c10::ArrayRef<c10::IValue> arguments) {
  std::string why;
  for_each_operand(call, arguments, [&](std::uint32_t operand, const at::Tensor& tensor) {
    const StorageNumber storage = call.operands[operand].storage;
    if (facts_of(call.op).shows_bytes) of_body_.insert(storage);
    const std::uint64_t hash = hash_of(tensor);
    const auto [known, fresh] = hashes_.try_emplace(storage, hash);
    if (!fresh && known->second != hash && !of_body_.contains(storage) && why.empty())
      why = fmt::format(
          "takes a tensor whose bytes were written behind libtorch's operators since one took it "
          "last (argument tensor {})",
          operand);
    known->second = hash;
  });
  return why;
}

std::string HiddenWrites::after(const Call& call, c10::ArrayRef<c10::IValue> arguments,
                                c10::ArrayRef<c10::IValue> results) {
  std::string why;
  const auto writes = [&](StorageNumber storage) {
    return std::any_of(call.writes.begin(), call.writes.end(), [&](std::uint32_t operand) {
      return call.operands[operand].storage == storage;
    });
  };
  for_each_operand(call, arguments, [&](std::uint32_t operand, const at::Tensor& tensor) {
    const StorageNumber storage = call.operands[operand].storage;
    std::uint64_t& known = hashes_[storage];
    const std::uint64_t hash = hash_of(tensor);
    if (hash != known && !writes(storage) && why.empty())
      why = fmt::format("writes a tensor without saying so (argument tensor {})", operand);
    known = hash;
  });
  // Room is for the body to fill.
  if (facts_of(call.op).allocates) return why;
  std::size_t result = 0;
  for (std::size_t n = 0; n < call.results.size(); ++n)
    for_each_tensor(results[n], call.results[n].form, [&](const at::Tensor& tensor) {
      const ResultTensor& one = call.result_tensors[result++];
      if (tensor.defined() && tensor.is_cpu() && one.argument == ResultTensor::kNew &&
          one.operand.storage != kNoStorage)
        hashes_.insert_or_assign(one.operand.storage, hash_of(tensor));
    });
  return why;
}

}  // namespace berth::torch::step
