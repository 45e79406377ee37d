#pragma once

#include "csrc/torch/cuda/cudnn/backend.h"

#include <berth/bytes.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace berth::torch::cudnn {

// A tensor as cuDNN is told of it. Dimensions and strides in elements.
struct TensorShape {
  DataType type = DataType::kFloat;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t alignment = 1;  // of its address, bytes

  [[nodiscard]] std::string text() const;
};

// One thing that is asked of cuDNN: an image x, weights w and the result's image y, of which the
// two that are not made are read.
struct Convolution {
  enum class Kind : std::uint8_t { kForward, kBackwardData, kBackwardFilter };
  Kind kind = Kind::kForward;
  TensorShape x, w, y;
  std::vector<std::int64_t> stride, padding, dilation;
  bool deterministic = false;  // no algorithm that may give other bits the next time
  bool tensor_cores = true;    // of float: also those that round to TF32

  // By which two are told to be the same: "forward f[8,64,..]..".
  [[nodiscard]] std::string text() const;
};

// An algorithm of cuDNN's for a convolution, ready to run. One at a time.
class ConvolutionPlan {
 public:
  // Its engine and knobs: "4:0=1;12=2".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] Bytes workspace() const noexcept { return workspace_; }

  // Queues it in the handle's stream. The workspace is its own until the stream is through with it;
  // null where none is needed. False where cuDNN says that it failed.
  [[nodiscard]] bool run(Handle handle, void* x, void* w, void* y, void* workspace) const;

 private:
  friend std::vector<ConvolutionPlan> plans_of(const Calls&, Handle, const Convolution&,
                                               std::size_t);
  friend std::unique_ptr<ConvolutionPlan> plan_of(const Calls&, Handle, const Convolution&,
                                                  const std::string&);
  ConvolutionPlan(const Calls& calls, Descriptor plan, std::string name, Bytes workspace)
      : calls_(&calls), plan_(std::move(plan)), name_(std::move(name)), workspace_(workspace) {}

  const Calls* calls_;
  Descriptor plan_;
  std::string name_;
  Bytes workspace_;
};

// The algorithms that cuDNN has, its best guess first, at most `most`. What it cannot run is not
// among them. Builds each of them, which may take a second where kernels are compiled.
[[nodiscard]] std::vector<ConvolutionPlan> plans_of(const Calls& calls, Handle handle,
                                                    const Convolution& convolution,
                                                    std::size_t most);
// The one of that name; null where cuDNN has it no more.
[[nodiscard]] std::unique_ptr<ConvolutionPlan> plan_of(const Calls& calls, Handle handle,
                                                       const Convolution& convolution,
                                                       const std::string& name);

}  // namespace berth::torch::cudnn
