#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/page_store.h"

#include <cstddef>
#include <map>
#include <vector>

namespace berth {

// Where the memory of one allocator is in use: the one account behind reserved bytes, the number of
// segments, the history of memory and the snapshot.
//
// Every byte that is held is in use at one address, however many it has: memory that comes is added
// there, memory that goes is taken off there, and what is used at another address from now on is
// moved. A stretch is a range of addresses without a gap in one reservation.
//
// Invariants:
//   bytes() == PageStore::held() of the store that it watches, and the sum of all stretches
//   two stretches neither overlap, nor touch within one reservation
//
// Not thread-safe: the allocator's lock covers it. O(log stretches) a call. Where the host has no
// memory for a stretch complete() is false from then on, and only bytes() is right.
class HeldMemory final : public PageStore::Watcher {
 public:
  using Holding = PageStore::Holding;

  // As PageStore::Watcher. `stretches`: how many there are more by it; below zero, less.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void reserved(void* base, Bytes size, Holding holding, int stretches) noexcept = 0;
    virtual void releasing(void* base, Bytes size, Holding holding, int stretches) noexcept = 0;
    virtual void moved(void* to, void* from, Bytes size, int stretches) noexcept = 0;
  };

  explicit HeldMemory(Listener* listener = nullptr) noexcept : listener_(listener) {}

  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t count() const noexcept { return stretches_.size(); }
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  // In address order. Throws std::bad_alloc.
  [[nodiscard]] std::vector<ByteRange> stretches() const;

  void reserved(void* base, Bytes size, Holding holding) noexcept override;
  void releasing(void* base, Bytes size, Holding holding) noexcept override;
  // Of any bytes, not of whole pages alone.
  void moved(void* to, void* from, Bytes size) noexcept override;
  void addresses_reserved(void* base, Bytes size) noexcept override;
  void addresses_released(void* base, Bytes size) noexcept override;

 private:
  // Both return how many stretches there are more.
  int add(ByteRange bytes) noexcept;
  int take_off(ByteRange bytes) noexcept;
  void add_edge(Bytes at) noexcept;
  void take_off_edge(Bytes at) noexcept;

  Listener* const listener_;
  Bytes bytes_ = 0;
  bool complete_ = true;
  std::map<Bytes, Bytes> stretches_;  // first -> last
  std::map<Bytes, int> edges_;        // where reservations begin or end, and how many
};

}  // namespace berth
