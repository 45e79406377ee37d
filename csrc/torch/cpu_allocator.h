#pragma once

#include <c10/core/Allocator.h>

namespace berth::torch {

class Installation;

// c10's allocator of the CPU over berth's.
//
// Blocks are aligned to 64 bytes. A DataPtr holds its block as data and as context, and one deleter
// for all: so raw_allocate() and raw_deallocate() work, and the deleter may run on any thread,
// after main, and in a forked child. It never throws: a pointer that is not live is left alone,
// counted, and warned of once ("double-free", "unknown-pointer"). Size 0 gives a null block, whose
// deleter is not called. Each request and free is reported to libtorch's profiler, where one
// listens.
//
// Where memory is exhausted allocate() throws c10::OutOfMemoryError (a c10::Error, in Python a
// RuntimeError), whose text begins as that of libtorch's own CPU allocator.
class CpuAllocator final : public c10::Allocator {
 public:
  explicit CpuAllocator(Installation& installation) : installation_(installation) {}

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;
  bool is_simple_data_ptr(const c10::DataPtr& block) const override;

 private:
  Installation& installation_;
};

// Makes libtorch use it. Throws Error(kUsage) where an allocator of higher priority stands already.
void set_cpu_allocator(Installation& installation);

}  // namespace berth::torch
