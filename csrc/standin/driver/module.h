#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace berth::standin {

// What a compiler says of one kernel.
struct KernelFunction {
  const char* name = "";  // kept for ever: work in a stream refers to it
  int registers = 32;     // of a thread
  int local_bytes = 0;    // of a thread: what it spills
  int shared_bytes = 0;   // of a block
  int max_dynamic_shared_bytes = 48 * 1024;

  // How many threads of it one block may have.
  [[nodiscard]] int max_threads_per_block() const;
};

// A loaded module: kernels by name. Their code is not looked at.
//
// Of a cubin, an ELF file, it reads which kernels there are and what they take, as ptxas wrote it
// (the numbers are those of `cuobjdump --dump-elf`). PTX and fat binaries are taken to hold every
// kernel that they are asked for. No thread-safety of its own.
class Module {
 public:
  // Null for an image that is neither. `size` may be more than the image has: the driver is not
  // told it.
  static std::unique_ptr<Module> load(const void* image, std::size_t size);

  // Null where there is none of that name.
  KernelFunction* find(std::string_view name);

 private:
  bool read_elf(std::string_view image);

  std::map<std::string, KernelFunction, std::less<>> kernels_;
  bool any_name_ = false;
};

}  // namespace berth::standin
