#pragma once

#include <ATen/core/ivalue.h>
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

  // The same of all devices of a call's arguments, of which `first` is one. Those beside it are
  // looked at where several are known.
  [[nodiscard]] bool are_same(c10::Device first, c10::ArrayRef<c10::IValue> arguments);
  // The streams, one for each device that was asked for.
  [[nodiscard]] const std::vector<c10::Stream>& all() const noexcept { return streams_; }

  // While it stands those streams are current. At its end, where `put_off`, what was current waits
  // for them on the device: what was put off was called before it was made to wait for the step.
  class Guard {
   public:
    Guard(const CurrentStreams& streams, bool put_off);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    const bool put_off_;
    std::vector<std::pair<c10::Stream, c10::Stream>> changed_;  // now, and before
  };

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace berth::torch::step
