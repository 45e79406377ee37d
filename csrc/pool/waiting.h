#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/lane_events.h"
#include "csrc/pool/chunk.h"

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace berth {

// Freed blocks that other lanes may still use: each waits for the points of the lanes in its
// `points`, and, where one cannot be had, for a synchronisation of the device.
//
// A block stands in the queue of one lane at a time, oldest point first, so that only the heads of
// queues are looked at. A lane that is being captured gives no point: what waits for it stays until
// the capture is over, and is then covered by one point. What no point can be had for (a stream
// that is somebody else's and may be gone, host memory that is short) comes free with the next
// LaneEvents::synchronize(), whoever wanted that; nothing is asked for it meanwhile.
//
// Not thread-safe: the allocator's lock covers it. The events outlive it. add() is O(1), and O(n)
// where a block waited for another lane while n were freed. It asks for memory only where no block
// waits for the lane, and does without where there is none.
class WaitingChunks {
 public:
  // A lane that uses a block: its point comes with the free.
  static constexpr std::uint64_t kUnrecorded = ~std::uint64_t{0};

  explicit WaitingChunks(LaneEvents& events) noexcept : events_(events) {}
  WaitingChunks(const WaitingChunks&) = delete;
  WaitingChunks& operator=(const WaitingChunks&) = delete;

  // Takes in a chunk whose use ends now: behind all that its lanes have queued. False where it has
  // to wait for nothing.
  [[nodiscard]] bool add(Chunk* chunk) noexcept;

  // Chunks that need not wait any more, as far as is known, from the queues of so many lanes, in
  // turn: a list through `right`. Of lanes that were captured it asks whether they still are.
  [[nodiscard]] Chunk* take_ready(std::size_t lanes) noexcept;
  // Chunks of the lane that holds up most bytes, else of any: the lanes that they belong to wait
  // for it, on the device, before what they do next. A list through `right`; empty where no lane
  // can be waited for. O(n) in the chunks that wait.
  [[nodiscard]] Chunk* take_ordered() noexcept;

  [[nodiscard]] bool empty() const noexcept { return queues_.empty() && unproven_.head == nullptr; }
  // Bytes that only a synchronisation frees.
  [[nodiscard]] Bytes unproven() const noexcept { return unproven_bytes_; }
  // Bytes of all chunks, by a walk. For tests.
  [[nodiscard]] Bytes walk() const noexcept;

 private:
  // A list through `left` and `right`.
  struct Queue {
    LaneKey lane = 0;
    Chunk* head = nullptr;
    Chunk* tail = nullptr;
    void insert_after(Chunk* place, Chunk* chunk) noexcept;
    Chunk* erase(Chunk* chunk) noexcept;
    Chunk* pop() noexcept { return erase(head); }
    [[nodiscard]] Bytes bytes() const noexcept;
  };

  // Puts the chunk where it has to wait next; false where it is ready.
  bool enqueue(Chunk* chunk) noexcept;
  Queue* queue_of(LaneKey lane) noexcept;
  // Moves what is ready to the list.
  void drain(Queue& queue, Chunk** ready) noexcept;
  void drain_unproven(Chunk** ready) noexcept;
  // Moves what its lanes can be made to wait for.
  void drain_in_order(Queue& queue, Chunk** ordered) noexcept;
  // Forgets the queue at this place of in_turn_.
  void forget(std::size_t place) noexcept;
  void settle(Chunk* chunk, Chunk** ready) noexcept;
  // The chunk waits for a synchronisation.
  void await_proof(Chunk* chunk) noexcept { chunk->proof = events_.synchronizations() + 1; }

  LaneEvents& events_;
  std::unordered_map<LaneKey, Queue> queues_;  // none is empty
  std::vector<Queue*> in_turn_;
  std::size_t next_in_turn_ = 0;
  Queue unproven_;
  Bytes unproven_bytes_ = 0;
};

}  // namespace berth
