#include "csrc/torch/step/thread_count.h"

#include <ATen/Parallel.h>

// Of the OpenMP that libtorch brings; there is none where it was built without.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int threads);
}

namespace berth::torch::step {

int ThreadCount::now() {
  // mutant: threads-set
  return omp_get_max_threads != nullptr ? omp_get_max_threads() : at::get_num_threads();
}

void ThreadCount::set(int threads) {
  // The thread's first call sets what the process has: behind it, nothing does unasked.
  const int as_process = at::get_num_threads();
  if (now() == threads) return;
  if (omp_set_num_threads != nullptr)
    omp_set_num_threads(threads);
  else if (as_process != threads)
    at::set_num_threads(threads);
}

}  // namespace berth::torch::step
