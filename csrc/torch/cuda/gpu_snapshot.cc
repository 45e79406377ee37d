#include "csrc/torch/cuda/gpu.h"
#include "csrc/torch/cuda/newer_libtorch.h"

#include <c10/util/Exception.h>

#include <utility>

// What torch.cuda.memory_snapshot() shows of one GPU.
namespace berth::torch {

using c10::CachingDeviceAllocator::SegmentInfo;

void Gpu::add_segments(std::optional<c10::MempoolId_t> wanted, std::vector<SegmentInfo>* segments) {
  const auto add = [&](const PrivatePool& pool) {
    if (wanted && *wanted != pool.id) return;
    pool.allocator().for_each_stretch([&](const PoolStretch& stretch, bool) {
      SegmentInfo segment;
      segment.device = static_cast<c10::DeviceIndex>(index_);
      segment.address = reinterpret_cast<std::size_t>(stretch.base);
      segment.total_size = stretch.size;
      segment.is_large = true;
      segment.is_expandable = pool.maps_pages();
      segment.owner_private_pool_id = pool.id;
      bool named = false;
      for (const PoolStretch::Piece& piece : stretch.pieces) {
        using Kind = PoolStretch::Piece::Kind;
        c10::CachingDeviceAllocator::BlockInfo block;
        block.size = piece.size;
        block.allocated = piece.kind == Kind::kLive;
        block.active = piece.kind != Kind::kHole;
        if (block.active) {
          block.requested_size = piece.requested;
          block.context_when_allocated = history_.context_of(piece.pointer);
          segment.active_size += piece.size;
          segment.requested_size += piece.requested;
          // Of the streams whose blocks lie in it the first.
          if (!std::exchange(named, true)) segment.stream = lanes_.stream_of(piece.lane);
        }
        if (block.allocated) segment.allocated_size += piece.size;
        segment.blocks.push_back(std::move(block));
      }
      segments->push_back(std::move(segment));
    });
  };
  add(main_);
  for (const PoolPointer& pool : all_pools()) add(*pool);
}

std::vector<History::Entry> Gpu::history_entries() {
  const std::lock_guard lock(mutex_);
  return history_.entries();
}

void Gpu::note_snapshot() {
  {
    const std::lock_guard lock(mutex_);
    if (history_.active())
      history_.add(entry(History::Entry::SNAPSHOT, 0, statistics_.reserved(), 0, {0, 0}, nullptr));
  }
  deliver();
}

void Gpu::set_history(History::Settings settings) {
  const std::lock_guard lock(mutex_);
  history_.set(std::move(settings));
}

History::Context Gpu::context_of(const void* block) {
  const std::lock_guard lock(mutex_);
  return history_.context_of(block);
}

void Gpu::annotate(const void* block, const std::string& text) {
  const auto info = find(block);
  TORCH_CHECK(info, "berth: ", block, " is no live block of GPU ", index_);
  if (!history_.active() || !annotate_action()) return;
  const History::Context context = history_.gather(History::When::ALL);
  {
    const std::lock_guard lock(mutex_);
    History::Entry note = entry(*annotate_action(), reinterpret_cast<std::size_t>(block),
                                info->requested, info->lane, {0, 0}, context);
    note.user_metadata_ = text;
    history_.add(std::move(note));
  }
  deliver();
}

void Gpu::attach_tracker(History::Tracker tracker) {
  const std::lock_guard lock(mutex_);
  history_.attach(std::move(tracker));
}

}  // namespace berth::torch
