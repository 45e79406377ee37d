// Two models of other habits: an LSTM (hundreds of small requests a step, made by a loop over time)
// and a plain network of full layers (a handful of large ones).
#include "bench/train/batches.h"
#include "bench/train/workload.h"

#include <fmt/format.h>

namespace berth::bench {

namespace {

namespace nn = torch::nn;

struct LstmNetImpl : nn::Module {
  LstmNetImpl(std::int64_t alphabet, std::int64_t width)
      : token(register_module("token", nn::Embedding(alphabet, width))),
        lstm(register_module(
            "lstm", nn::LSTM(nn::LSTMOptions(width, width).num_layers(2).batch_first(true)))),
        out(register_module("out", nn::Linear(width, alphabet))) {}
  torch::Tensor forward(const torch::Tensor& text) { return out(std::get<0>(lstm(token(text)))); }

  nn::Embedding token;
  nn::LSTM lstm;
  nn::Linear out;
};
TORCH_MODULE(LstmNet);

class LstmTraining final : public Workload {
 public:
  explicit LstmTraining(const WorkloadOptions& options)
      : batch_(options.batch != 0 ? options.batch : 32),
        device_(device_of(options)),
        data_(options.data_folder + "/text.txt", kContext, options.seed),
        model_(on(device_, LstmNet(data_.alphabet(), kWidth))),
        optimizer_(model_->parameters(), torch::optim::AdamOptions(2e-3)) {}

  void load() override { loaded_ = data_.next(batch_).to(device_); }
  float train() override {
    const Batch batch = std::exchange(loaded_, {});
    optimizer_.zero_grad();
    const torch::Tensor logits = model_->forward(batch.input);
    const torch::Tensor loss =
        torch::cross_entropy_loss(logits.view({-1, data_.alphabet()}), batch.target.view({-1}));
    loss.backward();
    optimizer_.step();
    return loss.item<float>();
  }

  std::string description() const override {
    return fmt::format("LSTM, 2 layers of width {}, {} characters of context, batch {}, Adam",
                       kWidth, kContext, batch_);
  }

 private:
  static constexpr std::int64_t kContext = 64, kWidth = 256;
  std::int64_t batch_;
  torch::Device device_;
  CharacterBatches data_;
  Batch loaded_;
  LstmNet model_;
  torch::optim::Adam optimizer_;
};

class MlpTraining final : public Workload {
 public:
  explicit MlpTraining(const WorkloadOptions& options)
      : batch_(options.batch != 0 ? options.batch : 512),
        device_(device_of(options)),
        data_(options.data_folder + "/digits.csv", 1, Digits::kSide, options.seed),
        net_(nn::Flatten(), nn::Linear(Digits::kSide * Digits::kSide, kWidth), nn::ReLU(),
             nn::Dropout(0.1), nn::Linear(kWidth, kWidth), nn::ReLU(), nn::Dropout(0.1),
             nn::Linear(kWidth, 10)),
        optimizer_(on(device_, net_)->parameters(), torch::optim::AdamOptions(1e-3)) {}

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
    return fmt::format("MLP, 2 layers of width {}, digits, batch {}, dropout, Adam", kWidth,
                       batch_);
  }

 private:
  static constexpr std::int64_t kWidth = 1024;
  std::int64_t batch_;
  torch::Device device_;
  DigitBatches data_;
  Batch loaded_;
  nn::Sequential net_;
  torch::optim::Adam optimizer_;
};

}  // namespace

std::unique_ptr<Workload> make_lstm(const WorkloadOptions& options) {
  return std::make_unique<LstmTraining>(options);
}

std::unique_ptr<Workload> make_mlp(const WorkloadOptions& options) {
  return std::make_unique<MlpTraining>(options);
}

}  // namespace berth::bench
