#pragma once

#include "csrc/replay/result.h"
#include "csrc/replay/workload.h"

#include <string_view>
#include <vector>

namespace berth::replay {

// A malloc that `replay` compares with.
struct MallocLibrary {
  const char* name;  // as --allocator says it
  std::vector<const char*>
      file_names;       // of the library to preload, first choice first; none: glibc
  const char* package;  // that has it on Debian
};
[[nodiscard]] const std::vector<MallocLibrary>& malloc_libraries();

// Replays requests and frees under another malloc, in a child process that preloads it: once for
// time and once for memory. Blocks are aligned to 64 bytes, as libtorch's on the CPU are, and never
// touched. Reserved is what the library holds from the system, live or not:
//   glibc     mallinfo2: arena + hblkhd
//   jemalloc  mallctl: stats.resident
//   tcmalloc  generic.heap_size - tcmalloc.pageheap_unmapped_bytes
//   mimalloc  private writable memory of the process: its own count drifts
// sampled at every new live peak, and after every request (of long runs every n-th). A library that
// is not installed is a Result::problem. Throws Error(kSystem). `library` is one of
// malloc_libraries().
[[nodiscard]] Result through_malloc(const MallocLibrary& library, const Workload& workload);

// The child is this program, started as `PROGRAM kMallocChild DESCRIPTOR`: its main() returns
// malloc_child(DESCRIPTOR) before anything else allocates. Its standard streams are ours and
// unused.
inline constexpr std::string_view kMallocChild = "replay-under-preloaded-malloc";
[[nodiscard]] int malloc_child(const char* memory_fd);

}  // namespace berth::replay
