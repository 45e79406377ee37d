#include "csrc/torch/step/outside_memory.h"

#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

namespace berth::torch::step {

bool is_foreign(c10::StorageImpl& storage) {
  const c10::DataPtr& bytes = storage._mutable_data_ptr_no_checks();
  if (bytes.get() == nullptr || storage.nbytes() == 0) return false;
  const c10::Allocator* const allocator = storage.allocator();
  // libtorch lets no storage grow of which NumPy has an array.
  // mutant: barrier-foreign
  return !storage.resizable() || allocator == nullptr ||
         bytes.get_deleter() != allocator->raw_deleter();
}

Bytes span_of(const Operand& operand) {
  return at::detail::computeStorageNbytes(operand.sizes, operand.strides, operand.type.itemsize());
}

at::Tensor copy_of(const at::Tensor& tensor, Operand operand) {
  constexpr std::uintptr_t kAlignment = 64;
  const Bytes bytes = span_of(operand);
  auto room = std::make_unique<std::byte[]>(bytes + kAlignment);
  const Spills::Use there(tensor.storage());
  const void* const from = tensor.const_data_ptr();
  const std::uintptr_t shift =
      (reinterpret_cast<std::uintptr_t>(from) - reinterpret_cast<std::uintptr_t>(room.get())) %
      kAlignment;
  std::byte* const first = room.get() + shift;
  if (bytes > 0) std::memcpy(first, from, bytes);
  c10::DataPtr block(
      first, room.release(), +[](void* all) { delete[] static_cast<std::byte*>(all); }, c10::kCPU);
  operand.offset = 0;
  return make_tensor(c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::int64_t>(bytes),
                                  std::move(block), nullptr, false),
                     operand, plain_keys(c10::kCPU));
}

OutsideMemory::Range OutsideMemory::range_of(c10::StorageImpl& storage) {
  const auto first = reinterpret_cast<std::uintptr_t>(storage._mutable_data_ptr_no_checks().get());
  return {first, first == 0 ? 0 : first + storage.nbytes()};
}

bool OutsideMemory::overlaps(const c10::Storage& storage, bool foreign) {
  const Range here = range_of(*storage.unsafeGetStorageImpl());
  if (here.first == here.end) return false;
  (foreign ? foreign_ : plain_).push_back(storage.getWeakStorageImpl());
  std::vector<Weak>& others = foreign ? plain_ : foreign_;
  std::erase_if(others, [](const Weak& other) { return other.expired(); });
  return std::any_of(others.begin(), others.end(), [&](const Weak& other) {
    // mutant: outside-moved
    const Range there = range_of(*other._unsafe_get_target());  // the weak reference keeps it
    return there.first < here.end && here.first < there.end;
  });
}

void OutsideMemory::forget(const c10::StorageImpl* storage) {
  for (std::vector<Weak>* const storages : {&plain_, &foreign_})
    std::erase_if(*storages, [&](const Weak& one) { return one._unsafe_get_target() == storage; });
}

}  // namespace berth::torch::step
