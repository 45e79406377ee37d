#include "csrc/torch/cuda/gpu.h"
#include "csrc/torch/cuda/newer_libtorch.h"

#include <berth/warnings.h>

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <utility>

// Private pools of one GPU: memory of CUDA graphs and of torch.cuda.MemPool.
namespace berth::torch {
namespace {

using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;

// The live blocks of a pool at one time.
struct PoolState final : AllocatorState {
  struct Block {
    void* pointer;
    Bytes requested;
    LaneKey lane;
  };
  c10::MempoolId_t pool{0, 0};
  std::vector<Block> blocks;
};

std::vector<PoolState::Block> live_blocks(const Allocator& allocator) {
  std::vector<PoolState::Block> blocks;
  allocator.for_each_stretch([&](const PoolStretch& stretch, bool) {
    for (const PoolStretch::Piece& piece : stretch.pieces)
      if (piece.kind == PoolStretch::Piece::Kind::kLive)
        blocks.push_back({const_cast<void*>(piece.pointer), piece.requested, piece.lane});
  });
  return blocks;
}

}  // namespace

void Gpu::set_no_split(c10::MempoolId_t id) {
  const PoolPointer now = find_pool(id);
  TORCH_CHECK(now != nullptr, "berth: there is no such memory pool to be left unsplit");
  if (now->whole_segments) return;
  TORCH_CHECK(now->allocator().stats().pool_reserved_peak == 0,
              "berth: a memory pool that has had memory cannot be left unsplit from now on");
  auto pool = std::make_shared<PrivatePool>(id, meter_, options(config_, false),
                                            static_cast<PoolEvents&>(*this), now->source, true);
  pool->uses = now->uses.load();
  pool->use_on_oom = now->use_on_oom.load();
  const std::lock_guard lock(pools_mutex_);
  pools_[id] = std::move(pool);
}

Gpu::PoolPointer Gpu::find_pool(c10::MempoolId_t id) {
  const std::lock_guard lock(pools_mutex_);
  const auto it = pools_.find(id);
  return it == pools_.end() ? nullptr : it->second;
}

std::vector<Gpu::PoolPointer> Gpu::all_pools() const {
  std::vector<PoolPointer> pools;
  if (!has_private_pools_.load()) return pools;
  const std::lock_guard lock(pools_mutex_);
  for (const auto& [id, pool] : pools_) pools.push_back(pool);
  return pools;
}

Gpu::PoolPointer Gpu::pool_with(const void* block) {
  for (PoolPointer& pool : all_pools())
    if (pool->allocator().contains(block)) return std::move(pool);
  return nullptr;
}

std::optional<Allocator::BlockInfo> Gpu::find(const void* block) {
  const PoolPointer pool = pool_with(block);
  return (pool == nullptr ? main_ : *pool).allocator().find(block);
}

// The newest pool whose filter takes the stream. Filters ask the driver or look at the thread, so
// they are called without our lock.
Gpu::PoolPointer Gpu::pool_for(cudaStream_t stream) {
  std::vector<UsedPool> used;
  {
    const std::lock_guard lock(pools_mutex_);
    used = used_;
  }
  for (auto it = used.rbegin(); it != used.rend(); ++it)
    if (it->filter(stream)) return find_pool(it->pool);
  return nullptr;
}

void Gpu::create_or_use_pool(c10::MempoolId_t id, PrivatePool::Source source) {
  {
    const std::lock_guard lock(pools_mutex_);
    if (const auto it = pools_.find(id); it != pools_.end()) {
      TORCH_CHECK(source == nullptr || it->second->uses == 0,
                  "berth: a memory pool that exists cannot be given another allocator");
      ++it->second->uses;
      return;
    }
  }
  // Its constructor reserves addresses, under the GPU's lock.
  auto pool = std::make_shared<PrivatePool>(id, meter_, options(config_, false),
                                            static_cast<PoolEvents&>(*this), std::move(source));
  const std::lock_guard lock(pools_mutex_);
  const auto [it, added] = pools_.emplace(id, std::move(pool));
  if (!added) ++it->second->uses;  // another thread was first
  has_private_pools_.store(true);
}

void Gpu::begin_pool(c10::MempoolId_t id, Filter filter) {
  static std::atomic<bool> warned{false};
  using Settings = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
  if (Settings::graph_capture_record_stream_reuse() && !warned.exchange(true))
    warn("settings-ignored",
         "PYTORCH_ALLOC_CONF asks for graph_capture_record_stream_reuse, which berth's CUDA "
         "allocator does not have: what other streams used comes back after the capture");
  // If a capture begins now it is this stream's, which then must be known (StreamLanes).
  (void)lanes_.lane_of(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index_)));
  create_or_use_pool(id);
  const std::lock_guard lock(pools_mutex_);
  const bool in_use =
      std::any_of(used_.begin(), used_.end(), [&](const UsedPool& one) { return one.pool == id; });
  TORCH_CHECK(!in_use, "beginAllocateToPool: already recording to this memory pool");
  used_.push_back({id, std::move(filter)});
  note_routes();
}

