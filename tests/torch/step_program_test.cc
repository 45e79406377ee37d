// A step program trains to the bits that the step as written trains to, whatever the step does.
#include "csrc/graph/edges.h"
#include "csrc/graph/schedule.h"
#include "csrc/torch/step/tensors.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

#include <berth/graph.h>
#include <berth/referee.h>
#include <berth/schedule.h>
#include <berth/step_program.h>

#include <ATen/ScalarOps.h>
#include <sys/wait.h>
#include <torch/library.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

namespace nn = torch::nn;
using berth::torch::StepProgram;
using berth::torch::StepProgramStats;
using torch::Tensor;

// As those, each plan waited for, so that tests know which step it runs.
berth::torch::StepProgramOptions waiting(berth::torch::StepProgramOptions options = {}) {
  options.plan_wait_seconds = std::numeric_limits<double>::infinity();
  return options;
}

// Everything that a program can see after training.
struct Outcome {
  std::vector<Tensor> tensors;
  std::vector<std::uint32_t> versions;
  StepProgramStats stats;
};

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

// A model, its optimizer, and what one step does. The step returns its loss.
struct Subject {
  std::shared_ptr<nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::function<Tensor(int step)> body;
};
using Make = std::function<Subject()>;

constexpr int kSteps = 8;

Outcome train(const Make& make, bool by_program, int steps = kSteps,
              const berth::torch::StepProgramOptions& options = {}, bool keep_gradients = true) {
  torch::manual_seed(7);
  torch::set_num_threads(1);
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

// Plain supervised learning with the optimizer on random data, drawn outside of the model.
Subject supervised(std::shared_ptr<nn::Module> model, std::function<Tensor(Tensor)> forward,
                   std::shared_ptr<torch::optim::Optimizer> optimizer,
                   std::vector<std::int64_t> shape, bool clip = false) {
  const Tensor data = torch::randn(shape);
  return {model, optimizer, [=](int) {
            optimizer->zero_grad();
            const Tensor loss = forward(data).pow(2).mean();
            loss.backward();
            if (clip) nn::utils::clip_grad_norm_(model->parameters(), 0.5);
            optimizer->step();
            return loss.detach();
          }};
}

Subject make_mlp() {
  nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Dropout(0.3), nn::Linear(32, 32),
                     nn::GELU(), nn::Dropout(0.3), nn::Linear(32, 4));
  auto adam = std::make_shared<torch::optim::AdamW>(net->parameters(), 1e-2);
  return supervised(
      net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, adam, {8, 16}, true);
}

Subject make_convolutions() {
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)),
                     nn::BatchNorm2d(8), nn::ReLU(nn::ReLUOptions(true)), nn::MaxPool2d(2),
                     nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)), nn::BatchNorm2d(8),
                     nn::ReLU(), nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(8, 4));
  auto sgd = std::make_shared<torch::optim::SGD>(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, sgd,
                    {4, 3, 12, 12});
}

Subject make_lstm() {
  nn::LSTM net(nn::LSTMOptions(12, 16).num_layers(2).batch_first(true));
  auto adam = std::make_shared<torch::optim::Adam>(net->parameters(), 1e-2);
  return supervised(net.ptr(), [net](Tensor x) mutable { return std::get<0>(net->forward(x)); },
                    adam, {4, 6, 12});
}

Subject make_attention() {
  nn::TransformerEncoderLayer net(
      nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).dropout(0.1));
  auto adam = std::make_shared<torch::optim::AdamW>(net->parameters(), 1e-3);
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, adam,
                    {5, 3, 16});
}

