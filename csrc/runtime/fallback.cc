#include "csrc/runtime/fallback.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <map>
#include <utility>

namespace berth {

PoolBlock* Fallback::allocate(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id) {
  const Mobility kind = mobility_.classify(size, lane, tag);
  if (events_.captured()) pool_.set_thrift(0);  // it waits for the device: that voids the capture
  PoolBlock* block = pool_.allocate(size, lane, kind);
  if (block == nullptr) block = search_everywhere(size, lane, kind);
  if (block == nullptr) throw OutOfMemory(exhaustion(size, lane));
  hand_out(block, size, tag, id);
  return block;
}

PoolBlock* Fallback::allocate_at(void* pointer, Bytes size, LaneKey lane,
                                 std::uint64_t id) noexcept {
  PoolBlock* const block = pool_.allocate_at(pointer, align_up(size, options_.alignment), lane);
  if (block == nullptr) return nullptr;
  block->requested = size;
  hand_out(block, size, 0, id);
  return block;
}

void Fallback::hand_out(PoolBlock* block, Bytes size, trace::Tag tag, std::uint64_t id) noexcept {
  block->id = id;
  block->born = mobility_.now();
  block->tag = tag;
  counters_.handed_out_by_pool(block->size, size);
  counters_.count(block->mobility);
}

void Fallback::free(PoolBlock* block, std::optional<LaneKey> freeing,
                    std::uint64_t requests) noexcept {
  const Bytes size = block->size;
  counters_.taken_back_by_pool(size, block->requested);
  mobility_.learn(block->requested, block->lane, block->tag, block->born);
  const bool waits = pool_.waits(block, freeing);
  if (options_.listener != nullptr)
    options_.listener->freed({block->pointer, block->requested, size, block->lane}, waits);
  pool_.free(block, freeing);
  if (!waits) takeover_.pool_freed(size, requests);
}

// The pool is exhausted: events, the arena where it idles, cached memory, a synchronisation.
PoolBlock* Fallback::search_everywhere(Bytes size, LaneKey lane, Mobility kind) noexcept {
  if (events_.captured()) return nullptr;
  if (pool_.process_events() != 0) {
    if (PoolBlock* block = pool_.allocate(size, lane, kind)) return block;
  }
  if (takeover_.share_what_is_to_come()) {
    if (PoolBlock* block = pool_.allocate(size, lane, kind)) return block;
  }
  if (arena_.retire() != 0) {
    takeover_.share();
    if (PoolBlock* block = pool_.allocate(size, lane, kind)) return block;
  }
  if (options_.free_pages != Allocator::FreePages::kStay && pool_.trim() != 0) {
    if (PoolBlock* block = pool_.allocate(size, lane, kind)) return block;
  }
  if (!events_.synchronize()) return nullptr;
  pool_.process_events();
  return pool_.allocate(size, lane, kind);
}

std::string Fallback::exhaustion(Bytes size, LaneKey lane) {
  const PoolStats in_pool = pool_.stats();
  Bytes free = 0;
  if (!device_.free_bytes(&free).ok()) ++counters_.device_errors;
  // What holds the most, by size of request.
  std::map<Bytes, std::pair<Bytes, std::uint64_t>> by_size;
  pool_.for_each_block([&](const PoolBlock& block) {
    auto& [bytes, count] = by_size[block.requested];
    bytes += block.size;
    ++count;
  });
  std::pair<Bytes, std::pair<Bytes, std::uint64_t>> most{};
  for (const auto& entry : by_size) {
    if (entry.second.first > most.second.first) most = entry;
  }
  return fmt::format(
      "out of memory on {}: asked {} for lane {}; live {} (planned {}, pool {}), reserved {} of "
      "{}, largest free block "
      "low {} and high {}, {} free on the device; the pool holds most in {} blocks of {}",
      device_.properties().name, format_bytes(size), lane, format_bytes(counters_.live),
      format_bytes(counters_.planned_live()), format_bytes(counters_.pool_live),
      format_bytes(arena_.committed() + in_pool.reserved),
      format_bytes(options_.config.memory_limit != 0 ? options_.config.memory_limit
                                                     : device_.properties().total_bytes),
      format_bytes(in_pool.largest_low), format_bytes(in_pool.largest_high), format_bytes(free),
      most.second.second, format_bytes(most.first));
}

}  // namespace berth