void Gpu::end_pool(c10::MempoolId_t id) {
  PoolPointer pool;
  {
    const std::lock_guard lock(pools_mutex_);
    const auto it = std::find_if(used_.begin(), used_.end(),
                                 [&](const UsedPool& one) { return one.pool == id; });
    TORCH_CHECK(it != used_.end(), "endAllocatePool: not currently recording to this memory pool");
    used_.erase(it);
    note_routes();
    if (const auto found = pools_.find(id); found != pools_.end()) pool = found->second;
  }
  // The capture is over: what was freed in it on several streams can be followed now.
  if (pool != nullptr) pool->allocator().process_events();
}

void Gpu::note_routes() {
  routes_.store(static_cast<int>(used_.size()));
  if constexpr (!kMarksCaptures) captures_.store(static_cast<int>(used_.size()));
}

void Gpu::note_capture(bool ended) {
  {
    const std::lock_guard lock(pools_mutex_);
    captures_.store(std::max(captures_.load() + (ended ? -1 : 1), 0));
  }
  if (!ended) return;
  main_.allocator().process_events();
  for (const PoolPointer& pool : all_pools()) pool->allocator().process_events();
}

void Gpu::release_pool(c10::MempoolId_t id) {
  const std::lock_guard lock(pools_mutex_);
  const auto it = pools_.find(id);
  TORCH_CHECK(it != pools_.end() && it->second->uses > 0, "releasePool: the pool is not in use");
  --it->second->uses;
}

// What nobody uses any more gives its memory back, and goes where nothing lives in it.
bool Gpu::release_unused_pools() {
  bool freed = false;
  for (const PoolPointer& pool : all_pools()) {
    if (pool->uses > 0) continue;
    freed |= pool->allocator().trim() != 0;
    const Stats stats = pool->allocator().stats();
    if (stats.live != 0 || stats.pool_reserved != 0) continue;
    const std::lock_guard lock(pools_mutex_);
    if (pool->uses == 0) pools_.erase(pool->id);
  }
  return freed;
}

int Gpu::pool_uses(c10::MempoolId_t id) {
  const PoolPointer pool = find_pool(id);
  return pool == nullptr ? 0 : pool->uses.load();
}

void Gpu::set_use_on_oom(c10::MempoolId_t id, bool on) {
  if (const PoolPointer pool = find_pool(id)) pool->use_on_oom = on;
}

bool Gpu::pool_blocks_are(c10::MempoolId_t id, const std::unordered_set<void*>& expected) {
  const PoolPointer pool = find_pool(id);
  TORCH_CHECK(pool != nullptr, "Could not find pool of id");
  const auto blocks = live_blocks(pool->allocator());
  return blocks.size() == expected.size() &&
         std::all_of(blocks.begin(), blocks.end(), [&](const PoolState::Block& block) {
           return expected.contains(block.pointer);
         });
}

std::shared_ptr<AllocatorState> Gpu::pool_state(c10::MempoolId_t id) {
  const PoolPointer pool = find_pool(id);
  TORCH_CHECK(pool != nullptr, "berth: no memory pool has this id");
  auto state = std::make_shared<PoolState>();
  state->pool = id;
  state->blocks = live_blocks(pool->allocator());
  return state;
}

CheckpointDelta Gpu::restore_pool(const AllocatorState& saved, c10::DeleterFnPtr deleter) {
  const auto* const state = dynamic_cast<const PoolState*>(&saved);
  TORCH_CHECK(state != nullptr, "berth: this state of a memory pool is another allocator's");
  const PoolPointer pool = find_pool(state->pool);
  TORCH_CHECK(pool != nullptr, "berth: the memory pool of this state is gone");
  CheckpointDelta delta;
  Allocator& allocator = pool->allocator();
  allocator.process_events();
  for (const PoolState::Block& block : live_blocks(allocator)) {
    delta.ptrs_freed.push_back(block.pointer);
    (void)allocator.free(block.pointer);
  }
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_));
  for (const PoolState::Block& block : state->blocks) {
    TORCH_CHECK(allocator.allocate_at(block.pointer, block.requested, block.lane),
                "berth: a block of the saved state of a memory pool cannot be made again at ",
                block.pointer);
    delta.dataptrs_allocd.emplace_back(block.pointer, block.pointer, deleter, device);
  }
  deliver();
  return delta;
}

}  // namespace berth::torch
