#pragma once

#include "csrc/core/interval_map.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace berth {

// A byte range in a RangeTree, which its owner keeps: to put it in or take it out asks for no
// memory.
struct RangeNode {
  explicit RangeNode(ByteRange the_bytes) noexcept : bytes(the_bytes) {}

  const ByteRange bytes;

 private:
  friend class RangeTree;
  RangeNode* left = nullptr;
  RangeNode* right = nullptr;
  std::uint64_t priority = 0;
  Bytes last = 0;  // the largest end below here
};

// Byte ranges that may overlap, and which of them touch given bytes.
//
// A treap by first byte in which every node knows the largest end below it (Seidel & Aragon 1996;
// interval tree: Cormen et al., 14.3). insert and erase are O(log n), a look-up is O(log n + hits),
// in expectation, whatever the order of calls. Owns no node. Not thread-safe.
class RangeTree {
 public:
  void insert(RangeNode& node) noexcept {
    // splitmix64: the shape must not follow from the ranges.
    std::uint64_t z = (seed_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    node.priority = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    RangeNode** at = &root_;
    while (*at != nullptr && (*at)->priority >= node.priority) {
      (*at)->last = std::max((*at)->last, node.bytes.last);
      at = before(node, **at) ? &(*at)->left : &(*at)->right;
    }
    split(*at, node, &node.left, &node.right);
    *at = &node;
    update(node);
    ++size_;
  }

  // Requires that the node is in the tree.
  void erase(RangeNode& node) noexcept {
    erase_below(root_, node);
    --size_;
  }

  // Calls `visit(node)` for each range that shares a byte with `bytes`, in order of first bytes,
  // until it returns false. Returns whether none did. `visit` must not change the tree.
  template <class Visit>
  bool visit_touching(ByteRange bytes, Visit&& visit) const {
    return visit_below(root_, bytes, visit);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return root_ == nullptr; }

 private:
  // Nodes of equal ranges are told apart by where they lie.
  static bool before(const RangeNode& a, const RangeNode& b) noexcept {
    return a.bytes.first != b.bytes.first ? a.bytes.first < b.bytes.first
                                          : std::less<const RangeNode*>()(&a, &b);
  }
  static void update(RangeNode& node) noexcept {
    node.last = node.bytes.last;
    if (node.left != nullptr) node.last = std::max(node.last, node.left->last);
    if (node.right != nullptr) node.last = std::max(node.last, node.right->last);
  }
  // What lies before `at`, and the rest.
  static void split(RangeNode* tree, const RangeNode& at, RangeNode** low,
                    RangeNode** high) noexcept {
    if (tree == nullptr) {
      *low = *high = nullptr;
    } else if (before(at, *tree)) {
      split(tree->left, at, low, &tree->left);
      update(*tree);
      *high = tree;
    } else {
      split(tree->right, at, &tree->right, high);
      update(*tree);
      *low = tree;
    }
  }
  static RangeNode* merge(RangeNode* low, RangeNode* high) noexcept {
    if (low == nullptr) return high;
    if (high == nullptr) return low;
    RangeNode* const top = low->priority >= high->priority ? low : high;
    if (top == low) {
      low->right = merge(low->right, high);
    } else {
      high->left = merge(low, high->left);
    }
    update(*top);
    return top;
  }
  static void erase_below(RangeNode*& tree, RangeNode& node) noexcept {
    if (tree == &node) {
      tree = merge(node.left, node.right);
      return;
    }
    erase_below(before(node, *tree) ? tree->left : tree->right, node);
    update(*tree);
  }
  template <class Visit>
  static bool visit_below(RangeNode* tree, ByteRange bytes, Visit&& visit) {
    for (; tree != nullptr && tree->last > bytes.first; tree = tree->right) {
      if (!visit_below(tree->left, bytes, visit)) return false;
      if (tree->bytes.first >= bytes.last) return true;
      if (tree->bytes.touches(bytes) && !visit(*tree)) return false;
    }
    return true;
  }

  RangeNode* root_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace berth
