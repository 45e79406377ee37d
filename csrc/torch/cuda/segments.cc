#include "csrc/torch/cuda/segments.h"

#include "csrc/core/bytes.h"
#include "csrc/facts/rounding.h"

#include <algorithm>
#include <utility>

namespace berth::torch {

using c10::CachingDeviceAllocator::SegmentInfo;

void add_segments(const PrivatePool& pool, int device, const StreamLanes& lanes,
                  const Reports& reports, std::vector<SegmentInfo>* segments) {
  pool.allocator().for_each_stretch([&](const Stretch& stretch, bool) {
    SegmentInfo segment;
    segment.device = static_cast<c10::DeviceIndex>(device);
    segment.address = reinterpret_cast<std::size_t>(stretch.base);
    segment.total_size = stretch.size;
    segment.is_large = true;
    segment.is_expandable = pool.maps_pages();
    segment.owner_private_pool_id = pool.id;
    segment.registration_counter = reports.segment_number_locked(stretch.base);
    bool named = false;
    for (const Stretch::Piece& piece : stretch.pieces) {
      using Kind = Stretch::Piece::Kind;
      c10::CachingDeviceAllocator::BlockInfo block;
      block.size = piece.size;
      block.allocated = piece.kind == Kind::kLive;
      block.active = piece.kind != Kind::kHole;
      block.requested_size = reports.asked_locked(piece.pointer, piece.requested);
      // A block in a segment may have a rest behind it that is too small to split off. It is not
      // counted as allocated, as the statistics do not.
      const Bytes counted = pool.maps_pages()
                                ? piece.size
                                : std::min(piece.size, align_up(piece.requested, facts::kCudaUnit));
      if (block.active) {
        block.context_when_allocated = reports.context_locked(piece.pointer);
        segment.active_size += counted;
        segment.requested_size += block.requested_size;
        // Of the streams whose blocks lie in it the first.
        if (!std::exchange(named, true)) segment.stream = lanes.stream_of(piece.lane);
      }
      if (block.allocated) segment.allocated_size += counted;
      segment.blocks.push_back(std::move(block));
    }
    segments->push_back(std::move(segment));
  });
}

}  // namespace berth::torch
