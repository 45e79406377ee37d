#include "csrc/torch/cuda/private_pools.h"

#include "csrc/torch/cuda/newer_libtorch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace berth::torch {

// --- The table ----------------------------------------------------------------------------------

PrivatePools::PoolPointer PrivatePools::find(Id id) const {
  const std::lock_guard lock(mutex_);
  const auto it = pools_.find(id);
  return it == pools_.end() ? nullptr : it->second;
}

std::vector<PrivatePools::PoolPointer> PrivatePools::all() const {
  std::vector<PoolPointer> pools;
  if (!has_any_.load()) return pools;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, pool] : pools_) pools.push_back(pool);
  return pools;
}

PrivatePools::PoolPointer PrivatePools::with(const void* address) const {
  if (!has_any_.load()) return nullptr;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, pool] : pools_)
    if (pool->allocator().contains(address)) return pool;
  return nullptr;
}

void PrivatePools::create_or_use(Id id, PrivatePool::Source source) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = pools_.find(id); it != pools_.end()) {
      TORCH_CHECK(source == nullptr || it->second->uses == 0,
                  "berth: a memory pool that exists cannot be given another allocator");
      ++it->second->uses;
      unused_.erase(id);
      return;
    }
  }
  // Its constructor reserves addresses, under the GPU's lock.
  PoolPointer pool = make_(id, std::move(source), false);
  const std::lock_guard lock(mutex_);
  const auto [it, added] = pools_.emplace(id, std::move(pool));
  if (!added) {  // another thread was first
    ++it->second->uses;
    unused_.erase(id);
  }
  has_any_.store(true);
}

void PrivatePools::release(Id id) {
  const std::lock_guard lock(mutex_);
  if (voided_.erase(id) != 0) return;
  const auto it = pools_.find(id);
  TORCH_CHECK(it != pools_.end() && it->second->uses > 0, "releasePool: the pool is not in use");
  if (--it->second->uses == 0) unused_.insert(id);
}

int PrivatePools::uses(Id id) const {
  const PoolPointer pool = find(id);
  return pool == nullptr ? 0 : pool->uses.load();
}

void PrivatePools::set_use_on_oom(Id id, bool on) {
  if (const PoolPointer pool = find(id)) pool->use_on_oom = on;
}

void PrivatePools::set_no_split(Id id) {
  const PoolPointer now = find(id);
  TORCH_CHECK(now != nullptr, "berth: there is no such memory pool to be left unsplit");
  if (now->whole_segments) return;
  TORCH_CHECK(now->allocator().stats().pool_reserved_peak == 0,
              "berth: a memory pool that has had memory cannot be left unsplit from now on");
  PoolPointer pool = make_(id, now->source, true);
  pool->uses = now->uses.load();
  pool->use_on_oom = now->use_on_oom.load();
  const std::lock_guard lock(mutex_);
  pools_[id] = std::move(pool);
}

bool PrivatePools::release_unused() {
  std::vector<PoolPointer> unused;
  if (!has_any_.load()) return false;
  {
    const std::lock_guard lock(mutex_);
    for (const Id& id : unused_) unused.push_back(pools_.at(id));
  }
  bool freed = false;
  for (const PoolPointer& pool : unused) {
    if (pool->uses > 0) continue;
    freed |= pool->allocator().trim() != 0;
    const std::lock_guard lock(mutex_);
    // A request may have been sent to it, and not be served yet: then somebody else knows it.
    constexpr long kTableAndUs = 2;
    const Stats stats = pool->allocator().stats();
    if (stats.live != 0 || stats.pool_reserved != 0 || pool.use_count() > kTableAndUs) continue;
    if (pool->uses != 0) continue;
    unused_.erase(pool->id);
    pools_.erase(pool->id);
  }
  return freed;
}

void PrivatePools::process_events() {
  if (!have_users_.load(std::memory_order_relaxed)) return;
  for (const PoolPointer& pool : all())
    if (pool->has_users) pool->allocator().process_events();
}