// Fresh batches, gradients gathered over two of them, kept and zeroed in place.
Subject make_accumulating() {
  nn::Sequential net(nn::Linear(8, 16), nn::Tanh(), nn::Linear(16, 2));
  auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  return {net.ptr(), sgd, [=](int) mutable {
            sgd->zero_grad(false);
            Tensor sum;
            for (int micro = 0; micro < 2; ++micro) {
              const Tensor loss = net->forward(torch::randn({4, 8})).abs().sum();
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
  auto adam = std::make_shared<torch::optim::Adam>(net->parameters(), 1e-2);
  const Tensor data = torch::randn({5, 6});
  return {net.ptr(), adam, [=](int) mutable {
            adam->zero_grad();
            const Tensor x = data.clone().requires_grad_();
            const Tensor out = net->forward(x).sum();
            const Tensor slope = torch::autograd::grad({out}, {x}, {}, true, true)[0];
            const Tensor loss = out + (slope.norm(2, 1) - 1).pow(2).mean();
            loss.backward();
            adam->step();
            return loss.detach();
          }};
}

// What the body reads back decides what it does next: here, how far to step.
Subject make_reading() {
  nn::Sequential net(nn::Linear(6, 12), nn::ReLU(), nn::Linear(12, 1));
  auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  const Tensor data = torch::randn({5, 6});
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
  auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  const Tensor data = torch::randn({50, 6});
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

// What libtorch's CPU allocator hands out: live bytes and their peak.
class Memory final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* block, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    const std::lock_guard lock(mutex_);
    if (bytes > 0) {
      blocks_[block] = bytes;
      live += bytes;
      peak = std::max(peak, live);
    } else if (const auto found = blocks_.find(block); found != blocks_.end()) {
      live -= found->second;
      blocks_.erase(found);
    }
  }
  void reportOutOfMemory(std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  std::int64_t live = 0, peak = 0;

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> blocks_;
};

// libtorch's CPU allocator, but for one allocation that fails.
class OneFailure final : public c10::Allocator {
 public:
  OneFailure() : inner_(c10::GetAllocator(c10::kCPU)) { c10::SetAllocator(c10::kCPU, this, 255); }
  ~OneFailure() override { c10::SetAllocator(c10::kCPU, inner_, 255); }
  OneFailure(const OneFailure&) = delete;
  OneFailure& operator=(const OneFailure&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    // Not the state of the generator, which is copied around a schedule, and no number that an
    // operator in place makes a tensor of: what that has written nobody knows.
    const bool counts = bytes > sizeof(double) && bytes != state_bytes_ && left_ > 0;
    const bool fails = counts && --left_ == 0;
    TORCH_CHECK_WITH(OutOfMemoryError, !fails, "no memory left");
    return inner_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void fail(int after) { left_ = after; }
  [[nodiscard]] bool has_failed() const { return left_ == 0; }

 private:
  c10::Allocator* inner_;
  const std::size_t state_bytes_ = at::detail::getDefaultCPUGenerator().get_state().nbytes();
  std::atomic<int> left_ = 0;
};

// Large enough that the roundings of small blocks do not matter.
Subject many_layers(std::int64_t rows) {
  nn::Sequential net;
  for (int n = 0; n < 12; ++n) {
    net->push_back(nn::Linear(32, 32));
    net->push_back(n % 3 == 0 ? nn::AnyModule(nn::Tanh()) : nn::AnyModule(nn::GELU()));
  }
  auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, sgd,
                    {rows, 32});
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
  auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.05);
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, sgd,
                    {4, 3, 40, 40});
}

// Chains of what works element by element; some of it is held by the body, and read back in it.
Subject make_elementwise() {
  nn::Sequential net(nn::Linear(16, 64), nn::Linear(64, 4));
  auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.05);
  const Tensor data = torch::randn({32, 16});
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

// The optimizer's lists, as torch.optim has them by default on CUDA.
class Listwise final : public torch::optim::Optimizer {
 public:
  explicit Listwise(const std::vector<Tensor>& parameters)
      : Optimizer({parameters}, std::make_unique<torch::optim::SGDOptions>(0.1)) {
    for (const Tensor& one : parameters) moments_.push_back(torch::zeros_like(one));
  }
  Tensor step(LossClosure) override {
    const torch::NoGradGuard no_gradients;
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
Subject make_listwise() {
  nn::Sequential net;
  for (int n = 0; n < 8; ++n) net->push_back(nn::Linear(64, 64));
  auto lists = std::make_shared<Listwise>(net->parameters());
  return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, lists, {4, 64});
}

struct Named {
  const char* name;
  Make make;
};
const std::vector<Named> kSubjects = {
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

}  // namespace

TEST_CASE("A scheduled step leaves the bits that the step as written leaves", "[step]") {
  for (const Named& subject : kSubjects) {
    DYNAMIC_SECTION(subject.name) {
      const Outcome plain = train(subject.make, false);
      for (const bool second_thread : {false, true}) {
        const Outcome scheduled =
            train(subject.make, true, kSteps, {.second_thread = second_thread});
        CAPTURE(second_thread, scheduled.stats.last_refusal, scheduled.stats.last_divergence);
        CHECK(scheduled.stats.refused == 0);
        CHECK(scheduled.stats.diverged <= 1);  // Adam's state is made in the first step
        REQUIRE(scheduled.stats.scheduled >= kSteps - 4);
        REQUIRE(same(plain, scheduled));
        if (!second_thread) REQUIRE(scheduled.stats.ran_beside == 0);
      }
    }
  }
}

TEST_CASE("A schedule runs beside the body up to what cannot be taken back", "[step][beside]") {
  // Convolutions and batch norms, whose statistics and counts are written later; and long chains.
  for (const Make& make : {Make(make_convolutions), Make(make_normalized), Make(make_deep)}) {
    const Outcome plain = train(make, false);
    for (const char* engine : {"release", "order"}) {
      std::uint64_t beside = 0;
      // The body of the last step waits for it, on a busy machine longer.
      for (int ms = 5; ms < 2000 && beside <= 5; ms *= 4) {
        const auto waiting = [&] {
          Subject subject = make();
          subject.body = [ms, inner = subject.body](int step) {
            const Tensor loss = inner(step);
            if (step == kSteps - 1) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
            return loss;
          };
          return subject;
        };
        const Outcome run = train(waiting, true, kSteps, {.engine = engine, .second_thread = true});
        beside = run.stats.ran_beside;
        REQUIRE(same(plain, run));
      }
      CAPTURE(engine);
      REQUIRE(beside > 5);
    }
  }
}

TEST_CASE("A schedule waits beside the body for numbers that it has not said", "[step][beside]") {
  const auto make = [] {
    nn::Sequential net(nn::Linear(4, 4));
    auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    const Tensor data = -torch::rand({4});
    return Subject{net.ptr(), sgd, [=](int step) {
                     const torch::NoGradGuard no_grad;
                     Tensor x = data;
                     for (int n = 0; n < 40; ++n) x = (x * 2).sub_(x);
                     // Long enough for what has been said to run, and for more, if it were run.
                     std::this_thread::sleep_for(std::chrono::milliseconds(50));
                     x = torch::leaky_relu(x, 0.01 * (step + 1));
                     for (int n = 0; n < 40; ++n) x = (x * 2).sub_(x);
                     return x.sum();
                   }};
  };
  const Outcome plain = train(make, false);
  const Outcome beside = train(make, true, kSteps, {.engine = "release", .second_thread = true});
  REQUIRE(beside.stats.scheduled >= kSteps - 3);
  REQUIRE(same(plain, beside));
}

TEST_CASE(
    "A step that goes another way runs as written and is a program of its own when it comes again",
    "[step]") {
  const auto make = [] {
    Subject subject = make_mlp();
    const auto net = subject.model;
    const auto train_step = subject.body;
    const Tensor data = torch::randn({3, 16});
    subject.body = [=](int step) {
      if (step % 3 != 2) return train_step(step);
      const torch::NoGradGuard no_grad;  // an evaluation
      return std::dynamic_pointer_cast<nn::SequentialImpl>(net)->forward(data).sum();
    };
    return subject;
  };
  const Outcome plain = train(make, false, 18), scheduled = train(make, true, 18);
  CAPTURE(scheduled.stats.last_divergence);
  REQUIRE(scheduled.stats.programs == 2);
  REQUIRE(scheduled.stats.diverged > 0);
  REQUIRE(scheduled.stats.scheduled >= 10);
  REQUIRE(same(plain, scheduled));
}

TEST_CASE("A step may go another way at every operator", "[step]") {
  // Layer `at` of ten gets another activation, once the program is there.
  for (int at = 0; at < 10; ++at) {
    const auto make = [at] {
      auto layers = std::make_shared<nn::SequentialImpl>();
      for (int n = 0; n < 10; ++n) layers->push_back(nn::Linear(8, 8));
      auto adam = std::make_shared<torch::optim::Adam>(layers->parameters(), 1e-2);
      const Tensor data = torch::randn({4, 8});
      return Subject{layers, adam, [=](int step) {
                       adam->zero_grad();
                       Tensor x = data;
                       for (int n = 0; n < 10; ++n) {
                         x = layers->ptr<nn::LinearImpl>(static_cast<std::size_t>(n))->forward(x);
                         x = step == 5 && n == at ? x.sigmoid() : x.tanh();
                       }
                       const Tensor loss = x.sum();
                       loss.backward();
                       adam->step();
                       return loss.detach();
                     }};
    };
    const Outcome plain = train(make, false);
    for (const bool second_thread : {false, true}) {
      const Outcome scheduled = train(make, true, kSteps, {.second_thread = second_thread});
      CAPTURE(at, second_thread, scheduled.stats.last_divergence);
      REQUIRE(scheduled.stats.diverged >= 1);
      REQUIRE(scheduled.stats.scheduled >= 2);
      REQUIRE(same(plain, scheduled));
    }
  }
}

TEST_CASE("A step that fails leaves what it would leave without a program", "[step]") {
  for (int at = 0; at < 12; ++at) {
    const auto make = [at] {
      nn::Sequential net(nn::Linear(8, 8), nn::BatchNorm1d(8), nn::Linear(8, 2));
      auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(),
                                                     torch::optim::SGDOptions(0.1).momentum(0.9));
      const Tensor data = torch::randn({4, 8});
      return Subject{net.ptr(), sgd, [=](int step) mutable {
                       int point = 0;
                       const auto pass = [&] {
                         if (step == 5 && point++ == at) throw std::runtime_error("the body's own");
                       };
                       pass();
                       sgd->zero_grad();
                       pass();
                       Tensor x = net->forward(data);
                       pass();
                       const Tensor noise = torch::rand_like(x);
                       pass();
                       const Tensor loss = (x * noise).sum();
                       pass();
                       loss.backward();
                       pass();
                       net->parameters()[0].mutable_grad().mul_(2);
                       pass();
                       sgd->step();
                       pass();
                       const Tensor after = loss.detach() * 3;
                       pass();
                       return after;
                     }};
    };
    const Outcome plain = train(make, false);
    for (const bool second_thread : {false, true}) {
      const Outcome scheduled = train(make, true, kSteps, {.second_thread = second_thread});
      CAPTURE(at, second_thread);
      REQUIRE(scheduled.stats.scheduled >= 3);
      REQUIRE(same(plain, scheduled));
    }
  }
}

TEST_CASE("Numbers that change from step to step are taken as they come", "[step]") {
  const auto make = [] {
    Subject subject = make_convolutions();
    const auto inner = subject.body;
    const auto sgd = subject.optimizer;
    subject.body = [=](int step) {
      for (auto& group : sgd->param_groups())
        static_cast<torch::optim::SGDOptions&>(group.options()).lr(0.1 / (step + 1));
      return inner(step);
    };
    return subject;
  };
  const Outcome plain = train(make, false), scheduled = train(make, true);
  REQUIRE(scheduled.stats.diverged <= 1);
  REQUIRE(scheduled.stats.scheduled >= kSteps - 4);
  REQUIRE(same(plain, scheduled));
}

TEST_CASE("What the body fills itself is taken as it comes", "[step]") {
  const auto make = [] {
    nn::Linear net(3, 3);
    auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    return Subject{net.ptr(), sgd, [=](int step) mutable {
                     sgd->zero_grad();
                     const Tensor data = torch::tensor({1.0F, 2.0F, static_cast<float>(step)});
                     const Tensor unused = torch::tensor({step});
                     Tensor room = torch::empty({3});
                     room.copy_(data * 2);
                     const Tensor loss = (net->forward(data) + room).sum();
                     loss.backward();
                     sgd->step();
                     return loss.detach() + unused;
                   }};
  };
  const Outcome plain = train(make, false), scheduled = train(make, true);
  CAPTURE(scheduled.stats.last_divergence);
  REQUIRE(scheduled.stats.diverged == 0);
  REQUIRE(scheduled.stats.scheduled >= kSteps - 4);
  REQUIRE(same(plain, scheduled));
}

TEST_CASE("Room may be filled by the body in one step and by an operator in the next", "[step]") {
  const auto make = [] {
    nn::Linear net(3, 3);
    auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    const Tensor data = torch::randn({2, 3});
    return Subject{net.ptr(), sgd, [=](int step) mutable {
                     sgd->zero_grad();
                     Tensor room = torch::empty({1});
                     if (step % 2 == 0) *room.mutable_data_ptr<float>() = static_cast<float>(step);
                     const Tensor out = net->forward(data).sum();
                     if (step % 2 == 1) room.copy_(out.detach());
                     const Tensor loss = (out * room).sum();
                     loss.backward();
                     sgd->step();
                     return loss.detach();
                   }};
  };
  const Outcome plain = train(make, false, 14), scheduled = train(make, true, 14);
  CAPTURE(scheduled.stats.last_divergence, scheduled.stats.last_refusal);
  REQUIRE(scheduled.stats.programs == 2);
  REQUIRE(scheduled.stats.scheduled >= 6);
  REQUIRE(same(plain, scheduled));
}

TEST_CASE("A generator that the body sets is drawn from as it is set", "[step]") {
  for (const bool between : {false, true}) {
    const auto make = [between] {
      nn::Linear net(3, 3);
      auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
      return Subject{net.ptr(), sgd, [=](int step) mutable {
                       sgd->zero_grad();
                       const Tensor noise = torch::rand({4, 3});
                       // From step 5 on the body seeds: between two draws, or after them.
                       if (between && step >= 5) torch::manual_seed(step);
                       const Tensor more = torch::randn({4, 3});
                       const Tensor loss = (net->forward(noise) * more).sum();
                       loss.backward();
                       sgd->step();
                       if (!between && step >= 5) torch::manual_seed(step);
                       return loss.detach();
                     }};
    };
    const Outcome plain = train(make, false, 14), scheduled = train(make, true, 14);
    CAPTURE(between, scheduled.stats.last_divergence, scheduled.stats.last_refusal);
    // Two steps are recorded, and where it begins to seed two more.
    REQUIRE(scheduled.stats.refused == 0);
    REQUIRE(scheduled.stats.scheduled == (between ? 10 : 12));
    REQUIRE(scheduled.stats.programs == 1);
    REQUIRE(same(plain, scheduled));
  }
}

TEST_CASE("What a step keeps for later is there", "[step]") {
  // The step's outputs of the last three steps are held, and more than before from step 5 on.
  const auto make = [] {
    nn::Linear net(6, 6);
    auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    auto kept = std::make_shared<std::vector<Tensor>>();
    const Tensor data = torch::randn({4, 6});
    return Subject{net.ptr(), sgd, [=](int step) mutable {
                     sgd->zero_grad();
                     const Tensor hidden = net->forward(data), out = hidden.relu();
                     out.sum().backward();
                     sgd->step();
                     if (step >= 5) kept->push_back(hidden.detach());
                     kept->push_back(out.detach());
                     if (kept->size() > 6) kept->erase(kept->begin());
                     Tensor sum = torch::zeros({});
                     for (const Tensor& one : *kept) sum = sum + one.sum();
                     return step == 7 ? torch::cat(*kept) : sum;
                   }};
  };
  REQUIRE(same(train(make, false), train(make, true)));
}

TEST_CASE("Bytes that are asked for behind libtorch's operators are refused in words", "[step]") {
  nn::Linear net(4, 4);
  const Tensor data = torch::randn({2, 4});
  StepProgram program(waiting());
  const auto step = [&](bool peek) {
    const auto scope = program.step();
    const Tensor out = net->forward(data);
    if (peek) static_cast<void>(out.const_data_ptr<float>());
    return out;
  };
  for (int n = 0; n < 4; ++n) step(false);
  REQUIRE(program.stats().scheduled >= 1);
  REQUIRE_THROWS_WITH(step(true), Catch::Contains("behind libtorch's operators"));
  const Tensor expected = net->forward(data);
  REQUIRE(same_bits(step(false), expected));
}

TEST_CASE("A body that says so has the bytes that the step as written has", "[step]") {
  const auto run = [](bool scheduled) {
    torch::manual_seed(3);
    nn::Linear net(4, 4);
    const Tensor data = torch::randn({2, 4});
    torch::optim::SGD sgd(net->parameters(), 0.1);
    StepProgram program(waiting());
    std::vector<float> seen;
    std::vector<Tensor> kept;
    for (int n = 0; n < kSteps; ++n) {
      if (scheduled) program.begin();
      sgd.zero_grad();
      const Tensor out = net->forward(data);
      const Tensor loss = out.pow(2).mean();
      berth::torch::read_bytes(loss);
      seen.push_back(*loss.const_data_ptr<float>());
      // What the body writes later operators read, and what they write it sees.
      Tensor shared = out.detach() * 2;
      berth::torch::share_bytes(shared);
      shared.data_ptr<float>()[0] += 1;
      const Tensor more = shared + 1;
      shared.mul_(3);
      loss.backward();
      sgd.step();
      // A parameter is another one after the update.
      berth::torch::read_bytes(net->weight);
      seen.push_back(net->weight.const_data_ptr<float>()[5]);
      if (scheduled) program.end();
      seen.push_back(shared.const_data_ptr<float>()[0]);
      kept.push_back(more);
    }
    if (scheduled) REQUIRE(program.stats().scheduled >= kSteps - 3);
    for (const Tensor& one : kept) seen.push_back(one.const_data_ptr<float>()[0]);
    return seen;
  };
  REQUIRE(run(true) == run(false));
}

TEST_CASE("Every operator with a kernel of its own is seen, or is a view", "[step]") {
  StepProgram program(waiting());
  { const auto scope = program.step(); }  // registers
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<std::string> unseen;
  std::size_t seen = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.name.starts_with("prim::") || name.name.starts_with("profiler::")) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))
      continue;
    const auto& returns = op->schema().returns();
    const bool view = op->hasTag(at::Tag::inplace_view) ||
                      (!returns.empty() && std::ranges::all_of(returns, [](const auto& one) {
                        return one.alias_info() != nullptr && !one.alias_info()->isWrite();
                      }));
    if (op->hasKernelForDispatchKey(c10::DispatchKey::ZeroTensor))
      ++seen;
    else if (!view)
      unseen.push_back(c10::toString(name));
  }
  REQUIRE(seen > 2000);
  REQUIRE(unseen == std::vector<std::string>{});
}

