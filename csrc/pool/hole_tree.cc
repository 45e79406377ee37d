#include "csrc/pool/hole_tree.h"

#include <fmt/format.h>

#include <algorithm>

namespace berth {
namespace {

Bytes largest_of(const Chunk* chunk) noexcept { return chunk == nullptr ? 0 : chunk->largest; }

// Recomputes `largest`; false where it was right.
bool pull(Chunk* chunk) noexcept {
  const Bytes largest = std::max({chunk->size, largest_of(chunk->left), largest_of(chunk->right)});
  if (largest == chunk->largest) return false;
  chunk->largest = largest;
  return true;
}

void pull_up(Chunk* chunk) noexcept {
  while (chunk != nullptr && pull(chunk)) chunk = chunk->parent;
}

}  // namespace

void HoleTree::replace(Chunk* parent, Chunk* old_child, Chunk* child) noexcept {
  if (parent == nullptr) {
    root_ = child;
  } else if (parent->left == old_child) {
    parent->left = child;
  } else {
    parent->right = child;
  }
  if (child != nullptr) child->parent = parent;
}

void HoleTree::rotate_up(Chunk* chunk) noexcept {
  Chunk* const parent = chunk->parent;
  replace(parent->parent, parent, chunk);
  if (parent->left == chunk) {
    parent->left = chunk->right;
    if (chunk->right != nullptr) chunk->right->parent = parent;
    chunk->right = parent;
  } else {
    parent->right = chunk->left;
    if (chunk->left != nullptr) chunk->left->parent = parent;
    chunk->left = parent;
  }
  parent->parent = chunk;
  chunk->largest = parent->largest;  // the same set of holes
  pull(parent);
}

void HoleTree::insert(Chunk* chunk) noexcept {
  ++size_;
  chunk->left = chunk->right = nullptr;
  chunk->largest = chunk->size;
  Chunk* parent = nullptr;
  Chunk** link = &root_;
  while (*link != nullptr) {
    parent = *link;
    parent->largest = std::max(parent->largest, chunk->size);
    link = precedes(chunk, parent) ? &parent->left : &parent->right;
  }
  *link = chunk;
  chunk->parent = parent;
  while (chunk->parent != nullptr && chunk->parent->priority < chunk->priority) rotate_up(chunk);
}

void HoleTree::erase(Chunk* chunk) noexcept {
  --size_;
  while (chunk->left != nullptr && chunk->right != nullptr)
    rotate_up(chunk->left->priority > chunk->right->priority ? chunk->left : chunk->right);
  Chunk* const parent = chunk->parent;
  replace(parent, chunk, chunk->left != nullptr ? chunk->left : chunk->right);
  chunk->left = chunk->right = chunk->parent = nullptr;
  pull_up(parent);
}

void HoleTree::resized(Chunk* chunk) noexcept {
  if (!by_size_) return pull_up(chunk);
  erase(chunk);
  insert(chunk);
}

Chunk* HoleTree::lowest(Bytes size) const noexcept {
  Chunk* chunk = root_;
  if (largest_of(chunk) < size) return nullptr;
  while (true) {
    if (largest_of(chunk->left) >= size) {
      chunk = chunk->left;
    } else if (chunk->size >= size) {
      return chunk;
    } else {
      chunk = chunk->right;
    }
  }
}

Chunk* HoleTree::highest(Bytes size) const noexcept {
  Chunk* chunk = root_;
  if (largest_of(chunk) < size) return nullptr;
  while (true) {
    if (largest_of(chunk->right) >= size) {
      chunk = chunk->right;
    } else if (chunk->size >= size) {
      return chunk;
    } else {
      chunk = chunk->left;
    }
  }
}

Chunk* HoleTree::around(Bytes address) const noexcept {
  Chunk* chunk = root_;
  while (chunk != nullptr && (address < chunk->first() || address >= chunk->last()))
    chunk = address < chunk->first() ? chunk->left : chunk->right;
  return chunk;
}

Chunk* HoleTree::front() const noexcept {
  Chunk* chunk = root_;
  while (chunk != nullptr && chunk->left != nullptr) chunk = chunk->left;
  return chunk;
}

Chunk* HoleTree::after(const Chunk* chunk) noexcept {
  if (chunk->right != nullptr) {
    Chunk* next = chunk->right;
    while (next->left != nullptr) next = next->left;
    return next;
  }
  while (chunk->parent != nullptr && chunk->parent->right == chunk) chunk = chunk->parent;
  return chunk->parent;
}

std::string HoleTree::is_valid() const {
  const Chunk* previous = nullptr;
  for (const Chunk* chunk = front(); chunk != nullptr; chunk = after(chunk)) {
    if (previous != nullptr && !precedes(previous, chunk))
      return fmt::format("tree of holes: {} stands before {}", previous->pointer, chunk->pointer);
    for (const Chunk* child : {chunk->left, chunk->right}) {
      if (child == nullptr) continue;
      if (child->parent != chunk)
        return fmt::format("tree of holes: the parent of {} is another", child->pointer);
      if (child->priority > chunk->priority)
        return fmt::format("tree of holes: {} is above {}", chunk->pointer, child->pointer);
    }
    const Bytes largest =
        std::max({chunk->size, largest_of(chunk->left), largest_of(chunk->right)});
    if (chunk->largest != largest)
      return fmt::format("tree of holes: below {} the largest is {}, it says {}", chunk->pointer,
                         largest, chunk->largest);
    previous = chunk;
  }
  return {};
}

}  // namespace berth
