#pragma once

#include "csrc/torch/shared/backend.h"
#include "csrc/trace/recorder.h"

#include <array>
#include <cstddef>

namespace berth::torch {

// What is kept for a trace that is being written: numbers of names, say. Of the traces that were
// used last, one a backend; older ones are forgotten. Not thread-safe: for thread-local objects.
template <class Value>
class PerRecorder {
 public:
  Value& get(const Recorder& recorder) {
    for (Slot& slot : slots_)
      if (slot.recorder == &recorder) return slot.value;
    Slot& slot = slots_[next_++ % slots_.size()];
    slot = {&recorder, Value()};
    return slot.value;
  }

 private:
  struct Slot {
    const Recorder* recorder = nullptr;  // its address is no other recorder's in this process
    Value value;
  };
  std::array<Slot, static_cast<std::size_t>(kMaxBackends)> slots_;
  std::size_t next_ = 0;
};

}  // namespace berth::torch
