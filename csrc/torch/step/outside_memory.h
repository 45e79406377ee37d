#pragma once

#include "csrc/torch/step/record.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

namespace berth::torch::step {

// Whether others may read or write the storage's bytes behind libtorch's operators: memory that its
// allocator did not give it (from_numpy, frombuffer, DLPack, shared memory, mapped files), or that
// NumPy has an array of. One without bytes is not.
[[nodiscard]] bool is_foreign(c10::StorageImpl& storage);

// Bytes from the operand's first element in memory to its last one.
[[nodiscard]] Bytes span_of(const Operand& operand);
// The tensor, which is that operand on the CPU, with a copy of its bytes. It has its strides, and
// an address that is as aligned up to 64 bytes, since kernels may go by either.
[[nodiscard]] at::Tensor copy_of(const at::Tensor& tensor, Operand operand);

// The storages that a step takes from outside, to find two over the same addresses: libtorch's
// allocators give none out twice, so one of them is foreign. Storages are held weakly: the memory
// of one that is no more may be another's, as that of one that has left for the host. O(1) a
// storage as long as none is foreign, else O(storages).
class OutsideMemory {
 public:
  // Notes one that was not noted before. Returns whether it overlaps one that was, still is, and
  // lies there now, unless both are foreign.
  [[nodiscard]] bool overlaps(const c10::Storage& storage, bool foreign);
  // A storage is of no matter from now on: an operator has given it other memory.
  void forget(const c10::StorageImpl* storage);

 private:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Range {
    std::uintptr_t first = 0, end = 0;
  };
  [[nodiscard]] static Range range_of(c10::StorageImpl& storage);
  std::vector<Weak> plain_, foreign_;
};

}  // namespace berth::torch::step
