#pragma once

#include "csrc/pool/chunk.h"

#include <cstddef>
#include <string>

namespace berth {

// Holes in address order, with the largest size of every subtree, or in order of size and then
// address.
//
// A treap (Seidel and Aragon 1996) through the links of the chunks: O(log n) expected a call, no
// allocation. A chunk's address and size stay as they are while it is in a tree, but for resized().
class HoleTree {
 public:
  enum class Order { kAddress, kSize };
  explicit HoleTree(Order order = Order::kAddress) noexcept : order_(order) {}

  [[nodiscard]] bool empty() const noexcept { return root_ == nullptr; }
  void insert(Chunk* chunk) noexcept;
  void erase(Chunk* chunk) noexcept;
  // The chunk's bounds changed, but not its place among the others. Order kAddress only.
  void resized(Chunk* chunk) noexcept;

  // Of the holes with at least `size` bytes the one with the lowest (highest) address; order
  // kAddress only. Null where there is none.
  [[nodiscard]] Chunk* lowest(Bytes size) const noexcept;
  [[nodiscard]] Chunk* highest(Bytes size) const noexcept;
  // Of the holes with at least `size` bytes the smallest; order kSize only.
  [[nodiscard]] Chunk* best(Bytes size) const noexcept;
  // In order: the first chunk, and the one after a chunk; null at the end.
  [[nodiscard]] Chunk* front() const noexcept;
  [[nodiscard]] static Chunk* after(const Chunk* chunk) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Bytes largest() const noexcept { return root_ == nullptr ? 0 : root_->largest; }
  // The first broken invariant, empty where all is well.
  [[nodiscard]] std::string is_valid() const;

 private:
  [[nodiscard]] bool before(const Chunk* a, const Chunk* b) const noexcept {
    if (order_ == Order::kSize && a->size != b->size) return a->size < b->size;
    return a->first() < b->first();
  }
  void rotate_up(Chunk* chunk) noexcept;
  void replace(Chunk* parent, Chunk* old_child, Chunk* child) noexcept;

  Chunk* root_ = nullptr;
  std::size_t size_ = 0;
  Order order_;
};

}  // namespace berth