TEST_CASE("A step inside of a step runs as it is", "[step]") {
  nn::Linear net(4, 4);
  const Tensor data = torch::randn({2, 4}), expected = net->forward(data);
  StepProgram outer(waiting()), inner(waiting());
  for (int n = 0; n < 5; ++n) {
    Tensor out;
    {
      const auto one = outer.step();
      const auto two = inner.step();
      out = net->forward(data);
    }
    REQUIRE(same_bits(out, expected));
  }
  REQUIRE(outer.stats().scheduled >= 1);
  REQUIRE(inner.stats().scheduled == 0);
}

TEST_CASE("A step program takes the memory that it says, and less where it is to", "[step]") {
  struct Result {
    Outcome outcome;
    std::int64_t peak = 0;
  };
  const auto measured = [](bool by_program, std::uint64_t budget) {
    Result result;
    const auto memory = std::make_shared<Memory>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
    const auto make = [&] {
      Subject subject = make_deep();
      const auto inner = subject.body;
      subject.body = [=](int step) {
        if (step == kSteps - 1) memory->peak = memory->live;
        return inner(step);
      };
      return subject;
    };
    result.outcome = train(make, by_program, kSteps, {.memory_budget = budget}, false);
    result.peak = memory->peak;
    return result;
  };
  const Result plain = measured(false, 0), free = measured(true, 0);
  const StepProgramStats& stats = free.outcome.stats;
  REQUIRE(free.peak <= plain.peak);
  // Numbers and losses of a few bytes are rounded up in the prediction, and those of earlier steps
  // are no part of it.
  const auto slack = static_cast<double>(64 * stats.operators);
  REQUIRE(static_cast<double>(free.peak) ==
          Approx(static_cast<double>(stats.predicted_peak)).margin(slack));
  const std::uint64_t share = (stats.predicted_peak - stats.resident) / 2;
  const Result half = measured(true, stats.resident + share);
  CAPTURE(half.outcome.stats.budget_not_met, half.outcome.stats.predicted_peak);
  REQUIRE(half.outcome.stats.budget_not_met.empty());
  REQUIRE(half.outcome.stats.recomputed > 0);
  REQUIRE(half.peak < free.peak * 3 / 4);
  REQUIRE(static_cast<double>(half.peak) ==
          Approx(static_cast<double>(half.outcome.stats.predicted_peak)).margin(slack));
  REQUIRE(same(plain.outcome, half.outcome));
  const Result none = measured(true, 1);
  REQUIRE_FALSE(none.outcome.stats.budget_not_met.empty());
  REQUIRE(same(plain.outcome, none.outcome));
}

