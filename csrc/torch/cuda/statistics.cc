#include "csrc/torch/cuda/statistics.h"

#include "csrc/pool/mobility.h"
#include "csrc/torch/cuda/newer_libtorch.h"

#include <c10/core/AllocatorConfig.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace berth::torch {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

constexpr std::size_t index(StatType type) noexcept { return static_cast<std::size_t>(type); }

std::size_t type_of(Bytes size) noexcept {
  return index(size <= MobilityClassifier::kSmall ? StatType::SMALL_POOL : StatType::LARGE_POOL);
}

void increase(StatArray& stat, std::size_t type, Bytes amount) noexcept {
  stat[index(StatType::AGGREGATE)].increase(amount);
  stat[type].increase(amount);
}

void decrease(StatArray& stat, std::size_t type, Bytes amount) noexcept {
  stat[index(StatType::AGGREGATE)].decrease(amount);
  stat[type].decrease(amount);
}

constexpr std::size_t kLarge = index(StatType::LARGE_POOL);

constexpr StatArray c10::CachingDeviceAllocator::DeviceStats::*kArrays[] = {
    &c10::CachingDeviceAllocator::DeviceStats::allocation,
    &c10::CachingDeviceAllocator::DeviceStats::segment,
    &c10::CachingDeviceAllocator::DeviceStats::active,
    &c10::CachingDeviceAllocator::DeviceStats::inactive_split,
    &c10::CachingDeviceAllocator::DeviceStats::allocated_bytes,
    &c10::CachingDeviceAllocator::DeviceStats::reserved_bytes,
    &c10::CachingDeviceAllocator::DeviceStats::active_bytes,
    &c10::CachingDeviceAllocator::DeviceStats::inactive_split_bytes,
    &c10::CachingDeviceAllocator::DeviceStats::requested_bytes,
};

// Where libtorch counts what private pools hold.
template <class Act>
void in_private_pool(c10::CachingDeviceAllocator::DeviceStats* stats, c10::MempoolId_t pool,
                     Act act) noexcept {
  if (pool == c10::MempoolId_t{0, 0}) return;
  try {
    for_private_pools(stats, &pool, act);
  } catch (...) {  // no memory for another pool's counters
  }
}

}  // namespace

void Statistics::served(const BlockListener::Block& block) noexcept {
  const std::size_t type = type_of(block.requested);
  increase(stats_.allocation, type, 1);
  increase(stats_.allocated_bytes, type, block.size);
  increase(stats_.active, type, 1);
  increase(stats_.active_bytes, type, block.size);
  increase(stats_.requested_bytes, type, block.requested);
  decrease(stats_.inactive_split_bytes, kLarge, block.size);
}

void Statistics::freed(const BlockListener::Block& block, bool waiting) noexcept {
  const std::size_t type = type_of(block.requested);
  decrease(stats_.allocation, type, 1);
  decrease(stats_.allocated_bytes, type, block.size);
  if (!waiting) completed(block);
}

void Statistics::completed(const BlockListener::Block& block) noexcept {
  const std::size_t type = type_of(block.requested);
  decrease(stats_.active, type, 1);
  decrease(stats_.active_bytes, type, block.size);
  decrease(stats_.requested_bytes, type, block.requested);
  increase(stats_.inactive_split_bytes, kLarge, block.size);
}

void Statistics::reserved(c10::MempoolId_t pool, Bytes size) noexcept {
  ++stats_.num_device_alloc;
  increase(stats_.reserved_bytes, kLarge, size);
  in_private_pool(&stats_, pool, [size](StatArray& stat) { increase(stat, kLarge, size); });
  increase(stats_.inactive_split_bytes, kLarge, size);
}

void Statistics::releasing(c10::MempoolId_t pool, Bytes size) noexcept {
  ++stats_.num_device_free;
  decrease(stats_.reserved_bytes, kLarge, size);
  in_private_pool(&stats_, pool, [size](StatArray& stat) { decrease(stat, kLarge, size); });
  decrease(stats_.inactive_split_bytes, kLarge, size);
}

void Statistics::count_segments(int more) noexcept {
  if (more > 0) increase(stats_.segment, kLarge, static_cast<Bytes>(more));
  if (more < 0) decrease(stats_.segment, kLarge, static_cast<Bytes>(-more));
}

void Statistics::exhausted(bool refused) noexcept {
  ++stats_.num_ooms;
  if (refused) count_refusal(&stats_);
}

c10::CachingDeviceAllocator::DeviceStats Statistics::get(std::uint64_t holes) noexcept {
  for (const std::size_t type : {index(StatType::AGGREGATE), kLarge}) {
    Stat& stat = stats_.inactive_split[type];
    if (const auto now = static_cast<std::int64_t>(holes); now >= stat.current) {
      stat.increase(static_cast<std::size_t>(now - stat.current));
    } else {
      stat.decrease(static_cast<std::size_t>(stat.current - now));
    }
  }
  // Blocks of every size are split; PyTorch says the setting, and all bits where there is none.
  stats_.max_split_size = static_cast<std::int64_t>(
      c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size());
  c10::CachingDeviceAllocator::DeviceStats stats = stats_;
  // Below zero while blocks live whose memory left for a while.
  for (Stat& stat : stats.inactive_split_bytes)
    stat.current = std::max<std::int64_t>(stat.current, 0);
  return stats;
}

Bytes Statistics::allocated() const noexcept {
  return static_cast<Bytes>(stats_.allocated_bytes[index(StatType::AGGREGATE)].current);
}

Bytes Statistics::reserved() const noexcept {
  return static_cast<Bytes>(stats_.reserved_bytes[index(StatType::AGGREGATE)].current);
}

void Statistics::reset_accumulated() noexcept {
  for (const auto array : kArrays)
    for (Stat& stat : stats_.*array) stat.reset_accumulated();
  for_private_pools(&stats_, nullptr, [](StatArray& pool) {
    for (Stat& stat : pool) stat.reset_accumulated();
  });
  reset_refusals(&stats_);
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

void Statistics::reset_peak() noexcept {
  for (const auto array : kArrays)
    for (Stat& stat : stats_.*array) stat.reset_peak();
  for_private_pools(&stats_, nullptr, [](StatArray& pool) {
    for (Stat& stat : pool) stat.reset_peak();
  });
}

}  // namespace berth::torch
