#include "csrc/capi/stream_numbers.h"

#include <mutex>

namespace berth {

LaneKey StreamNumbers::number_of(std::uint64_t stream) {
  if (stream == 0) return 0;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t n = 1; n < streams_.size(); ++n)
      if (streams_[n].handle == stream && !streams_[n].gone) return n;
  }
  const LaneKey key = key_of(stream);  // may call the driver
  const std::lock_guard lock(mutex_);
  for (std::size_t n = 1; n < streams_.size(); ++n)
    if (streams_[n].handle == stream && !streams_[n].gone) return n;  // another thread's
  streams_.push_back({stream, key, false});
  return streams_.size() - 1;
}

void StreamNumbers::forget(std::uint64_t stream) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t n = 1; n < streams_.size(); ++n) {
    if (streams_[n].handle != stream || streams_[n].gone) continue;
    streams_[n].gone = true;
    streams_[n].key = key_when_gone(streams_[n].key);
  }
}

LaneKey StreamNumbers::below(LaneKey lane) const noexcept {
  const std::lock_guard lock(mutex_);
  return lane < streams_.size() ? streams_[lane].key : 0;
}

}  // namespace berth
