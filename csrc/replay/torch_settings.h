#pragma once

#include "csrc/replay/caching_model.h"

#include <string>
#include <string_view>
#include <vector>

namespace berth::replay {

// What PYTORCH_ALLOC_CONF asks of PyTorch's CUDA allocator, as far as the model follows it:
// max_split_size_mb and roundup_power2_divisions of one number. Whether segments are expandable the
// model is told by its caller.
struct TorchSettings {
  CachingModel::Options model;
  std::vector<std::string>
      unknown;  // settings that would change what is held, and are not followed
};

// Reads "name:value,name:value". What cannot be read counts as unknown.
[[nodiscard]] TorchSettings read_torch_settings(std::string_view text);

// Those of the environment: PYTORCH_ALLOC_CONF, else PYTORCH_CUDA_ALLOC_CONF.
[[nodiscard]] TorchSettings torch_settings_of_environment();

}  // namespace berth::replay
