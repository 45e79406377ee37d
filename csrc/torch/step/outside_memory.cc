#include "csrc/torch/step/outside_memory.h"

#include <algorithm>

namespace berth::torch::step {

bool is_foreign(c10::StorageImpl& storage) {
  const c10::DataPtr& bytes = storage._mutable_data_ptr_no_checks();
  if (bytes.get() == nullptr || storage.nbytes() == 0) return false;
  const c10::Allocator* const allocator = storage.allocator();
  // libtorch lets no storage grow of which NumPy has an array.
  return !storage.resizable() || allocator == nullptr ||
         bytes.get_deleter() != allocator->raw_deleter();
}

bool OutsideMemory::overlaps(c10::StorageImpl& storage, bool foreign) {
  const auto first = reinterpret_cast<std::uintptr_t>(storage._mutable_data_ptr_no_checks().get());
  if (first == 0 || storage.nbytes() == 0) return false;
  const Range range{first, first + storage.nbytes()};
  (foreign ? foreign_ : plain_).push_back(range);
  const std::vector<Range>& others = foreign ? plain_ : foreign_;
  return std::any_of(others.begin(), others.end(), [&](const Range& other) {
    return other.first < range.end && range.first < other.end;
  });
}

}  // namespace berth::torch::step
