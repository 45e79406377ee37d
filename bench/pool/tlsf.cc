#include "bench/pool/tlsf.h"

#include "csrc/core/check.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

namespace berth::bench {
namespace {

using replay::Operation;

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const found = ::dlsym(library, name);
  BERTH_CHECK(found != nullptr, kUsage, "the library has no function {}", name);
  function = reinterpret_cast<Function>(found);
}

// Address space that costs what is written.
class Range {
 public:
  explicit Range(std::size_t size)
      : size_(size),
        base_(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    BERTH_CHECK(base_ != MAP_FAILED, kSystem, "no range of {} bytes", size);
  }
  ~Range() { ::munmap(base_, size_); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  [[nodiscard]] char* base() const { return static_cast<char*>(base_); }

 private:
  std::size_t size_;
  void* base_;
};

}  // namespace

Tlsf::Tlsf(const std::string& library) {
  void* const opened = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  BERTH_CHECK(opened != nullptr, kUsage, "{}: {}", library, ::dlerror());
  find(opened, "tlsf_create_with_pool", create_);
  find(opened, "tlsf_malloc", allocate_);
  find(opened, "tlsf_free", free_);
}

std::optional<Bytes> Tlsf::highest_byte(const replay::Workload& workload) const {
  constexpr std::size_t kPool = std::size_t{3} << 30;  // it has none of 4 GiB
  const Range range(kPool);
  void* const pool = create_(range.base(), kPool);
  std::vector<void*> pointers(workload.block_count, nullptr);
  Bytes highest = 0;
  for (const Operation& operation : workload.operations) {
    void*& pointer = pointers[operation.block];
    if (operation.kind == Operation::Kind::kAllocate) {
      const Bytes size = align_up(operation.size, 512);
      pointer = allocate_(pool, size);
      if (pointer == nullptr) return std::nullopt;
      highest = std::max<Bytes>(
          highest, static_cast<Bytes>(static_cast<char*>(pointer) - range.base()) + size);
    } else if (operation.kind == Operation::Kind::kFree) {
      free_(pool, pointer);
    }
  }
  return highest;
}

}  // namespace berth::bench
