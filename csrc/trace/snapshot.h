#pragma once

#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace berth {

// Of a range of kind kPhase that holds the requests of blocks that were there when the history of a
// snapshot begins: their sizes are known, their order is not.
inline constexpr std::string_view kBeforeHistory = "before the history";

// One device's part of a memory snapshot as PyTorch writes it (torch.cuda.memory._dump_snapshot,
// torch.cuda.memory._snapshot, in C++ torch::cuda::_memory_snapshot_pickled; of torch 2.4 to 2.15,
// fields that are missing or new are no error), as a trace.
//
// A block is freed where its free completed: when no stream used it any more. Streams are lanes, 0
// is the default one. Blocks from before the history are requested first, in the order of their
// addresses, in a range named kBeforeHistory. trace::Segment entries say what the native allocator
// reserved; what it held when the history begins is one of address 0. Stack frames become ranges
// and operators around a request: the innermost line of the program's own code is the module, the
// innermost at::_ops the operator; the user's metadata is the scope. Annotations
// (torch 2.5 and later) are ranges of the user, and each "Optimizer.step" ends a step.
// Alignment is 512. A request carries no thread.
struct Snapshot {
  struct Device {
    std::uint32_t index = 0;
    std::size_t entries = 0;   // of its history
    std::size_t requests = 0;  // those of kind alloc
    Bytes reserved = 0;        // now, by its segments
  };

  Trace trace;
  std::uint32_t device = 0;
  std::vector<Device> devices;  // those with history or segments
  bool expandable = false;      // it has expandable segments of PyTorch's allocator
  // Written under berth: small blocks lie in large expandable segments, as PyTorch's allocator
  // never puts them. A page that lies at several addresses counts at each in the figures of
  // segments below, and the trace has no trace::Segment.
  bool of_berth = false;
  std::string settings;  // PYTORCH_CUDA_ALLOC_CONF

  std::size_t entries = 0, requests = 0, frees = 0, marks = 0;
  Bytes reserved_at_start = 0, reserved_at_end = 0, reserved_peak = 0;  // over the history
  Bytes private_bytes = 0;  // of segments in pools of graphs and MemPool, at the end

  // What the history does not tell.
  std::size_t old_blocks = 0, old_freed = 0;  // blocks from before it; those that it frees
  Bytes old_bytes = 0;
  std::size_t lost_frees = 0;     // blocks whose address is handed out again without a free
  std::size_t missing_frees = 0;  // blocks that are not freed and not there at the end
  std::size_t delayed_frees = 0;  // completed later than requested: other streams used them
  std::size_t unknown_entries = 0;
  std::size_t out_of_memory = 0;
  Bytes refused = 0;  // the largest request that ran out of memory

  // The history begins later than the program, or its beginning was overwritten.
  [[nodiscard]] bool cut() const noexcept { return old_blocks != 0 || reserved_at_start != 0; }
  // One sentence each: where the history is cut, what is missing and what that makes uncertain.
  [[nodiscard]] std::vector<std::string> notes() const;
};

// Whether a file that begins so, not packed, is a pickle.
[[nodiscard]] bool is_pickle(std::span<const std::byte> head) noexcept;

// Reads the history of `device`, or, where none is named, of the only device that has one. Trusts
// nothing (pickle.h). Throws Error(kInput) for what is no snapshot or has no history, Error(kUsage)
// where several devices have one and none is named. A file, packed or not, has 4 GiB at most.
[[nodiscard]] Snapshot read_snapshot(const std::string& path,
                                     std::optional<std::uint32_t> device = {});
[[nodiscard]] Snapshot parse_snapshot(std::span<const std::byte> data, const std::string& name,
                                      std::optional<std::uint32_t> device = {});

}  // namespace berth