// --- Who is routed to ---------------------------------------------------------------------------

// Filters ask the driver or look at the thread, so they are called without our lock.
PrivatePools::PoolPointer PrivatePools::routed_for(cudaStream_t stream) {
  std::vector<Route> used;
  bool diverted = false;
  {
    const std::lock_guard lock(mutex_);
    used = used_;
    diverted = diverted_;
  }
  for (auto it = used.rbegin(); it != used.rend(); ++it) {
    if (!it->filter(stream)) continue;
    if (it->captures && !it->has_served) note_served(it->number);
    return find(it->pool);
  }
  return diverted ? find(kMeanwhile) : nullptr;
}

void PrivatePools::note_served(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (Route& route : used_)
    if (route.number == number) route.has_served = true;
}

void PrivatePools::divert(bool on) {
  {
    const std::lock_guard lock(mutex_);
    if (diverted_ == on) return;
  }
  if (on) create_or_use(kMeanwhile);
  {
    const std::lock_guard lock(mutex_);
    diverted_ = on;
    note_routes();
  }
  if (!on) release(kMeanwhile);
}

void PrivatePools::begin(Id id, Filter filter, cudaStream_t stream) {
  end_void_captures();
  create_or_use(id);
  const bool captures = !filter(stream);
  const std::lock_guard lock(mutex_);
  const bool in_use =
      std::any_of(used_.begin(), used_.end(), [&](const Route& one) { return one.pool == id; });
  TORCH_CHECK(!in_use, "beginAllocateToPool: already recording to this memory pool");
  used_.push_back({id, std::move(filter), captures, stream, std::this_thread::get_id(), begun_++});
  note_routes();
}

void PrivatePools::end(Id id) {
  PoolPointer pool;
  {
    const std::lock_guard lock(mutex_);
    const auto it =
        std::find_if(used_.begin(), used_.end(), [&](const Route& one) { return one.pool == id; });
    // Another thread saw the capture end before this call: its graph keeps the pool.
    if (it == used_.end() && voided_.erase(id) != 0) {
      if (const auto found = pools_.find(id); found != pools_.end()) {
        ++found->second->uses;
        unused_.erase(id);
        return;
      }
    }
    TORCH_CHECK(it != used_.end(), "endAllocatePool: not currently recording to this memory pool");
    used_.erase(it);
    note_routes();
    if (const auto found = pools_.find(id); found != pools_.end()) pool = found->second;
  }
  // The capture is over: what was freed in it on several streams can be followed now.
  if (pool != nullptr) pool->allocator().process_events();
}

void PrivatePools::end_void_captures() {
  if (routes_.load() == 0) return;
  std::vector<Route> begun;
  {
    const std::lock_guard lock(mutex_);
    for (const Route& route : used_)
      if (route.captures && (route.has_served || route.thread == std::this_thread::get_id()))
        begun.push_back(route);
  }
  for (const Route& route : begun) {
    if (capturing_(route.stream)) continue;
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(used_.begin(), used_.end(),
                                 [&](const Route& one) { return one.number == route.number; });
    if (it == used_.end()) continue;
    used_.erase(it);
    note_routes();
    // Shared with a graph or a MemPool it stays: a use too many only keeps memory.
    const auto found = pools_.find(route.pool);
    if (found == pools_.end() || found->second->uses != 1) continue;
    found->second->uses = 0;
    unused_.insert(route.pool);
    voided_.insert(route.pool);
  }
}

void PrivatePools::note_routes() {
  routes_.store(static_cast<int>(used_.size()) + (diverted_ ? 1 : 0));
  if constexpr (!kMarksCaptures)
    captures_.store(static_cast<int>(std::count_if(
        used_.begin(), used_.end(), [](const Route& route) { return route.captures; })));
}

void PrivatePools::note_capture(bool ended) {
  {
    const std::lock_guard lock(mutex_);
    captures_.store(std::max(captures_.load() + (ended ? -1 : 1), 0));
  }
  if (!ended) return;
  process_events();
}

}  // namespace berth::torch
