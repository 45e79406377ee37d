#pragma once

#include "csrc/pool/chunk.h"

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace berth {

// Live blocks by their pointer: a hash table with linear probing and deletion by shifting back
// (Knuth, volume 3, 6.4, algorithm R), at most half full. O(1).
class BlockTable {
 public:
  // Makes sure that the next insert() succeeds. False where the host's memory is exhausted.
  [[nodiscard]] bool prepare() noexcept {
    if (2 * (size_ + 1) <= slots_.size()) [[likely]]
      return true;
    try {
      std::vector<Slot> larger(slots_.empty() ? 64 : 2 * slots_.size());
      slots_.swap(larger);
      --shift_;
      if (larger.empty()) shift_ = 64 - 6;
      size_ = 0;
      for (const Slot& slot : larger)
        if (slot.pointer != nullptr) insert(slot.chunk);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  // Requires prepare().
  void insert(Chunk* chunk) noexcept {
    std::size_t at = home(chunk->pointer);
    while (slots_[at].pointer != nullptr) at = following(at);
    slots_[at] = {chunk->pointer, chunk};
    ++size_;
  }
  [[nodiscard]] Chunk* find(const void* pointer) const noexcept {
    if (slots_.empty() || pointer == nullptr) return nullptr;
    std::size_t at = home(pointer);
    while (slots_[at].pointer != nullptr && slots_[at].pointer != pointer) at = following(at);
    return slots_[at].chunk;
  }
  // Requires that the block is in the table.
  void erase(const Chunk* chunk) noexcept {
    std::size_t hole = home(chunk->pointer);
    while (slots_[hole].chunk != chunk) hole = following(hole);
    for (std::size_t at = following(hole); slots_[at].pointer != nullptr; at = following(at)) {
      // A slot may move back unless its home lies cyclically in (hole, at].
      const std::size_t mask = slots_.size() - 1;
      if (((at - home(slots_[at].pointer)) & mask) < ((at - hole) & mask)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    const void* pointer = nullptr;
    Chunk* chunk = nullptr;
  };
  [[nodiscard]] std::size_t home(const void* pointer) const noexcept {
    // Multiplicative hashing by the golden ratio: the high bits are the good ones.
    return static_cast<std::size_t>(
        (reinterpret_cast<std::uint64_t>(pointer) * 0x9E3779B97F4A7C15u) >> shift_);
  }
  [[nodiscard]] std::size_t following(std::size_t at) const noexcept {
    return (at + 1) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;  // 64 - log2(slots)
};

}  // namespace berth
