// ResNet-18 (He et al. 2016, "Deep Residual Learning for Image Recognition", table 1) on the
// digits.
#include "bench/train/batches.h"
#include "bench/train/workload.h"

#include <fmt/format.h>

namespace berth::bench {

namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                       std::int64_t stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// Two 3 x 3 convolutions and a way around them.
struct BlockImpl : nn::Module {
  BlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride)
      : first(register_module("first", convolution(in, out, 3, stride))),
        first_norm(register_module("first_norm", nn::BatchNorm2d(out))),
        second(register_module("second", convolution(out, out, 3, 1))),
        second_norm(register_module("second_norm", nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out)
      shortcut = register_module(
          "shortcut", nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::relu(first_norm(first(x)));
    return (second_norm(second(y)) + (shortcut.is_empty() ? x : shortcut->forward(x))).relu_();
  }

  nn::Conv2d first;
  nn::BatchNorm2d first_norm;
  nn::Conv2d second;
  nn::BatchNorm2d second_norm;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

nn::Sequential resnet18(std::int64_t classes) {
  nn::Sequential net(convolution(3, 64, 7, 2), nn::BatchNorm2d(64), nn::ReLU(nn::ReLUOptions(true)),
                     nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    net->push_back(Block(in, out, out == 64 ? 1 : 2));
    net->push_back(Block(out, out, 1));
    in = out;
  }
  net->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(512, classes));
  return net;
}

class ResNet18 final : public Workload {
 public:
  explicit ResNet18(const WorkloadOptions& options)
      : batch_(options.batch != 0 ? options.batch : 16),
        device_(device_of(options)),
        data_(options.data_folder + "/digits.csv", 3, kSide, options.seed),
        net_(on(device_, resnet18(10))),
        optimizer_(net_->parameters(),
                   torch::optim::SGDOptions(0.02).momentum(0.9).weight_decay(1e-4)) {}

  void load() override { loaded_ = data_.next(batch_).to(device_); }
  float train() override {
    const Batch batch = std::exchange(loaded_, {});
    optimizer_.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(net_->forward(batch.input), batch.target);
    loss.backward();
    optimizer_.step();
    return loss.item<float>();
  }

  std::string description() const override {
    return fmt::format("ResNet-18, digits at 3 x {0} x {0}, batch {1}, SGD", kSide, batch_);
  }

 private:
  static constexpr std::int64_t kSide = 160;
  std::int64_t batch_;
  torch::Device device_;
  DigitBatches data_;
  Batch loaded_;
  nn::Sequential net_;
  torch::optim::SGD optimizer_;
};

}  // namespace

std::unique_ptr<Workload> make_resnet18(const WorkloadOptions& options) {
  return std::make_unique<ResNet18>(options);
}

}  // namespace berth::bench
