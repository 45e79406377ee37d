#include "csrc/capi/graphs.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <new>
#include <utility>

namespace berth::capi {

Graphs::Id Graphs::make_id() noexcept {
  const std::lock_guard lock(mutex_);
  return {~std::uint64_t{0}, ++last_number_};
}

void Graphs::begin(Id id, Takes takes) {
  const std::lock_guard lock(mutex_);
  if (Graph* const graph = find(id); graph != nullptr) {
    graph->takes.push_back(std::move(takes));
    ++graph->uses;
  } else {
    Graph fresh{id, 1, {}, {}, {}};
    fresh.takes.push_back(std::move(takes));
    graphs_.push_back(std::move(fresh));
  }
  captures_.fetch_add(1, std::memory_order_relaxed);
}

void Graphs::end(Id id, Allocator& allocator, Device& device) {
  {
    const std::lock_guard lock(mutex_);
    Graph* const graph = find(id);
    BERTH_CHECK(graph != nullptr && !graph->takes.empty(), kUsage,
                "a capture was ended of graph {}, which is not being captured", id.second);
    captures_.fetch_sub(static_cast<int>(graph->takes.size()), std::memory_order_relaxed);
    graph->takes.clear();
    for (const auto& [where, blocks] : std::exchange(graph->kept, {})) {
      for (void* const block : blocks) {
        graph->blocks.at(block).kept = false;
        (void)allocator.free(block);  // and stays pinned
      }
    }
  }
  let_go(allocator, device);
  allocator.process_events();  // what was freed in the capture can be followed now
}

void Graphs::release(Id id, Allocator& allocator, Device& device) {
  {
    const std::lock_guard lock(mutex_);
    Graph* const graph = find(id);
    BERTH_CHECK(graph != nullptr, kUsage, "graph {} was released, which there is not", id.second);
    BERTH_CHECK(graph->takes.empty(), kUsage, "graph {} was released while it is being captured",
                id.second);
    if (graph->uses == 1) {
      released_.reserve(released_.size() + graph->blocks.size());
      for (const auto& [block, unused] : graph->blocks) released_.push_back(block);
      graphs_.erase(graphs_.begin() + (graph - graphs_.data()));
    } else {
      --graph->uses;
    }
  }
  let_go(allocator, device);
}

// To wait for the device would void a capture.
void Graphs::let_go(Allocator& allocator, Device& device) noexcept {
  const std::lock_guard lock(mutex_);
  // mutant: s15-abi-wait, s15-abi-open
  if (captures_.load() != 0 || released_.empty() || !device.synchronize_all().ok()) return;
  for (void* const block : released_) (void)allocator.unpin(block);
  released_.clear();
}

void* Graphs::allocate_in_capture(Allocator& allocator, Bytes size, LaneKey lane, void* stream) {
  Id taker;
  const bool taken = find_taker(stream, &taker);
  if (taken) {
    const std::lock_guard lock(mutex_);
    if (Graph* const graph = find(taker); graph != nullptr) {
      const auto kept = graph->kept.find({stream, size});
      if (kept != graph->kept.end() && !kept->second.empty()) {
        void* const block = kept->second.back();
        kept->second.pop_back();
        graph->blocks.at(block).kept = false;
        return block;
      }
    }
  }
  void* const block = allocator.allocate(size, lane);
  if (!taken || block == nullptr) return block;
  try {
    const std::lock_guard lock(mutex_);
    Graph* const graph = find(taker);
    if (graph == nullptr) return block;
    const auto [it, added] = graph->blocks.insert({block, {size, stream}});
    try {
      // mutant: s15-abi-pin
      (void)allocator.pin(block);
    } catch (...) {
      graph->blocks.erase(it);
      throw;
    }
    return block;
  } catch (...) {  // the graph would come back to bytes that others have
    (void)allocator.free(block);
    throw;
  }
}

bool Graphs::keep_in_capture(void* block, void* stream) {
  const std::lock_guard lock(mutex_);
  Graph* graph = nullptr;
  Block* const there = find_block(block, &graph);
  if (there == nullptr) return false;
  BERTH_CHECK(!there->kept, kUsage, "{} was freed before, in the capture that it is of", block);
  // mutant: s15-abi-order
  if (there->used_elsewhere || there->stream != stream) return false;
  try {
    graph->kept[{there->stream, there->size}].push_back(block);
  } catch (const std::bad_alloc&) {
    return false;  // it is freed as any other, and stays pinned
  }
  there->kept = true;
  return true;
}

void Graphs::note_use_in_capture(void* block, void* stream) {
  const std::lock_guard lock(mutex_);
  Graph* graph = nullptr;
  if (Block* const there = find_block(block, &graph))
    there->used_elsewhere |= there->stream != stream;
}

Graphs::Block* Graphs::find_block(void* block, Graph** graph) noexcept {
  for (Graph& one : graphs_) {
    if (one.takes.empty()) continue;
    const auto found = one.blocks.find(block);
    if (found == one.blocks.end()) continue;
    *graph = &one;
    return &found->second;
  }
  return nullptr;
}

bool Graphs::find_taker(void* stream, Id* taker) const {
  std::vector<std::pair<Id, Takes>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const Graph& graph : graphs_)
      for (const Takes& takes : graph.takes) all.emplace_back(graph.id, takes);
  }
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.second(stream); });
  if (found == all.end()) return false;
  *taker = found->first;
  return true;
}

Graphs::Graph* Graphs::find(Id id) noexcept {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Graph& graph) { return graph.id == id; });
  return found == graphs_.end() ? nullptr : &*found;
}

}  // namespace berth::capi
