#include "tests/torch_step/subjects.h"

#include <ATen/ScalarOps.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace berth::test {

namespace nn = ::torch::nn;
using berth::torch::StepProgram;
using ::torch::Tensor;

berth::torch::StepProgramOptions waiting(berth::torch::StepProgramOptions options) {
  options.plan_wait_seconds = std::numeric_limits<double>::infinity();
  setenv("BERTH_PLAN_TIME_LIMIT", "0.2", 0);  // bits are compared, not schedules
  return options;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  const Tensor left = a.detach().contiguous(), right = b.detach().contiguous();
  return left.sizes() == right.sizes() && left.dtype() == right.dtype() &&
         (left.nbytes() == 0 ||
          std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0);
}

bool same(const Outcome& a, const Outcome& b) {
  if (a.tensors.size() != b.tensors.size() || a.versions != b.versions) return false;
  for (std::size_t n = 0; n < a.tensors.size(); ++n)
    if (!same_bits(a.tensors[n], b.tensors[n])) return false;
  return true;
}

Outcome train(const Make& make, bool by_program, int steps,
              const berth::torch::StepProgramOptions& options, bool keep_gradients) {
  ::torch::manual_seed(7);
  ::torch::set_num_threads(1);
  const Subject subject = make();
  StepProgram program(waiting(options));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    Tensor loss;
    try {
      if (by_program) {
        const auto scope = program.step();
        loss = subject.body(step);
      } else {
        loss = subject.body(step);
      }
    } catch (const std::runtime_error&) {  // of the body's own
    }
    outcome.tensors.push_back(loss);
    for (const Tensor& parameter : subject.model->parameters()) {
      if (keep_gradients && parameter.grad().defined())
        outcome.tensors.push_back(parameter.grad().clone());
      outcome.versions.push_back(parameter._version());
    }
  }
  for (const Tensor& parameter : subject.model->parameters()) outcome.tensors.push_back(parameter);
  for (const Tensor& buffer : subject.model->buffers()) outcome.tensors.push_back(buffer);
  outcome.tensors.push_back(at::detail::getDefaultCPUGenerator().get_state());
  outcome.stats = program.stats();
  return outcome;
}

Subject supervised(std::shared_ptr<nn::Module> model, std::function<Tensor(Tensor)> forward,
                   std::shared_ptr<::torch::optim::Optimizer> optimizer,
                   std::vector<std::int64_t> shape, bool clip) {
  const Tensor data = ::torch::randn(shape);
  return {model, optimizer, [=](int) {
            optimizer->zero_grad();
            const Tensor loss = forward(data).pow(2).mean();
            loss.backward();
            if (clip) nn::utils::clip_grad_norm_(model->parameters(), 0.5);
            optimizer->step();
            return loss.detach();
          }};
}

namespace {

Subject make_attention() {
  nn::TransformerEncoderLayer net(
      nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).dropout(0.1));
  auto adam = std::make_shared<::torch::optim::AdamW>(net->parameters(), 1e-3);
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, adam,
                    {5, 3, 16});
}

// Fresh batches, gradients gathered over two of them, kept and zeroed in place.
Subject make_accumulating() {
  nn::Sequential net(nn::Linear(8, 16), nn::Tanh(), nn::Linear(16, 2));
  auto sgd = std::make_shared<::torch::optim::SGD>(net->parameters(), 0.1);
  return {net.ptr(), sgd, [=](int) mutable {
            sgd->zero_grad(false);
            Tensor sum;
            for (int micro = 0; micro < 2; ++micro) {
              const Tensor loss = net->forward(::torch::randn({4, 8})).abs().sum();
              loss.backward();
              sum = micro == 0 ? loss.detach() : sum + loss.detach();
            }
            sgd->step();
            return sum;
          }};
}