TEST_CASE("What a step takes is what its program says, to the byte", "[step][memory]") {
  for (const Named& subject : kSubjects) {
    DYNAMIC_SECTION(subject.name) {
      for (berth::torch::StepProgramOptions options :
           {berth::torch::StepProgramOptions{.engine = "release"},
            berth::torch::StepProgramOptions{},
            berth::torch::StepProgramOptions{.memory_share = 0.9},
            berth::torch::StepProgramOptions{
                .engine = "copies", .memory_share = 0.9, .copy_rate = 1'000'000'000'000}}) {
        torch::manual_seed(7);
        torch::set_num_threads(1);
        const Subject one = subject.make();
        const auto memory = std::make_shared<Memory>();
        const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
        options.second_thread = false;  // some bytes go later there
        StepProgram program(waiting(options));
        for (int step = 0; step < kSteps - 1; ++step) {  // the last one may go another way
          one.optimizer->zero_grad();                    // gradients of the step before go here
          const std::int64_t before = memory->peak = memory->live;
          const std::uint64_t scheduled = program.stats().scheduled;
          {
            const auto scope = program.step();
            one.body(step);
          }
          const StepProgramStats stats = program.stats();
          if (stats.scheduled == scheduled) continue;
          CAPTURE(options.engine, options.memory_share, step, stats.recomputed,
                  stats.offloaded_bytes);
          REQUIRE(memory->peak - before ==
                  static_cast<std::int64_t>(stats.predicted_peak - stats.resident));
        }
        REQUIRE(program.stats().scheduled >= kSteps - 5);
      }
    }
  }
}

TEST_CASE("A budget changes no bit", "[step]") {
  for (const Named& subject : kSubjects) {
    DYNAMIC_SECTION(subject.name) {
      const Outcome plain = train(subject.make, false), free = train(subject.make, true);
      const std::uint64_t activations = free.stats.predicted_peak - free.stats.resident;
      for (const double share : {0.9, 0.75, 0.6}) {
        const auto budget = free.stats.resident +
                            static_cast<std::uint64_t>(share * static_cast<double>(activations));
        const Outcome tight = train(subject.make, true, kSteps, {.memory_budget = budget});
        CAPTURE(share, tight.stats.budget_not_met, tight.stats.recomputed,
                tight.stats.last_divergence);
        REQUIRE(tight.stats.scheduled >= kSteps - 4);
        REQUIRE(same(plain, tight));
      }
    }
  }
}

TEST_CASE("Batch norms run again, and their statistics are written once", "[step]") {
  // What comes before each takes many times as long, so that the norms are what is run again.
  const auto make = [] {
    nn::Sequential net;
    for (int n = 0; n < 4; ++n) {
      net->push_back(nn::Linear(256, 256));
      net->push_back(nn::BatchNorm1d(256));
    }
    net->push_back(nn::Linear(256, 4));
    auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.05);
    return supervised(net.ptr(), [net](Tensor x) mutable { return net->forward(x); }, sgd,
                      {256, 256});
  };
  const Outcome plain = train(make, false);
  const Outcome tight = train(make, true, kSteps, {.memory_share = 0.9});
  CAPTURE(tight.stats.budget_not_met);
  REQUIRE(tight.stats.budget_not_met.empty());
  REQUIRE(tight.stats.recomputed > 0);
  REQUIRE(same(plain, tight));
}

// Two operators that do the same, one of which takes its time.
enum class Slow : std::uint8_t { kFirst, kSecond };
Slow slow = Slow::kFirst;
int calls_of_first = 0, calls_of_second = 0;

Tensor doubled(const Tensor& x, bool is_slow) {
  if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return x + x;
}
Tensor first(const Tensor& x) {
  ++calls_of_first;
  return doubled(x, slow == Slow::kFirst);
}
Tensor second(const Tensor& x) {
  ++calls_of_second;
  return doubled(x, slow == Slow::kSecond);
}

