#pragma once

#include "csrc/device/device.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace berth {

// The trace that an allocator writes in mode record, and how it names lanes there. Where none is
// open, nothing is done. Not thread-safe. lane() is O(lanes).
class Recording {
 public:
  void open(const std::string& file, const trace::Program& program, Bytes alignment) {
    recorder_ = Recorder::open(file, program, alignment);
    active_ = true;
  }
  // Ends it. The caller closes what is returned, if anything, without the lock; it stays, since
  // whoever had it may still append, to no effect.
  [[nodiscard]] Recorder* end() noexcept {
    return std::exchange(active_, false) ? recorder_.get() : nullptr;
  }
  [[nodiscard]] bool active() const noexcept { return active_; }
  // Null where it is not active.
  [[nodiscard]] Recorder* recorder() const noexcept { return active_ ? recorder_.get() : nullptr; }
  // Entries that were dropped so far.
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return recorder_ ? recorder_->counts().lost : 0;
  }

  // The lane's number in the trace; 0 where there is none. May throw.
  [[nodiscard]] trace::LaneId lane(LaneKey key) {
    if (!active_) return 0;
    for (const auto& [known, id] : lanes_) {
      if (known == key) return id;
    }
    lanes_.emplace_back(key, recorder_->lane(key));
    return lanes_.back().second;
  }
  void append(const trace::Event& event) noexcept {
    if (active_) recorder_->append(event);
  }

 private:
  std::unique_ptr<Recorder> recorder_;
  bool active_ = false;
  std::vector<std::pair<LaneKey, trace::LaneId>> lanes_;
};

}  // namespace berth
