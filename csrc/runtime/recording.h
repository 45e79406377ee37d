#pragma once

#include "csrc/core/check.h"
#include "csrc/device/device.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace berth {

// The traces that an allocator writes, one after the other, and how it names lanes in the one that
// is open. Where none is, nothing is done. Not thread-safe. lane() is O(lanes).
class Recording {
 public:
  // A closed recorder stays, since whoever had it may still append, to no effect.
  static constexpr std::size_t kMost = 1024;

  // Throws Error(kUsage) where one is open, or kMost were.
  void check_free() const {
    BERTH_CHECK(!active_ && !opening_, kUsage, "a recording is open already: end that one first");
    BERTH_CHECK(recorders_.size() < kMost, kUsage,
                "this process has recorded {} traces, which is the most", kMost);
  }
  // Its file is about to be made, without the lock: begin() follows, or give_up().
  void announce() {
    check_free();
    opening_ = true;
  }
  void give_up() noexcept { opening_ = false; }
  Recorder& begin(std::unique_ptr<Recorder> recorder) {
    opening_ = false;
    check_free();
    recorders_.push_back(std::move(recorder));
    lanes_.clear();
    active_ = true;
    return *recorders_.back();
  }
  // Ends it. The caller closes what is returned, if anything, without the lock.
  [[nodiscard]] Recorder* end() noexcept {
    return std::exchange(active_, false) ? recorders_.back().get() : nullptr;
  }
  [[nodiscard]] bool active() const noexcept { return active_; }
  // Null where it is not active.
  [[nodiscard]] Recorder* recorder() const noexcept {
    return active_ ? recorders_.back().get() : nullptr;
  }
  // Entries that were dropped so far.
  [[nodiscard]] std::uint64_t lost() const noexcept {
    std::uint64_t lost = 0;
    for (const auto& recorder : recorders_) lost += recorder->counts().lost;
    return lost;
  }

  // The lane's number in the trace; 0 where there is none. May throw.
  [[nodiscard]] trace::LaneId lane(LaneKey key) {
    if (!active_) return 0;
    for (const auto& [known, id] : lanes_) {
      if (known == key) return id;
    }
    lanes_.emplace_back(key, recorders_.back()->lane(key));
    return lanes_.back().second;
  }
  void append(const trace::Event& event) noexcept {
    if (active_) recorders_.back()->append(event);
  }

 private:
  std::vector<std::unique_ptr<Recorder>> recorders_;  // the last is the open one's
  bool active_ = false, opening_ = false;
  std::vector<std::pair<LaneKey, trace::LaneId>> lanes_;
};

}  // namespace berth