TORCH_LIBRARY_FRAGMENT(berth_test, library) {
  library.def("first(Tensor x) -> Tensor");
  library.def("second(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(berth_test, CPU, library) {
  library.impl("first", first);
  library.impl("second", second);
}

TEST_CASE("A step is planned again by what its operators take where the schedule runs them",
          "[step]") {
  berth::torch::pure("berth_test::first");
  berth::torch::pure("berth_test::second");
  constexpr int kRecorded = 2, kMeasured = 3;
  // Either product could be made again; the slow one is kept. Which that is changes once the step
  // was recorded.
  const auto make = [] {
    auto left = nn::Linear(4096, 1), right = nn::Linear(4096, 1);
    nn::ModuleList model(left, right);
    auto sgd = std::make_shared<torch::optim::SGD>(model->parameters(), 1e-3);
    const Tensor data = torch::randn({256, 4096});
    return Subject{model.ptr(), sgd, [=](int step) mutable {
                     slow = step < kRecorded ? Slow::kFirst : Slow::kSecond;
                     calls_of_first = calls_of_second = 0;
                     sgd->zero_grad();
                     const auto call = [&](const char* name) {
                       return c10::Dispatcher::singleton()
                           .findSchemaOrThrow(name, "")
                           .typed<Tensor(const Tensor&)>()
                           .call(data);
                     };
                     const Tensor a = left->forward(call("berth_test::first"));
                     const Tensor b = right->forward(call("berth_test::second"));
                     const Tensor loss = (data * a * b).sum();
                     loss.backward();
                     sgd->step();
                     return loss.detach();
                   }};
  };
  const berth::torch::StepProgramOptions tight{.memory_share = 0.85};
  const Outcome before = train(make, true, kRecorded + kMeasured, tight);
  CAPTURE(before.stats.to_json());
  REQUIRE(before.stats.budget_not_met.empty());
  REQUIRE((calls_of_first == 1 && calls_of_second == 2));
  // When the last of them had ended.
  REQUIRE((before.stats.made == 1 && before.stats.refined == 1));
  const Outcome after = train(make, true, kRecorded + kMeasured + 1, tight);
  CAPTURE(after.stats.to_json());
  REQUIRE((calls_of_first == 2 && calls_of_second == 1));
  REQUIRE((after.stats.made == 1 && after.stats.refined == 1));
  REQUIRE(same(train(make, false, kRecorded + kMeasured + 1), after));
}

TEST_CASE("Updates by lists come as early as gradients are there", "[step]") {
  const Outcome plain = train(make_listwise, false, kSteps, {}, false);
  const Outcome release = train(make_listwise, true, kSteps, {.engine = "release"}, false);
  const Outcome early = train(make_listwise, true, kSteps, {}, false);
  // Gradients of eight layers are 133 KiB; those of one or two are there at a time.
  CAPTURE(early.stats.predicted_peak, release.stats.predicted_peak);
  REQUIRE(release.stats.predicted_peak - early.stats.predicted_peak > 64 * 1024);
  REQUIRE(same(plain, early));
  REQUIRE(same(plain, release));
}

TEST_CASE("Results take the bytes of operands that nobody needs any more", "[step]") {
  const auto make = [] {
    auto net = nn::Linear(64, 1024);
    auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
    const Tensor data = torch::randn({256, 64});
    return Subject{net.ptr(), sgd, [=](int) mutable {
                     sgd->zero_grad();
                     const torch::NoGradGuard no_gradients;
                     return net->forward(data).relu().div(2).add(1).sqrt().sum();
                   }};
  };
  const Outcome plain = train(make, false),
                release = train(make, true, kSteps, {.engine = "release"}),
                twins = train(make, true);
  REQUIRE(release.stats.predicted_peak / 1024 - twins.stats.predicted_peak / 1024 == 1024);
  REQUIRE(same(plain, release));
  REQUIRE(same(plain, twins));
}

TEST_CASE("Operators in place have the bits of those that make room", "[step][twins]") {
  using berth::torch::step::facts_of;
  const auto argument_of = [](const c10::Argument& argument, at::ScalarType type) -> c10::IValue {
    if (argument.type()->kind() == c10::TypeKind::TensorType) {
      const Tensor wide = torch::rand({67, 5}, at::kDouble) * 3;
      return type == at::kBool ? (wide > 1).contiguous() : wide.to(type);
    }
    if (argument.default_value()) return *argument.default_value();
    switch (argument.type()->kind()) {
      case c10::TypeKind::NumberType:
      case c10::TypeKind::FloatType:
        return c10::isIntegralType(type, true) ? c10::IValue(2) : c10::IValue(0.35355339059327373);
      case c10::TypeKind::IntType:
        return 1;
      case c10::TypeKind::BoolType:
        return false;
      default:
        return {};
    }
  };
  const torch::NoGradGuard no_gradients;
  std::vector<std::string> different;
  std::size_t compared = 0;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasSchema()) continue;
    const auto& facts = facts_of(*op);
    if (!facts.in_place && !facts.out) continue;
    for (const at::ScalarType type :
         {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kBool}) {
      c10::Stack arguments;
      for (const c10::Argument& one : op->schema().arguments())
        arguments.push_back(argument_of(one, type));
      const auto run = [](const c10::OperatorHandle& which, c10::Stack stack) {
        try {
          which.callBoxed(&stack);
        } catch (const c10::Error&) {  // not of this type
          return Tensor();
        }
        return stack.front().toTensor();
      };
      const Tensor expected = run(*op, arguments);
      if (!expected.defined()) continue;
      const auto compare = [&](const c10::OperatorHandle& twin, std::size_t operand, bool out) {
        c10::Stack again = arguments;
        const Tensor taken = again[operand].toTensor().clone();
        if (taken.dtype() != expected.dtype() || taken.sizes() != expected.sizes()) return;
        again[operand] = taken;
        if (out) again.emplace_back(taken);
        ++compared;
        if (!same_bits(run(twin, again), expected))
          different.push_back(c10::toString(name) + " of " + c10::toString(type));
      };
      if (facts.in_place) compare(*facts.in_place, 0, false);
      for (std::size_t n = 0; facts.out && n < arguments.size(); ++n)
        if (arguments[n].isTensor() && arguments[n].toTensor().defined())
          compare(*facts.out, n, true);
    }
  }
  REQUIRE(compared > 500);
  REQUIRE(different == std::vector<std::string>{});
}

TEST_CASE("A step whose schedule runs out of memory is run all the same", "[step]") {
  OneFailure allocator;
  struct Left {
    Outcome outcome;
    bool failed = false;
  };
  // The last step's schedule fails at that allocation.
  const auto run = [&](const Make& make, int after, bool second_thread = false) {
    torch::manual_seed(7);
    const Subject subject = make();
    // A planner that is done at once: each run plans anew.
    StepProgram program(
        waiting({.engine = "chen", .memory_share = 0.9, .second_thread = second_thread}));
    Left left;
    for (int step = 0; step < kSteps; ++step) {
      program.begin();
      // Beside the body nobody else makes room: what fails is the schedule's.
      if (step == kSteps - 1 && second_thread) allocator.fail(after);
      left.outcome.tensors.push_back(subject.body(step));
      if (step == kSteps - 1 && !second_thread) allocator.fail(after);
      program.end();
    }
    left.failed = after > 0 && allocator.has_failed();
    allocator.fail(0);
    for (const Tensor& one : subject.model->parameters()) left.outcome.tensors.push_back(one);
    left.outcome.tensors.push_back(at::detail::getDefaultCPUGenerator().get_state());
    left.outcome.stats = program.stats();
    return left;
  };
  for (const Make& make : {Make(make_mlp), Make(make_lstm), Make(make_deep)}) {
    const Outcome whole = run(make, 0).outcome;
    int failed = 0;
    for (int after = 1;; after += 1 + failed / 10) {
      const Left hurt = run(make, after);
      if (!hurt.failed) break;
      ++failed;
      CAPTURE(after);
      REQUIRE(hurt.outcome.stats.recovered == 1);
      REQUIRE(same(whole, hurt.outcome));
    }
    REQUIRE(failed > 5);
  }
  // Its body makes no room of its own.
  const Outcome whole = run(make_deep, 0, true).outcome;
  for (const int after : {1, 14, 27}) {
    const Left hurt = run(make_deep, after, true);
    CAPTURE(after);
    REQUIRE(hurt.failed);
    REQUIRE(hurt.outcome.stats.recovered == 1);
    REQUIRE(same(whole, hurt.outcome));
  }
}

TEST_CASE("A budget may be a share of what the step adds, or of time", "[step]") {
  const Outcome plain = train(make_deep, false);
  const Outcome share = train(make_deep, true, kSteps, {.memory_share = 0.8});
  CAPTURE(share.stats.budget_not_met);
  REQUIRE(share.stats.recomputed > 0);
  const auto added = [&](std::uint64_t peak) {
    return static_cast<double>(peak - share.stats.resident);
  };
  REQUIRE(added(share.stats.predicted_peak) <= 0.8 * added(share.stats.recorded_peak));
  const Outcome least = train(make_deep, true, 3, {.memory_share = 0.001}, false);
  REQUIRE_THAT(least.stats.budget_not_met,
               Catch::Contains("the budget leaves it 0.1% of that, and none below "));
  REQUIRE(share.stats.bound_ns <= share.stats.predicted_ns);
  REQUIRE(share.stats.recorded_ns < share.stats.predicted_ns);
  REQUIRE(same(plain, share));
  std::uint64_t before = ~std::uint64_t{0};
  for (const double more : {0.0, 0.1, 0.5}) {
    const Outcome timed = train(make_deep, true, kSteps, {.time_budget = more});
    CAPTURE(more, timed.stats.predicted_ns, timed.stats.recorded_ns);
    REQUIRE(static_cast<double>(timed.stats.predicted_ns) <=
            (1 + more) * static_cast<double>(timed.stats.recorded_ns));
    REQUIRE(same(plain, timed));
    if (more > 0.1) REQUIRE(timed.stats.predicted_peak < before);
    before = timed.stats.predicted_peak;
  }
}