// Second derivatives: a penalty on the gradient.
Subject make_double_backward() {
  nn::Sequential net(nn::Linear(6, 12), nn::Sigmoid(), nn::Linear(12, 1));
  auto adam = std::make_shared<::torch::optim::Adam>(net->parameters(), 1e-2);
  const Tensor data = ::torch::randn({5, 6});
  return {net.ptr(), adam, [=](int) mutable {
            adam->zero_grad();
            const Tensor x = data.clone().requires_grad_();
            const Tensor out = net->forward(x).sum();
            const Tensor slope = ::torch::autograd::grad({out}, {x}, {}, true, true)[0];
            const Tensor loss = out + (slope.norm(2, 1) - 1).pow(2).mean();
            loss.backward();
            adam->step();
            return loss.detach();
          }};
}

// What the body reads back decides what it does next: here, how far to step.
Subject make_reading() {
  nn::Sequential net(nn::Linear(6, 12), nn::ReLU(), nn::Linear(12, 1));
  auto sgd = std::make_shared<::torch::optim::SGD>(net->parameters(), 0.1);
  const Tensor data = ::torch::randn({5, 6});
  return {net.ptr(), sgd, [=](int) mutable {
            sgd->zero_grad();
            const Tensor loss = net->forward(data).pow(2).mean();
            const double value = loss.item<float>();
            (loss * (1.0 + value)).backward();
            const auto norm = net->parameters()[0].grad().norm().item<float>();
            for (Tensor& parameter : net->parameters())
              parameter.mutable_grad().mul_(1 / (1 + norm));
            sgd->step();
            return loss.detach();
          }};
}

// As Python's operators have it: numbers that libtorch makes tensors of, behind what is read back.
Subject make_numbers() {
  nn::Sequential net(nn::Linear(6, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                     nn::Linear(64, 1));
  auto sgd = std::make_shared<::torch::optim::SGD>(net->parameters(), 0.1);
  const Tensor data = ::torch::randn({50, 6});
  const Tensor two = at::native::wrapped_scalar_tensor(2.0);  // there in every step
  return {net.ptr(), sgd, [=](int) mutable {
            sgd->zero_grad();
            const Tensor four = two * at::native::wrapped_scalar_tensor(2.0);
            const Tensor loss = net->forward(data).mul(two).mul(four).pow(2).mean();
            loss.backward();
            const auto norm = net->parameters()[0].grad().norm().item<float>();
            for (Tensor& parameter : net->parameters())
              parameter.mutable_grad().mul_(at::native::wrapped_scalar_tensor(1 / (1 + norm)));
            sgd->step();
            return loss.detach();
          }};
}

// Large enough that the roundings of small blocks do not matter.
Subject many_layers(std::int64_t rows) {
  nn::Sequential net;
  for (int n = 0; n < 12; ++n) {
    net->push_back(nn::Linear(32, 32));
    net->push_back(n % 3 == 0 ? nn::AnyModule(nn::Tanh()) : nn::AnyModule(nn::GELU()));
  }
  auto sgd = std::make_shared<::torch::optim::SGD>(net->parameters(), 0.1);
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, sgd,
                    {rows, 32});
}

// The optimizer's lists, as torch.optim has them by default on CUDA.
class Listwise final : public ::torch::optim::Optimizer {
 public:
  explicit Listwise(const std::vector<Tensor>& parameters)
      : Optimizer({parameters}, std::make_unique<::torch::optim::SGDOptions>(0.1)) {
    for (const Tensor& one : parameters) moments_.push_back(::torch::zeros_like(one));
  }
  Tensor step(LossClosure) override {
    const ::torch::NoGradGuard no_gradients;
    std::vector<Tensor> parameters = param_groups()[0].params(), gradients;
    std::vector<at::Scalar> rates;
    for (const Tensor& one : parameters) {
      gradients.push_back(one.grad());
      rates.emplace_back(0.01 * static_cast<double>(1 + rates.size() % 3) / (1 + steps_));
    }
    ++steps_;
    at::_foreach_mul_(moments_, 0.9);
    at::_foreach_add_(moments_, gradients);
    const auto updates = at::_foreach_mul(moments_, rates);
    at::_foreach_sub_(parameters, updates);
    return {};
  }

