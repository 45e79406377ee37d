#pragma once

#include "csrc/pool/chunk.h"

#include <cstddef>
#include <string>

namespace berth {

// Holes in the order of their addresses, or of their sizes, with the largest size of every subtree.
//
// A treap (Seidel and Aragon 1996) through the links of the chunks: O(log n) expected a call, no
// allocation. A chunk's address and size stay as they are while it is in a tree, but for resized().
class HoleTree {
 public:
  // By size, and by address where sizes are equal; while it is empty.
  void order_by_size() noexcept { by_size_ = true; }

  [[nodiscard]] bool empty() const noexcept { return root_ == nullptr; }
  void insert(Chunk* chunk) noexcept;
  void erase(Chunk* chunk) noexcept;
  // The chunk's bounds changed, but not its place among the addresses of the others.
  void resized(Chunk* chunk) noexcept;

  // Of the holes with at least `size` bytes the first (last) in the order: the one with the lowest
  // (highest) address, or the smallest (largest). Null where there is none.
  [[nodiscard]] Chunk* lowest(Bytes size) const noexcept;
  [[nodiscard]] Chunk* highest(Bytes size) const noexcept;
  // The hole that has the byte at an address; null where none does. In the order of addresses.
  [[nodiscard]] Chunk* around(Bytes address) const noexcept;
  // Calls visit(chunk) for each hole with at least `size` bytes, in order. O(such holes * log n).
  template <class Visit>
  void for_each(Bytes size, Visit&& visit) const {
    for_each_below(root_, size, visit);
  }
  // In order: the first chunk, and the one after a chunk; null at the end.
  [[nodiscard]] Chunk* front() const noexcept;
  [[nodiscard]] static Chunk* after(const Chunk* chunk) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Bytes largest() const noexcept { return root_ == nullptr ? 0 : root_->largest; }
  // The first broken invariant, empty where all is well.
  [[nodiscard]] std::string is_valid() const;

 private:
  template <class Visit>
  static void for_each_below(Chunk* chunk, Bytes size, Visit& visit) {
    if (chunk == nullptr || chunk->largest < size) return;
    for_each_below(chunk->left, size, visit);
    if (chunk->size >= size) visit(chunk);
    for_each_below(chunk->right, size, visit);
  }
  [[nodiscard]] bool precedes(const Chunk* one, const Chunk* other) const noexcept {
    if (by_size_ && one->size != other->size) return one->size < other->size;
    return one->first() < other->first();
  }
  void rotate_up(Chunk* chunk) noexcept;
  void replace(Chunk* parent, Chunk* old_child, Chunk* child) noexcept;

  Chunk* root_ = nullptr;
  std::size_t size_ = 0;
  bool by_size_ = false;
};

}  // namespace berth