TEST_CASE("Whoever plans a step, its bits are those of the step as written", "[step]") {
  const Outcome plain = train(make_deep, false);
  for (const char* engine : {"release", "order", "retain", "chen", "knapsack", "monet"}) {
    const bool again = std::string(engine) != "release" && std::string(engine) != "order";
    const Outcome planned =
        train(make_deep, true, kSteps, {.engine = engine, .memory_share = again ? 0.85 : 0});
    CAPTURE(engine, planned.stats.budget_not_met);
    REQUIRE(planned.stats.scheduled >= kSteps - 4);
    REQUIRE((planned.stats.recomputed > 0) == again);
    REQUIRE(planned.stats.budget_not_met.empty());
    REQUIRE(same(plain, planned));
  }
}

TEST_CASE("Engines go by the names that papers and users give them", "[step]") {
  const Outcome plain = train(make_deep, false), order = train(make_deep, true);
  for (const char* engine : {"olla", "berth", "order", "auto"}) {
    const Outcome named = train(make_deep, true, kSteps, {.engine = engine});
    CAPTURE(engine);
    REQUIRE(named.stats.predicted_peak == order.stats.predicted_peak);
    REQUIRE(same(plain, named));
  }
  const Outcome eager = train(make_deep, true, kSteps, {.engine = "eager"});
  REQUIRE(eager.stats.steps == kSteps);
  REQUIRE(eager.stats.scheduled + eager.stats.programs + eager.stats.refused == 0);
  REQUIRE(same(plain, eager));
}

TEST_CASE("What is copied to the host comes back to the bit, wherever the step goes",
          "[step][copies]") {
  const Outcome plain = train(make_wide, false), free = train(make_wide, true);
  const std::uint64_t activations = free.stats.predicted_peak - free.stats.resident;
  for (const char* engine : {"copies", "auto", "vdnn", "dymem"}) {
    // The last two move what their rules say, whatever the budget.
    const bool by_rule = std::string(engine) == "vdnn" || std::string(engine) == "dymem";
    const std::uint64_t budget =
        by_rule ? free.stats.recorded_peak : free.stats.resident + activations * 3 / 5;
    const Outcome copied =
        train(make_wide, true, kSteps,
              {.engine = engine, .memory_budget = budget, .copy_rate = 1'000'000'000'000});
    CAPTURE(engine, copied.stats.budget_not_met);
    REQUIRE(copied.stats.budget_not_met.empty());
    REQUIRE(copied.stats.scheduled >= kSteps - 4);
    if (!by_rule) REQUIRE(copied.stats.offloaded_bytes > 0);
    if (!by_rule) REQUIRE(copied.stats.host_peak > 0);
    REQUIRE(same(plain, copied));
  }
  // A step that goes another way, or fails, while some of it is on the host.
  for (int at = 0; at < 24; ++at) {
    const auto make = [at] {
      auto layers = std::make_shared<nn::SequentialImpl>();
      for (int n = 0; n < 12; ++n) layers->push_back(nn::Linear(32, 32));
      auto sgd = std::make_shared<torch::optim::SGD>(layers->parameters(), 0.1);
      const Tensor data = torch::randn({16384, 32});
      return Subject{
          layers, sgd, [=](int step) {
            sgd->zero_grad();
            Tensor x = data;
            for (int n = 0; n < 12; ++n) {
              x = layers->ptr<nn::LinearImpl>(static_cast<std::size_t>(n))->forward(x);
              x = step == 5 && n == at ? x.sigmoid() : x.tanh();
            }
            const Tensor loss = x.pow(2).mean();
            // The forward part has run then, and some of what the backward part takes is away.
            if (loss.item<float>() < 0) throw std::runtime_error("no square");
            (step == 5 && at == 12 ? loss * 2 : loss).backward();
            if (step == 5 && at > 12)
              layers->parameters()[static_cast<std::size_t>(at - 12)].mutable_grad().mul_(2);
            sgd->step();
            return loss.detach();
          }};
    };
    const Outcome other = train(make, false);
    const Outcome copied =
        train(make, true, kSteps,
              {.engine = "copies", .memory_share = 0.6, .copy_rate = 1'000'000'000'000});
    CAPTURE(at, copied.stats.last_divergence, copied.stats.budget_not_met);
    REQUIRE(copied.stats.offloaded_bytes > 0);
    REQUIRE(copied.stats.diverged >= 1);
    REQUIRE(same(other, copied));
  }
}

TEST_CASE("What comes from outside stays where it is, and is resident only where it stays",
          "[step][copies]") {
  // A loader's memory, another tensor in each step, to which the step writes at its end.
  const auto make = [] {
    Subject subject = make_wide();
    const auto net = std::dynamic_pointer_cast<nn::SequentialImpl>(subject.model);
    const auto sgd = subject.optimizer;
    const auto memory = std::make_shared<std::vector<float>>(16384 * 32, 0.5F);
    subject.body = [=](int) {
      const Tensor x = torch::from_blob(memory->data(), {16384, 32});
      sgd->zero_grad();
      const Tensor loss = net->forward(x).pow(2).mean() + x.mean();
      loss.backward();
      sgd->step();
      const torch::NoGradGuard no_grad;
      static_cast<void>(const_cast<Tensor&>(x).mul_(0.9));
      return loss.detach();
    };
    return subject;
  };
  const Outcome plain = train(make, false);
  const Outcome free = train(make, true, kSteps, {.engine = "release"});
  const Outcome copied =
      train(make, true, kSteps,
            {.engine = "copies", .memory_share = 0.6, .copy_rate = 1'000'000'000'000});
  CAPTURE(copied.stats.last_divergence, copied.stats.budget_not_met);
  REQUIRE(copied.stats.scheduled >= kSteps - 4);
  REQUIRE(copied.stats.offloaded_bytes > 0);
  REQUIRE(same(plain, free));
  REQUIRE(same(plain, copied));
  REQUIRE(free.stats.resident < 16384 * 32 * sizeof(float));
}

TEST_CASE("A step's graph is saved, and a schedule that was planned for it elsewhere is followed",
          "[step]") {
  const berth::test::TemporaryFolder folder;
  const std::string graph = folder / "x.graph", file = folder / "x.schedule";
  const auto save = [&](const Make& make) {
    const Subject subject = make();
    StepProgram program(waiting());
    REQUIRE_THROWS_WITH(program.save_graph(graph), Catch::Contains("no step is known yet"));
    std::vector<Tensor> losses;  // what outlives the step is part of it
    for (int step = 0; step < 3; ++step) {
      const auto scope = program.step();
      losses.push_back(subject.body(step));
    }
    program.save_graph(graph);
  };
  save(make_deep);
  const berth::graph::Graph step = berth::graph::read_graph(graph);
  berth::schedule::StepOptions planning;
  const Outcome free = train(make_deep, true);
  planning.budget = free.stats.resident + (free.stats.predicted_peak - free.stats.resident) / 2;
  planning.iteration_budget = 1000;
  const auto planned = berth::schedule::plan_step(step, planning);
  REQUIRE(planned.schedule);
  REQUIRE(planned.verdict.recomputed > 0);
  berth::graph::write_schedule(file, *planned.schedule);

  const Outcome plain = train(make_deep, false);
  const Outcome given = train(make_deep, true, kSteps, {.schedule = file});
  CAPTURE(given.stats.schedule_not_taken);
  REQUIRE(given.stats.schedule_not_taken.empty());
  REQUIRE(given.stats.recomputed == planned.verdict.recomputed);
  // Planners round sizes up.
  REQUIRE(given.stats.predicted_peak <= planned.verdict.peak);
  REQUIRE(planned.verdict.peak - given.stats.predicted_peak < 64 * given.stats.operators);
  REQUIRE(same(plain, given));

  ::setenv("BERTH_SCHEDULE", file.c_str(), 1);
  const Outcome by_variable = train(make_deep, true);
  const Outcome other = train(make_mlp, true), other_plain = train(make_mlp, false);
  ::unsetenv("BERTH_SCHEDULE");
  REQUIRE(by_variable.stats.recomputed == planned.verdict.recomputed);
  REQUIRE_THAT(other.stats.schedule_not_taken, Catch::Contains("it is for a step of"));
  REQUIRE(other.stats.scheduled >= kSteps - 4);
  REQUIRE(same(other_plain, other));
  REQUIRE_THROWS_WITH(StepProgram({.schedule = folder / "none"}), Catch::Contains("none"));
}

