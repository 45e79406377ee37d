#include "bench/train/workload.h"

#include <torch/torch.h>

namespace berth::bench {

const std::vector<WorkloadKind>& workload_kinds() {
  static const std::vector<WorkloadKind> kinds = {
      {"resnet18", "ResNet-18 on the UCI digits, scaled up", make_resnet18},
      {"gpt", "a 4-layer GPT on the characters of an English text", make_gpt},
      {"lstm", "a 2-layer LSTM on the same text", make_lstm},
      {"mlp", "full layers on the digits", make_mlp},
      {"mixer", "a 6-layer MLP-Mixer on the digits", make_mixer},
  };
  return kinds;
}

void prepare_libtorch(std::uint64_t seed, int threads, bool cudnn) {
  at::globalContext().setUserEnabledCuDNN(cudnn);
  torch::manual_seed(seed);
  // One thread pool for operators; the number between operators stays at libtorch's default, since
  // nothing here forks work.
  torch::set_num_threads(threads);
}

}  // namespace berth::bench
