#include "csrc/torch/step/spill_memory.h"

#include <algorithm>
#include <utility>

namespace berth::torch::step {

namespace {

// Memory that is kept for the next tensors of its size.
constexpr std::size_t kMostSpares = 256;
constexpr Bytes kMostSpareBytes = Bytes{1} << 30;

}  // namespace

void SpillMemory::allow(Bytes bytes) noexcept { allowed_ = std::max(allowed_, bytes); }

bool SpillMemory::has(Bytes bytes) {
  const auto fits = [&] { return away_ + copied_ + scheduled_ + spare_bytes_ + bytes <= allowed_; };
  while (!fits() && !spares_.empty()) drop_oldest();
  return fits();
}

SpillMemory::Copy SpillMemory::take_spare(Bytes bytes, const std::optional<c10::Stream>& stream) {
  const auto found = std::find_if(spares_.begin(), spares_.end(), [&](const Spare& one) {
    return one.copy.bytes == bytes && one.stream == stream;
  });
  if (found == spares_.end()) return {};
  Copy copy = std::move(found->copy);
  spares_.erase(found);
  spare_bytes_ -= bytes;
  return copy;
}

void SpillMemory::leave(Bytes bytes) noexcept {
  away_ += bytes;
  away_peak_ = std::max(away_peak_, away_);
}

void SpillMemory::leave_again(Bytes bytes) noexcept {
  copied_ -= bytes;
  leave(bytes);
}

void SpillMemory::come_back(Bytes bytes) noexcept {
  away_ -= bytes;
  copied_ += bytes;
}

void SpillMemory::end_away(Copy copy, const std::optional<c10::Stream>& last) {
  away_ -= copy.bytes;
  keep(std::move(copy), last);
}

void SpillMemory::end_copy(Copy copy, const std::optional<c10::Stream>& last) {
  copied_ -= copy.bytes;
  keep(std::move(copy), last);
}

void SpillMemory::drop_copy(Copy copy) { copied_ -= copy.bytes; }

void SpillMemory::keep(Copy copy, const std::optional<c10::Stream>& last) {
  spare_bytes_ += copy.bytes;
  spares_.push_back({std::move(copy), last});
  while (spares_.size() > kMostSpares || spare_bytes_ > kMostSpareBytes) drop_oldest();
}

void SpillMemory::drop_oldest() {
  spare_bytes_ -= spares_.front().copy.bytes;
  spares_.pop_front();
}

}  // namespace berth::torch::step