 private:
  std::vector<Tensor> moments_;
  int steps_ = 0;
};

}  // namespace

Subject make_mlp() {
  nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Dropout(0.3), nn::Linear(32, 32),
                     nn::GELU(), nn::Dropout(0.3), nn::Linear(32, 4));
  auto adam = std::make_shared<::torch::optim::AdamW>(net->parameters(), 1e-2);
  return supervised(
      net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, adam, {8, 16}, true);
}

Subject make_convolutions() {
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)),
                     nn::BatchNorm2d(8), nn::ReLU(nn::ReLUOptions(true)), nn::MaxPool2d(2),
                     nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)), nn::BatchNorm2d(8),
                     nn::ReLU(), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(8, 4));
  auto sgd = std::make_shared<::torch::optim::SGD>(
      net->parameters(), ::torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, sgd,
                    {4, 3, 12, 12});
}

Subject make_lstm() {
  nn::LSTM net(nn::LSTMOptions(12, 16).num_layers(2).batch_first(true));
  auto adam = std::make_shared<::torch::optim::Adam>(net->parameters(), 1e-2);
  return supervised(net.ptr(), [net](Tensor x) mutable { return std::get<0>(net->forward(x)); },
                    adam, {4, 6, 12});
}

Subject make_deep() { return many_layers(2048); }
// Values that are worth a copy.
Subject make_wide() { return many_layers(16384); }

// Normalized twice in a step by the same layer, so that running statistics are written in turn.
Subject make_normalized() {
  nn::BatchNorm2d norm(8);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), norm, nn::ReLU(),
                     nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)), norm, nn::ReLU(),
                     nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(8, 4));
  auto sgd = std::make_shared<::torch::optim::SGD>(net->parameters(), 0.05);
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, sgd,
                    {4, 3, 40, 40});
}

// Chains of what works element by element; some of it is held by the body, and read back in it.
Subject make_elementwise() {
  nn::Sequential net(nn::Linear(16, 64), nn::Linear(64, 4));
  auto sgd = std::make_shared<::torch::optim::SGD>(net->parameters(), 0.05);
  const Tensor data = ::torch::randn({32, 16});
  return {net.ptr(), sgd, [=](int step) mutable {
            sgd->zero_grad();
            const Tensor wide = net->children()[0]->as<nn::Linear>()->forward(data);
            const Tensor held = wide.detach() * 2;
            const Tensor more = held + 1;
            const Tensor most = (more.relu() - 0.5).abs().sqrt();
            const double scale = most.mean().item<float>();
            const Tensor loss = net->children()[1]
                                    ->as<nn::Linear>()
                                    ->forward((wide * scale).sigmoid().tanh().relu())
                                    .pow(2)
                                    .mean();
            loss.backward();
            sgd->step();
            // One step goes another way when results have taken the bytes of operands.
            return step == kSteps - 1 ? loss.detach() + held.sum() + more.sum() : loss.detach();
          }};
}

Subject make_listwise() {
  nn::Sequential net;
  for (int n = 0; n < 8; ++n) net->push_back(nn::Linear(64, 64));
  auto lists = std::make_shared<Listwise>(net->parameters());
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, lists, {4, 64});
}

const std::vector<Named>& subjects() {
  static const std::vector<Named> all = {
      {"MLP, dropout, AdamW, clipped", make_mlp},
      {"convolutions, batch norm, SGD", make_convolutions},
      {"LSTM, Adam", make_lstm},
      {"attention, AdamW", make_attention},
      {"two micro-batches, gradients kept", make_accumulating},
      {"second derivatives", make_double_backward},
      {"values read back", make_reading},
      {"numbers behind a value read back", make_numbers},
      {"one batch norm twice", make_normalized},
      {"element by element", make_elementwise},
      {"an optimizer's lists", make_listwise},
  };
  return all;
}

}  // namespace berth::test