namespace {

// The step's graph, as it is without a budget.
berth::graph::Graph graph_of_step(const Make& make, const std::string& file) {
  const Subject subject = make();
  StepProgram program(waiting());
  std::vector<Tensor> losses;  // what outlives the step is part of it
  for (int step = 0; step < 5; ++step) {
    const auto scope = program.step();
    losses.push_back(subject.body(step));
  }
  program.save_graph(file);
  return berth::graph::read_graph(file);
}

std::vector<berth::graph::OperatorId> random_order(const berth::graph::Graph& graph,
                                                   std::mt19937& random) {
  std::vector<std::vector<berth::graph::OperatorId>> later(graph.operators.size());
  std::vector<std::size_t> before(graph.operators.size(), 0);
  const auto add = [&](const auto& pairs) {
    for (const auto& [first, second] : pairs) {
      later[first].push_back(second);
      ++before[second];
    }
  };
  add(berth::graph::edges_of(graph).order);
  add(graph.control);
  std::vector<berth::graph::OperatorId> ready, order;
  for (berth::graph::OperatorId op = 0; op < before.size(); ++op)
    if (before[op] == 0) ready.push_back(op);
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (const berth::graph::OperatorId op : later[order.back()])
      if (--before[op] == 0) ready.push_back(op);
  }
  return order;
}

}  // namespace

TEST_CASE("Any legal order leaves the bits, whatever is made again", "[step][orders]") {
  const berth::test::TemporaryFolder folder;
  const std::string file = folder / "x.schedule";
  int with_drops = 0;
  for (const Make& make : {Make(make_mlp), Make(make_normalized), Make(make_elementwise)}) {
    const Outcome plain = train(make, false);
    torch::manual_seed(7);
    const berth::graph::Graph graph = graph_of_step(make, folder / "x.graph");
    const auto follows = [&](const berth::graph::Schedule& schedule) {
      berth::graph::write_schedule(file, schedule);
      const Outcome given = train(make, true, kSteps, {.schedule = file});
      CHECK(given.stats.schedule_not_taken.empty());
      CHECK(given.stats.scheduled >= kSteps - 4);
      return same(plain, given);
    };
    berth::schedule::StepOptions unlimited;
    unlimited.budget = berth::kMaxBytes;
    const berth::Bytes most = berth::schedule::plan_step(graph, unlimited).verdict.peak;
    for (std::uint32_t seed = 1; seed <= 34; ++seed) {
      CAPTURE(seed);
      std::mt19937 random(seed);
      REQUIRE(follows(berth::graph::schedule_of_order(graph, random_order(graph, random))));
      // And what a planner that is cut short makes again within a random budget.
      berth::schedule::StepOptions planning;
      planning.seed = seed;
      planning.iteration_budget = 20;
      planning.budget = most - random() % (most / 4);
      const auto planned = berth::schedule::plan_step(graph, planning);
      if (!planned.schedule || planned.verdict.recomputed == 0) continue;
      ++with_drops;
      REQUIRE(follows(*planned.schedule));
    }
  }
  REQUIRE(with_drops > 10);
}

TEST_CASE("Programs that are used at once run one after the other, or as they are",
          "[step][threads]") {
  const auto run = [](bool by_program) {
    torch::manual_seed(7);
    torch::set_num_threads(1);
    const Subject subject = make_convolutions();
    StepProgram one(waiting()), two(waiting()), third(waiting());
    std::vector<Tensor> left;
    for (int step = 0; step < 9; ++step) {
      if (by_program) one.begin();
      if (by_program) two.begin();
      left.push_back(subject.body(step));
      // Another thread that trains something of its own.
      float other = 0;
      std::thread([&] {
        torch::set_num_threads(1);
        if (by_program) third.begin();
        other = torch::ones({4}).mul(step).sum().item<float>();
        if (by_program) third.end();
      }).join();
      left.push_back(torch::tensor(other));
      // They end in the order in which they began, too.
      if (by_program) (step % 2 == 0 ? two : one).end();
      if (by_program) (step % 2 == 0 ? one : two).end();
    }
    for (const Tensor& parameter : subject.model->parameters()) left.push_back(parameter);
    if (by_program) {
      REQUIRE(one.stats().scheduled >= 6);
      REQUIRE(two.stats().scheduled + third.stats().scheduled == 0);
    }
    return Outcome{.tensors = left, .versions = {}, .stats = {}};
  };
  REQUIRE(same(run(false), run(true)));
}

TEST_CASE("A program may be used on any one thread", "[step][threads]") {
  const Outcome plain = train(make_mlp, false);
  Outcome scheduled;
  std::thread([&] { scheduled = train(make_mlp, true, kSteps, {.second_thread = true}); }).join();
  REQUIRE(scheduled.stats.scheduled >= kSteps - 4);
  REQUIRE(same(plain, scheduled));
}

TEST_CASE("A thread of the body's finds what the step as written leaves there", "[step][threads]") {
  const auto run = [](bool by_program) {
    torch::manual_seed(7);
    nn::Linear net(4, 4);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    StepProgram program(waiting());
    std::vector<Tensor> left;
    for (int step = 0; step < 9; ++step) {
      if (by_program) program.begin();
      optimizer.zero_grad();
      const Tensor out = net->forward(torch::randn({2, 4}));
      Tensor doubled, drawn, weight;
      // Of the first four steps two are recorded and two are scheduled without the thread.
      if (step >= 4 && step != 6) std::thread([&] { doubled = out.detach() * 2; }).join();
      if (step == 6) std::thread([&] { drawn = torch::rand({2}); }).join();
      out.square().sum().backward();
      optimizer.step();
      if (step == 8) std::thread([&] { weight = net->weight.detach() + 1; }).join();
      if (by_program) program.end();
      for (const Tensor& one : {doubled, drawn, weight, out})
        if (one.defined()) left.push_back(one);
    }
    if (by_program) {
      REQUIRE(program.stats().scheduled == 2);
      REQUIRE(program.stats().diverged == 5);
      REQUIRE(program.stats().made == 1);
      REQUIRE_THAT(program.stats().last_divergence, Catch::Contains("on another thread"));
    }
    return Outcome{.tensors = left, .versions = {}, .stats = {}};
  };
  REQUIRE(same(run(false), run(true)));
}

TEST_CASE("A step in which another thread writes is refused", "[step][threads]") {
  const auto run = [](bool by_program) {
    torch::manual_seed(7);
    Tensor weight = torch::ones({4, 4});
    StepProgram program(waiting());
    std::vector<Tensor> left;
    for (int step = 0; step < 6; ++step) {
      if (by_program) program.begin();
      const Tensor out = torch::randn({4, 4}).matmul(weight);
      std::thread([&] { weight.mul_(0.5); }).join();
      left.push_back(out.matmul(weight));
      if (by_program) program.end();
    }
    if (by_program) REQUIRE_THAT(program.stats().last_refusal, Catch::Contains("another thread"));
    return Outcome{.tensors = left, .versions = {}, .stats = {}};
  };
  REQUIRE(same(run(false), run(true)));
}

TEST_CASE("A process that is forked in a step or between two goes on", "[step][fork]") {
  for (const bool second_thread : {false, true}) {
    torch::manual_seed(7);
    torch::set_num_threads(1);
    const Subject subject = make_convolutions();
    StepProgram program(waiting({.second_thread = second_thread}));
    const auto step = [&](bool forks) {
      const auto scope = program.step();
      const Tensor loss = subject.body(0);
      if (!forks) return loss;
      const pid_t child = ::fork();
      if (child == 0) ::_exit(torch::ones({3}).sum().item<float>() == 3 ? 0 : 1);
      int status = 1;
      REQUIRE(::waitpid(child, &status, 0) == child);
      REQUIRE(status == 0);
      return loss;
    };
    for (int n = 0; n < 5; ++n) step(false);
    step(true);
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      step(false);
      const float found = step(false).item<float>();
      ::_exit(::write(pipe[1], &found, sizeof found) == sizeof found &&
                      program.stats().diverged == 0
                  ? 0
                  : 1);
    }
    step(false);
    const float expected = step(false).item<float>();
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    float found = 0;
    REQUIRE(::read(pipe[0], &found, sizeof found) == sizeof found);
    ::close(pipe[0]);
    ::close(pipe[1]);
    REQUIRE(found == expected);
    REQUIRE(program.stats().scheduled >= 5);
  }
}

