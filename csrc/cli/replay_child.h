#pragma once

#include "csrc/cli/replay_result.h"
#include "csrc/cli/workload.h"

#include <string_view>
#include <vector>

namespace berth::cli {

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
// is not installed is a ReplayResult::problem. Throws Error(kSystem). `library` is one of
// malloc_libraries().
[[nodiscard]] ReplayResult replay_malloc(const MallocLibrary& library, const Workload& workload);

// The child: `berth KIND DESCRIPTOR`. Its standard streams are ours and unused.
inline constexpr std::string_view kReplayChild = "replay-under-preloaded-malloc";
[[nodiscard]] int replay_child(const char* memory_fd);

}  // namespace berth::cli
