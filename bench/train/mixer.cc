// MLP-Mixer (Tolstikhin et al., 2021): full layers over the patches and over the channels of an
// image in turn. Requests of a few sizes that come again and again, most of them transposed copies.
#include "bench/train/batches.h"
#include "bench/train/workload.h"

#include <fmt/format.h>

namespace berth::bench {

namespace {

namespace nn = torch::nn;

struct MixerBlockImpl : nn::Module {
  MixerBlockImpl(std::int64_t patches, std::int64_t width)
      : before_patches(register_module("before_patches", layer_norm(width))),
        before_channels(register_module("before_channels", layer_norm(width))),
        across_patches(register_module("across_patches", mlp(patches, width / 2))),
        across_channels(register_module("across_channels", mlp(width, 4 * width))) {}
  torch::Tensor forward(torch::Tensor x) {
    x = x + across_patches->forward(before_patches(x).transpose(1, 2)).transpose(1, 2);
    return x + across_channels->forward(before_channels(x));
  }

  static nn::LayerNorm layer_norm(std::int64_t width) {
    return nn::LayerNorm(nn::LayerNormOptions({width}));
  }
  static nn::Sequential mlp(std::int64_t size, std::int64_t inner) {
    return nn::Sequential(nn::Linear(size, inner), nn::GELU(), nn::Linear(inner, size));
  }

  nn::LayerNorm before_patches, before_channels;
  nn::Sequential across_patches, across_channels;
};
TORCH_MODULE(MixerBlock);

struct MixerImpl : nn::Module {
  MixerImpl(std::int64_t patches, std::int64_t patch_side, std::int64_t width, int layers)
      : stem(register_module(
            "stem", nn::Conv2d(nn::Conv2dOptions(3, width, patch_side).stride(patch_side)))),
        norm(register_module("norm", MixerBlockImpl::layer_norm(width))),
        head(register_module("head", nn::Linear(width, 10))) {
    for (int i = 0; i < layers; ++i)
      blocks.push_back(register_module(fmt::format("block{}", i), MixerBlock(patches, width)));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = stem(images).flatten(2).transpose(1, 2);
    for (MixerBlock& block : blocks) x = block(x);
    return head(norm(x).mean(1));
  }

  nn::Conv2d stem;
  std::vector<MixerBlock> blocks;
  nn::LayerNorm norm;
  nn::Linear head;
};
TORCH_MODULE(Mixer);

class MixerTraining final : public Workload {
 public:
  explicit MixerTraining(const WorkloadOptions& options)
      : batch_(options.batch != 0 ? options.batch : 8),
        device_(device_of(options)),
        data_(options.data_folder + "/digits.csv", 3, kSide, options.seed),
        model_(on(device_, Mixer(kPatches, kPatchSide, kWidth, kLayers))),
        optimizer_(model_->parameters(), torch::optim::AdamOptions(1e-3)) {}

  void load() override { loaded_ = data_.next(batch_).to(device_); }
  float train() override {
    const Batch batch = std::exchange(loaded_, {});
    optimizer_.zero_grad();
    const torch::Tensor loss =
        torch::cross_entropy_loss(model_->forward(batch.input), batch.target);
    loss.backward();
    optimizer_.step();
    return loss.item<float>();
  }

  std::string description() const override {
    return fmt::format(
        "MLP-Mixer, {} layers of width {}, digits at 3 x {} x {} in {} patches, "
        "batch {}, Adam",
        kLayers, kWidth, kSide, kSide, kPatches, batch_);
  }

 private:
  static constexpr std::int64_t kSide = 112, kPatchSide = 8, kWidth = 256;
  static constexpr std::int64_t kPatches = (kSide / kPatchSide) * (kSide / kPatchSide);
  static constexpr int kLayers = 6;
  std::int64_t batch_;
  torch::Device device_;
  DigitBatches data_;
  Batch loaded_;
  Mixer model_;
  torch::optim::Adam optimizer_;
};

}  // namespace

std::unique_ptr<Workload> make_mixer(const WorkloadOptions& options) {
  return std::make_unique<MixerTraining>(options);
}

}  // namespace berth::bench
