#include "csrc/core/table_memory.h"

#include <algorithm>

namespace berth {

namespace {

constexpr std::size_t kFirstChunk = 4096;

}  // namespace

void* TableMemory::do_allocate(std::size_t bytes, std::size_t alignment) {
  void* found = std::align(alignment, bytes, next_, left_);
  if (found == nullptr) {
    // As much again as there is, so that they stay few.
    const std::size_t chunk = std::max({bytes + alignment, total_, kFirstChunk});
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk));
    total_ += chunk;
    next_ = chunks_.back().get();
    left_ = chunk;
    found = std::align(alignment, bytes, next_, left_);
  }
  next_ = static_cast<std::byte*>(found) + bytes;
  left_ -= bytes;
  return found;
}

void TableMemory::reset() {
  if (chunks_.size() > 1) {
    chunks_.clear();
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(total_));
  }
  next_ = chunks_.empty() ? nullptr : chunks_.back().get();
  left_ = total_;
}

}  // namespace berth
