#pragma once

namespace berth::torch::step {

// Among how many threads the kernels that the calling thread runs divide their work: sums on the
// CPU go by it. at::get_num_threads() says it, too, but sets it in a thread that asks for the first
// time, where the thread's products may have gone by another number so far.
class ThreadCount {
 public:
  // As it is, with nothing set. O(1): some nanoseconds.
  [[nodiscard]] static int now();
  // Sets it for the calling thread, and for no other where libtorch goes by OpenMP.
  static void set(int threads);
};

}  // namespace berth::torch::step
