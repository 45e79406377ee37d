#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <utility>
#include <vector>

namespace berth::torch::step {

// On which stream of each device a step calls its operators: the one that is current at the first.
// O(devices) a call.
class CurrentStreams {
 public:
  // Whether the device's current stream is that one; notes it the first time. True for the CPU.
  [[nodiscard]] bool is_same(c10::Device device);

  // While it stands those streams are current; at its end, what was current waits for them on the
  // device: what was put off was called before it was made to wait for the step.
  class Guard {
   public:
    explicit Guard(const CurrentStreams& streams);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    std::vector<std::pair<c10::Stream, c10::Stream>> changed_;  // now, and before
  };

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace berth::torch::step
