#pragma once

#include "csrc/torch/step/program.h"
#include "csrc/torch/step/thread_count.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <vector>

namespace berth::torch::step {

// What a thread has set that its kernels depend on: settings of libtorch, threads, streams.
class ThreadState {
 public:
  explicit ThreadState(const Program& program) : threads_(ThreadCount::now()) {
    for (const RecordedStorage& storage : program.storages) {
      const c10::Device device = storage.device;
      if (device.is_cpu() || (!streams_.empty() && streams_.back().device() == device)) continue;
      streams_.push_back(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
  }
  // While it lives, the calling thread has the same.
  class Guard {
   public:
    explicit Guard(const ThreadState& state) : state_(state.state_) {
      ThreadCount::set(state.threads_);
      for (const c10::Stream& stream : state.streams_) streams_.emplace_back(stream);
    }

   private:
    const at::ThreadLocalStateGuard state_;
    std::deque<c10::StreamGuard> streams_;
  };

 private:
  const int threads_;  // reductions go by it
  const at::ThreadLocalState state_;
  std::vector<c10::Stream> streams_;
};

}  // namespace berth::torch::step
