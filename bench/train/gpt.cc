// A character model in the shape of GPT-2 (Radford et al. 2019): pre-norm blocks of causal
// attention and a four times wider GELU layer, tied embeddings.
#include "bench/train/batches.h"
#include "bench/train/workload.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace berth::bench {

namespace {

namespace nn = torch::nn;

constexpr std::int64_t kContext = 512, kWidth = 256, kHeads = 8, kLayers = 4;

struct AttentionImpl : nn::Module {
  AttentionImpl()
      : in(register_module("in", nn::Linear(kWidth, 3 * kWidth))),
        out(register_module("out", nn::Linear(kWidth, kWidth))),
        future(register_buffer("future", torch::ones({kContext, kContext}, torch::kBool)
                                             .triu(1)
                                             .view({1, 1, kContext, kContext}))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const std::int64_t batch = x.size(0), length = x.size(1);
    const auto heads = [&](const torch::Tensor& t) {
      return t.view({batch, length, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const auto parts = in(x).split(kWidth, 2);
    torch::Tensor scores = heads(parts[0]).matmul(heads(parts[1]).transpose(2, 3)) *
                           (1.0 / std::sqrt(static_cast<double>(kWidth / kHeads)));
    scores = scores.masked_fill(future, -std::numeric_limits<float>::infinity());
    const torch::Tensor mixed = scores.softmax(-1).matmul(heads(parts[2]));
    return out(mixed.transpose(1, 2).contiguous().view({batch, length, kWidth}));
  }

  nn::Linear in, out;
  torch::Tensor future;
};
TORCH_MODULE(Attention);

struct LayerImpl : nn::Module {
  LayerImpl()
      : attention_norm(
            register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        attention(register_module("attention", Attention())),
        wide_norm(register_module("wide_norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        widen(register_module("widen", nn::Linear(kWidth, 4 * kWidth))),
        narrow(register_module("narrow", nn::Linear(4 * kWidth, kWidth))) {}
  torch::Tensor forward(torch::Tensor x) {
    x = x + attention(attention_norm(x));
    return x + narrow(torch::gelu(widen(wide_norm(x))));
  }

  nn::LayerNorm attention_norm;
  Attention attention;
  nn::LayerNorm wide_norm;
  nn::Linear widen, narrow;
};
TORCH_MODULE(Layer);

struct GptImpl : nn::Module {
  explicit GptImpl(std::int64_t alphabet)
      : token(register_module("token", nn::Embedding(alphabet, kWidth))),
        position(register_module("position", nn::Embedding(kContext, kWidth))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))) {
    for (std::int64_t i = 0; i < kLayers; ++i)
      layers.push_back(register_module(fmt::format("layer{}", i), Layer()));
    const torch::NoGradGuard no_grad;
    token->weight.normal_(0, 0.02);
    position->weight.normal_(0, 0.02);
  }
  // Logits of the next character at every place.
  torch::Tensor forward(const torch::Tensor& text) {
    torch::Tensor x = token(text) + position(torch::arange(text.size(1), text.options()));
    for (Layer& layer : layers) x = layer(x);
    return torch::linear(norm(x), token->weight);
  }

  nn::Embedding token, position;
  nn::LayerNorm norm;
  std::vector<Layer> layers;
};
TORCH_MODULE(Gpt);

class GptTraining final : public Workload {
 public:
  explicit GptTraining(const WorkloadOptions& options)
      : batch_(options.batch != 0 ? options.batch : 4),
        device_(device_of(options)),
        data_(options.data_folder + "/text.txt", kContext, options.seed),
        model_(on(device_, Gpt(data_.alphabet()))),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0.1)) {}

  void load() override { loaded_ = data_.next(batch_).to(device_); }
  float train() override {
    const Batch batch = std::exchange(loaded_, {});
    optimizer_.zero_grad();
    const torch::Tensor logits = model_->forward(batch.input);
    const torch::Tensor loss =
        torch::cross_entropy_loss(logits.view({-1, data_.alphabet()}), batch.target.view({-1}));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model_->parameters(), 1.0);
    optimizer_.step();
    return loss.item<float>();
  }

  std::string description() const override {
    return fmt::format("GPT, {} layers of width {}, {} characters of context, batch {}, AdamW",
                       kLayers, kWidth, kContext, batch_);
  }

 private:
  std::int64_t batch_;
  torch::Device device_;
  CharacterBatches data_;
  Batch loaded_;
  Gpt model_;
  torch::optim::AdamW optimizer_;
};

}  // namespace

std::unique_ptr<Workload> make_gpt(const WorkloadOptions& options) {
  return std::make_unique<GptTraining>(options);
}

}  // namespace berth::bench
