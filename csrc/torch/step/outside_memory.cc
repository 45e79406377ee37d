#include "csrc/torch/step/outside_memory.h"

#include <algorithm>

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
