#include "csrc/runtime/run_record.h"

#include <algorithm>
#include <new>
#include <utility>

namespace berth {

bool RunRecord::add(const Entry& entry) noexcept {
  const std::size_t at = end_ - base_;
  if (at == used_ * kChunkEntries) {
    if (spare_ == 0) return false;
    ++used_;
    --spare_;
    // At the limit the oldest make room before it is needed.
    // mutant: learn-limit
    while (spare_ < kSpareChunks && used_ + spare_ == kMostChunks) drop_oldest();
  }
  (*slot((end_ - base_) / kChunkEntries).chunk)[at % kChunkEntries] = entry;
  ++end_;
  return true;
}

void RunRecord::drop_oldest() noexcept {
  Slot oldest = std::exchange(slot(0), Slot{});
  first_ = (first_ + 1) % kMostChunks;
  --used_;
  base_ += kChunkEntries;
  begin_ = std::max(begin_, base_);
  // mutant: learn-shared
  if (oldest.shared) return;
  slot(used_ + spare_) = std::move(oldest);
  ++spare_;
}

void RunRecord::drop_before(std::uint64_t position) noexcept {
  begin_ = std::max(begin_, std::min(position, end_));
  while (used_ != 0 && base_ + kChunkEntries <= begin_) drop_oldest();
}

std::shared_ptr<RunRecord::Chunk> RunRecord::make_chunk() noexcept {
  try {
    return std::make_shared<Chunk>();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void RunRecord::supply(std::shared_ptr<Chunk>& chunk) noexcept {
  if (!wants_chunk()) return;
  slot(used_ + spare_) = {std::move(chunk), false};
  ++spare_;
}

void RunRecord::share(std::uint64_t position, Share& share) noexcept {
  const std::uint64_t from = std::clamp(position, begin_, end_);
  const std::size_t first_chunk = (from - base_) / kChunkEntries;
  for (std::size_t i = first_chunk; i < used_; ++i) {
    slot(i).shared = true;
    share.chunks_.push_back(slot(i).chunk);
  }
  share.first_ = (from - base_) % kChunkEntries;
  share.count_ = end_ - from;
}

}  // namespace berth