TEST_CASE("A model may change between steps", "[step]") {
  const auto make = [] {
    Subject subject = make_mlp();
    const auto net = subject.model;
    const auto inner = subject.body;
    subject.body = [=](int step) {
      if (step == 6) net->parameters()[0].set_requires_grad(false);
      if (step == 10) net->eval();
      if (step == 13) net->train();
      return inner(step);
    };
    return subject;
  };
  const Outcome plain = train(make, false, 18), scheduled = train(make, true, 18);
  CAPTURE(scheduled.stats.last_divergence);
  REQUIRE(scheduled.stats.programs >= 2);
  REQUIRE(scheduled.stats.scheduled >= 8);
  REQUIRE(same(plain, scheduled));
}

namespace {

// Says that it only reads.
Tensor hidden(const Tensor& x) {
  x.mutable_data_ptr<float>()[0] += 1;
  return torch::ones({1});
}

}  // namespace

TORCH_LIBRARY(berth_test, library) { library.def("hidden(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(berth_test, CPU, library) { library.impl("hidden", hidden); }

TEST_CASE("What is written without being said is found where bytes are looked at",
          "[step][hidden]") {
  ::setenv("BERTH_CHECK", "full", 1);
  berth::torch::pure("berth_test::hidden");  // which is not true
  // Nothing of what models use does.
  for (const Named& subject : kSubjects) {
    const Outcome plain = train(subject.make, false), scheduled = train(subject.make, true);
    CAPTURE(subject.name, scheduled.stats.last_refusal);
    CHECK(scheduled.stats.refused == 0);
    REQUIRE(same(plain, scheduled));
  }
  const auto refusal = [](const std::function<void(const Tensor&)>& body) {
    StepProgram program(waiting());
    for (int step = 0; step < 4; ++step) {
      const torch::NoGradGuard no_grad;
      const auto scope = program.step();
      const Tensor x = torch::zeros({4}).add(1);
      body(x);
      static_cast<void>(x.mul(2));
    }
    return program.stats().last_refusal;
  };
  CHECK(refusal([](const Tensor&) {}).empty());
  CHECK_THAT(refusal([](const Tensor& x) {
               const auto op =
                   c10::Dispatcher::singleton().findSchemaOrThrow("berth_test::hidden", "");
               static_cast<void>(op.typed<Tensor(const Tensor&)>().call(x));
             }),
             Catch::Contains("berth_test::hidden writes a tensor without saying so"));
  CHECK_THAT(refusal([](const Tensor& x) { x.mutable_data_ptr<float>()[1] = 7; }),
             Catch::Contains("aten::mul.Scalar takes a tensor whose bytes were written behind"));
  // Room is the body's to fill, and so is what it has said it shares.
  CHECK(refusal([](const Tensor&) {
          static_cast<void>(torch::tensor({1.0F, 2.0F}).mul(2));
        }).empty());
  CHECK(refusal([](const Tensor& x) {
          berth::torch::share_bytes(x);
          x.mutable_data_ptr<float>()[1] = 7;
        }).empty());
  ::unsetenv("BERTH_CHECK");
}

TEST_CASE("While a step is being planned, it runs as it was recorded", "[step][planning]") {
  const auto make = [] { return make_deep(); };
  torch::manual_seed(7);
  torch::set_num_threads(1);
  const Subject subject = make();
  StepProgram program({.memory_share = 0.8, .plan_wait_seconds = 0});
  std::vector<Tensor> losses;
  const auto step = [&] {
    const auto scope = program.step();
    losses.push_back(subject.body(static_cast<int>(losses.size())));
  };
  for (int n = 0; n < 3; ++n) step();
  REQUIRE(program.stats().scheduled == 1);
  REQUIRE((program.stats().planning == 1 && program.stats().made == 0));
  REQUIRE_THAT(program.stats().budget_not_met, Catch::Contains("still being planned"));
  while (program.stats().made == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    step();
  }
  step();
  CAPTURE(program.stats().to_json());
  REQUIRE(program.stats().scheduled == losses.size() - 2);
  REQUIRE(program.stats().budget_not_met.empty());
  REQUIRE(program.stats().recomputed > 0);
  const Outcome plain = train(make, false, static_cast<int>(losses.size()), {}, false);
  for (std::size_t n = 0; n < losses.size(); ++n) REQUIRE(same_bits(losses[n], plain.tensors[n]));
}

TEST_CASE("A step program goes, a process is forked or ends while a step is being planned",
          "[step][planning][fork]") {
  torch::manual_seed(7);
  torch::set_num_threads(1);
  const Subject subject = make_deep();
  const auto begin_planning = [&](StepProgram& program) {
    for (int n = 0; n < 2; ++n) {
      const auto scope = program.step();
      subject.body(n);
    }
    return program.stats().planning == 1;
  };
  const berth::torch::StepProgramOptions options{.memory_share = 0.7, .plan_wait_seconds = 0};
  const auto exit_of = [](const std::function<void()>& child) {
    const pid_t process = ::fork();
    if (process == 0) {
      child();
      ::_exit(1);
    }
    int status = 1;
    REQUIRE(::waitpid(process, &status, 0) == process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const auto began = std::chrono::steady_clock::now();
  {
    StepProgram gone(options);
    REQUIRE(begin_planning(gone));
  }
  REQUIRE(std::chrono::steady_clock::now() - began < std::chrono::seconds(10));
  // Nothing has destroyed it when the process ends.
  REQUIRE(exit_of([&] {
            auto* const left = new StepProgram(options);
            std::exit(begin_planning(*left) ? 0 : 1);
          }) == 0);
  StepProgram program(options);
  REQUIRE(begin_planning(program));
  REQUIRE(exit_of([&] {
            for (int n = 0; n < 3; ++n) {
              const auto scope = program.step();
              subject.body(n);
            }
            const StepProgramStats stats = program.stats();
            ::_exit(stats.scheduled == 3 && (stats.planning == 1 || stats.made == 1) ? 0 : 2);
          }) == 0);
  program.begin();
  subject.body(0);
  REQUIRE(exit_of([&] {
            program.end();
            ::_exit(program.stats().scheduled == 1 ? 0 : 2);
          }) == 0);
  program.end();
}

TEST_CASE("Budgets out of range, or more than one, are refused in words", "[step]") {
  const auto made = [](const berth::torch::StepProgramOptions& options) {
    return StepProgram(options).stats().steps;
  };
  REQUIRE_THROWS_WITH(made({.memory_share = 1.5}), Catch::Contains("memory_share is 1.5"));
  REQUIRE_THROWS_WITH(made({.memory_share = -0.5}), Catch::Contains("memory_share is -0.5"));
  REQUIRE_THROWS_WITH(made({.time_budget = 2000}), Catch::Contains("time_budget is 2000"));
  REQUIRE_THROWS_WITH(made({.max_programs = 0}), Catch::Contains("max_programs is 0"));
  REQUIRE_THROWS_WITH(made({.memory_budget = 1, .time_budget = 0.1}),
                      Catch::Contains("2 budgets are given"));
  REQUIRE_THROWS_WITH(made({.engine = "best"}), Catch::Contains("engine is 'best'; one of auto"));
  REQUIRE_THROWS_WITH(made({.engine = "dymem", .memory_share = 0.5}),
                      Catch::Contains("dymem copies to the host: copy_rate is to say how fast"));
  REQUIRE_THROWS_WITH(made({.engine = "chen"}), Catch::Contains("none is given"));
}
