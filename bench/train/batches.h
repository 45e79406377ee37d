#pragma once

#include "bench/train/data.h"
#include "bench/train/workload.h"

#include <torch/torch.h>

#include <string>
#include <utility>

// Batches of the data sets as tensors. Which samples a batch holds depends on the seed alone.
namespace berth::bench {

struct Batch {
  torch::Tensor input, target;

  [[nodiscard]] Batch to(torch::Device device) const {
    return {input.to(device), target.to(device)};
  }
};

// A module, moved to the device.
template <class Module>
Module on(torch::Device device, Module module) {
  module->to(device);
  return module;
}

// Where a workload trains.
[[nodiscard]] inline torch::Device device_of(const WorkloadOptions& options) {
  return options.cuda ? torch::kCUDA : torch::kCPU;
}

// Digits as images of `channels` x `side` x `side`, float, scaled up bilinearly.
class DigitBatches {
 public:
  DigitBatches(const std::string& path, std::int64_t channels, std::int64_t side,
               std::uint64_t seed);
  [[nodiscard]] Batch next(std::int64_t batch);

 private:
  torch::Tensor images_, labels_;
  std::int64_t channels_, side_;
  torch::Generator generator_;
};

// Windows of `context` characters; the target is each window one character on.
class CharacterBatches {
 public:
  CharacterBatches(const std::string& path, std::int64_t context, std::uint64_t seed);
  [[nodiscard]] Batch next(std::int64_t batch);
  [[nodiscard]] std::int64_t alphabet() const noexcept { return alphabet_; }

 private:
  torch::Tensor text_;
  std::int64_t context_, alphabet_;
  torch::Generator generator_;
};

}  // namespace berth::bench
