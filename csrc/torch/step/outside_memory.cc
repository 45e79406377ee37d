#include "csrc/torch/step/outside_memory.h"

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

bool OutsideMemory::overlaps(const c10::Storage& storage, bool foreign) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  const auto first = reinterpret_cast<std::uintptr_t>(impl._mutable_data_ptr_no_checks().get());
  if (first == 0 || impl.nbytes() == 0) return false;
  const std::uintptr_t end = first + impl.nbytes();
  (foreign ? foreign_ : plain_).push_back({first, end, storage.getWeakStorageImpl()});
  std::vector<Range>& others = foreign ? plain_ : foreign_;
  std::erase_if(others, [](const Range& other) { return other.storage.expired(); });
  return std::any_of(others.begin(), others.end(),
                     [&](const Range& other) { return other.first < end && first < other.end; });
}

void OutsideMemory::forget(const c10::StorageImpl* storage) {
  for (std::vector<Range>* const ranges : {&plain_, &foreign_})
    std::erase_if(*ranges,
                  [&](const Range& one) { return one.storage._unsafe_get_target() == storage; });
}

}  // namespace berth::torch::step
