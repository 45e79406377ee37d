#include "csrc/torch/cuda/pool_state.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

namespace berth::torch {
namespace {

using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;

struct LiveBlock {
  void* pointer;
  Bytes requested;
  LaneKey lane;
};

struct PoolState final : AllocatorState {
  c10::MempoolId_t pool{0, 0};
  std::vector<LiveBlock> blocks;
};

const PoolState& ours(const AllocatorState& state) {
  const auto* const known = dynamic_cast<const PoolState*>(&state);
  TORCH_CHECK(known != nullptr, "berth: this state of a memory pool is another allocator's");
  return *known;
}

std::vector<LiveBlock> live_blocks(const Allocator& allocator) {
  std::vector<LiveBlock> blocks;
  allocator.for_each_stretch([&](const Stretch& stretch, bool) {
    for (const Stretch::Piece& piece : stretch.pieces)
      if (piece.kind == Stretch::Piece::Kind::kLive)
        blocks.push_back({const_cast<void*>(piece.pointer), piece.requested, piece.lane});
  });
  return blocks;
}

}  // namespace

std::shared_ptr<AllocatorState> state_of(const PrivatePool& pool) {
  auto state = std::make_shared<PoolState>();
  state->pool = pool.id;
  state->blocks = live_blocks(pool.allocator());
  return state;
}

c10::MempoolId_t pool_of(const AllocatorState& state) { return ours(state).pool; }

CheckpointDelta restore(PrivatePool& pool, const AllocatorState& state, c10::Device device,
                        c10::DeleterFnPtr deleter) {
  CheckpointDelta delta;
  Allocator& allocator = pool.allocator();
  allocator.process_events();
  for (const LiveBlock& block : live_blocks(allocator)) {
    delta.ptrs_freed.push_back(block.pointer);
    (void)allocator.free(block.pointer);
  }
  for (const LiveBlock& block : ours(state).blocks) {
    TORCH_CHECK(allocator.allocate_at(block.pointer, block.requested, block.lane),
                "berth: a block of the saved state of a memory pool cannot be made again at ",
                block.pointer);
    delta.dataptrs_allocd.emplace_back(block.pointer, block.pointer, deleter, device);
  }
  return delta;
}

bool blocks_are(const PrivatePool& pool, const std::unordered_set<void*>& expected) {
  const auto blocks = live_blocks(pool.allocator());
  return blocks.size() == expected.size() &&
         std::all_of(blocks.begin(), blocks.end(),
                     [&](const LiveBlock& block) { return expected.contains(block.pointer); });
}

}  // namespace berth::torch
