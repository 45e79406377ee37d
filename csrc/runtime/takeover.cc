#include "csrc/runtime/takeover.h"

#include <algorithm>

namespace berth {
namespace {

// In the first step of an arena the pool gives pages back when so much was freed.
constexpr Bytes kTrimEvery = Bytes{4} << 20;
// The same where that waits for the device: a small part of the arena, and no more than this.
constexpr Bytes kTrimEveryWaiting = Bytes{16} << 20;
constexpr Bytes kTrimPart = 256;
// An arena that cannot settle tries again after so many requests, then twice as many, ..
constexpr std::uint64_t kTryAgain = 4096;

}  // namespace

Takeover::Takeover(Device& device, Arena& arena, Pool& pool, Bytes memory_limit,
                   const std::atomic<int>* captures) noexcept
    : device_(device),
      arena_(arena),
      pool_(pool),
      memory_limit_(memory_limit),
      limit_(memory_limit == 0 ? device.properties().total_bytes
                               : std::min(memory_limit, device.properties().total_bytes)),
      captures_(captures) {}

Bytes Takeover::needed(const PlanLookup& plan) const noexcept {
  const Bytes page = device_.properties().page_bytes;
  Bytes bytes = 0, end = 0;
  for (const ByteRange range : plan.covered()) {
    const Bytes first = std::max(end, range.first / page * page);
    end = align_up(range.last, page);
    bytes += end - first;
  }
  return bytes;
}

bool Takeover::allows(Bytes needed) const noexcept {
  return memory_limit_ == 0 ||
         (needed <= memory_limit_ && pool_.reserved() <= memory_limit_ - needed);
}

bool Takeover::has_room(Bytes needed) const noexcept {
  const Bytes live_in_pool = pool_.stats().live;
  if (needed > limit_ || live_in_pool > limit_ - needed) return false;
  Bytes free = 0;
  return device_.free_bytes(&free).ok() &&
         free + arena_.committed() + pool_.reserved() - live_in_pool >= needed;
}

bool Takeover::begin(std::uint64_t request) noexcept {
  const bool gradually = device_.properties().maps_pages;
  if (!arena_.commit(gradually ? Device::Residency::kOnDemand : Device::Residency::kResident))
    return false;
  settle_at_ = gradually ? request + arena_.slot_count() - arena_.slot_count() / 8 : 0;
  again_ = freed_ = 0;
  return true;
}

void Takeover::step_ended(std::uint64_t request) noexcept {
  marked_ = true;
  if (settle_at_ != 0 && request >= settle_at_) settle(request);
}

void Takeover::request_came(std::uint64_t request) noexcept {
  if (settle_at_ != 0 && request >= settle_at_ + (marked_ ? arena_.slot_count() : 0))
    settle(request);
}

void Takeover::settle(std::uint64_t request) noexcept {
  if (captured()) return;
  settle_at_ = 0;
  pool_.trim();
  share();
  arena_.make_resident();
  if (arena_.filling()) {
    again_ = again_ == 0 ? kTryAgain : 2 * again_;
    settle_at_ = request + again_;
  }
  share();
}

// The pages of what the step before left go back as it is freed, since the arena's are coming.
void Takeover::pool_freed(Bytes size, std::uint64_t request) noexcept {
  if (settle_at_ == 0 || captured()) return;
  request_came(request);
  if (settle_at_ == 0 || again_ != 0) return;
  Bytes enough = kTrimEvery;
  if (device_.properties().asynchronous && arena_.plan() != nullptr)
    enough = std::clamp(arena_.plan()->plan().arena_bytes / kTrimPart,
                        device_.properties().page_bytes, kTrimEveryWaiting);
  if ((freed_ += size) < enough) return;
  freed_ = 0;
  pool_.trim();
}

void Takeover::share() noexcept {
  pool_.set_limit(std::max<Bytes>(limit_ - std::min(limit_, arena_.pledged()), 1));
  arena_.set_page_limit(limit_ - std::min(limit_, pool_.reserved()));
}

bool Takeover::share_what_is_to_come() noexcept {
  if (arena_.pledged() == arena_.committed()) return false;
  pool_.set_limit(std::max<Bytes>(limit_ - std::min(limit_, arena_.committed()), 1));
  return true;
}

}  // namespace berth
