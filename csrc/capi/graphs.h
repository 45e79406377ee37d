#pragma once

#include "csrc/device/device.h"
#include "csrc/runtime/allocator.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth::capi {

// The captured graphs of one device, and the blocks that each uses.
//
// From begin() to end() every block that is asked for on a stream that the graph takes is pinned:
// a replay comes back to its bytes without asking, so they serve nobody else, freed or not, until
// release(). The graph itself comes back to them in the order of its stream: a block that is freed
// inside the capture serves the next request of its size on its stream there, and is free for the
// allocator at the capture's end. What lived before the capture is the caller's to keep alive, as
// under PyTorch. A graph that was begun several times is released as often.
//
// Thread-safe. While no capture is open a request and a free cost one load more.
class Graphs {
 public:
  // PyTorch's ids of memory pools are two numbers as well; those made here begin with ~0.
  struct Id {
    std::uint64_t first = 0, second = 0;
    friend bool operator==(const Id&, const Id&) = default;
  };
  // Whether work on the stream is captured into the graph. Called with no lock held.
  using Takes = std::function<bool(void* stream)>;

  // A graph of its own.
  [[nodiscard]] Id make_id() noexcept;
  // Before the driver's capture begins.
  void begin(Id id, Takes takes);
  // After it has ended, well or not. Throws Error(kUsage) where the graph is not being captured.
  void end(Id id, Allocator& allocator, Device& device);
  // The graph and all that was instantiated of it are destroyed. Waits for the device, once no
  // capture is open any more. Throws Error(kUsage) where there is no such graph, or it is being
  // captured.
  void release(Id id, Allocator& allocator, Device& device);

  // Allocator::allocate() for work on `stream`.
  [[nodiscard]] void* allocate(Allocator& allocator, Bytes size, LaneKey lane, void* stream) {
    if (captures_.load(std::memory_order_relaxed) == 0) [[likely]]
      return allocator.allocate(size, lane);
    return allocate_in_capture(allocator, size, lane, stream);
  }

  // Whether the block is kept for the rest of the capture that it was asked for in; else it is to
  // be freed. Throws Error(kUsage) where it is kept already.
  [[nodiscard]] bool keep(void* block, void* stream) {
    return captures_.load(std::memory_order_relaxed) != 0 && keep_in_capture(block, stream);
  }
  // The block is used on another stream as well: it is not kept.
  void note_use(void* block, void* stream) {
    if (captures_.load(std::memory_order_relaxed) != 0) note_use_in_capture(block, stream);
  }

  // For Allocator::Options::captures.
  [[nodiscard]] const std::atomic<int>& captures() const noexcept { return captures_; }

 private:
  struct Block {
    Bytes size = 0;
    void* stream = nullptr;
    bool used_elsewhere = false;
    bool kept = false;
  };
  struct Graph {
    Id id;
    std::uint64_t uses = 0;
    std::vector<Takes> takes;  // of the streams that are being captured
    std::unordered_map<void*, Block> blocks;
    std::map<std::pair<void*, Bytes>, std::vector<void*>> kept;  // by stream and size
  };

  [[nodiscard]] bool keep_in_capture(void* block, void* stream);
  void note_use_in_capture(void* block, void* stream);
  // Of a graph that is being captured, or null.
  [[nodiscard]] Block* find_block(void* block, Graph** graph) noexcept;
  void* allocate_in_capture(Allocator& allocator, Bytes size, LaneKey lane, void* stream);
  [[nodiscard]] bool find_taker(void* stream, Id* taker) const;
  [[nodiscard]] Graph* find(Id id) noexcept;
  void let_go(Allocator& allocator, Device& device) noexcept;

  std::atomic<int> captures_{0};
  mutable std::mutex mutex_;  // covers what follows
  std::uint64_t last_number_ = 0;
  std::vector<Graph> graphs_;
  std::vector<void*> released_;  // blocks of graphs that are gone, while the device may still run
};

}  // namespace berth::capi
