// A step program trains to the bits that the step as written trains to, whatever the step does.
#include "csrc/torch/step/operator_facts.h"
#include "tests/catch.h"
#include "tests/torch_step/subjects.h"

#include <berth/warnings.h>

#include <torch/library.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace berth::test;

namespace {

namespace nn = torch::nn;
using berth::torch::StepProgram;
using torch::Tensor;

}  // namespace

TEST_CASE("A scheduled step leaves the bits that the step as written leaves", "[step]") {
  for (const Named& subject : subjects()) {
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
      const torch::Tensor drawn = torch::randint(step, 2 * step + 3, {8}).roll(step, 0);
      return inner(step) + drawn[0] + drawn.random_(step + 1)[1];
    };
    return subject;
  };
  const Outcome plain = train(make, false), scheduled = train(make, true);
  REQUIRE(scheduled.stats.diverged <= 1);
  REQUIRE(scheduled.stats.scheduled >= kSteps - 4);
  REQUIRE(same(plain, scheduled));
}

TEST_CASE("A draw refuses its numbers when the body calls it", "[step]") {
  using Draw = std::function<void(const Tensor& drawn, int step)>;
  const Draw draws[] = {
      [](const Tensor&, int step) { (void)torch::randint(5, step % 7 == 5 ? 5 : 6 + step, {8}); },
      [](const Tensor& drawn, int step) { drawn.random_(step % 7 == 5 ? 10 : 0, 10); },
      [](const Tensor& drawn, int step) {
        (void)torch::empty({8}, torch::kInt8).random_(step % 7 == 5 ? 1000 : 1 + step);
        drawn.random_(9);
      },
      [](const Tensor& drawn, int step) {
        (void)drawn.to(torch::kFloat).uniform_(step % 7 == 5 ? 2. : 0.01 * step, 1.);
      },
      [](const Tensor& drawn, int step) {
        (void)drawn.to(torch::kFloat).normal_(0, step % 7 == 5 ? -1. : 1. + step);
      },
      [](const Tensor& drawn, int step) {
        (void)torch::dropout(drawn.to(torch::kFloat), step % 7 == 5 ? 2. : 0.01 * step, true);
      },
      [](const Tensor& drawn, int step) {
        (void)torch::rrelu(drawn.to(torch::kFloat) - 1, 0.1, step % 7 == 5 ? 0. : 1 + step, true);
      },
  };
  constexpr int kRuns = 14;
  for (const Draw& draw : draws) {
    CAPTURE(&draw - draws);
    const auto make = [&] {
      Subject subject = make_mlp();
      subject.body = [=, inner = subject.body](int step) {
        Tensor drawn = torch::zeros({8}, torch::kLong);
        try {
          draw(drawn, step);
        } catch (const c10::Error&) {
          drawn = drawn - 1;
        }
        return inner(step) + drawn.sum();
      };
      return subject;
    };
    const Outcome plain = train(make, false, kRuns), scheduled = train(make, true, kRuns);
    CAPTURE(scheduled.stats.last_divergence);
    REQUIRE(scheduled.stats.scheduled >= kRuns / 2);
    REQUIRE(same(plain, scheduled));
  }
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

TEST_CASE("The body may fill room of any operator that makes some", "[step]") {
  for (const bool permuted : {false, true}) {
    CAPTURE(permuted);
    const auto make = [permuted] {
      nn::Linear net(4, 2);
      auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
      return Subject{net.ptr(), sgd, [=](int step) mutable {
                       sgd->zero_grad();
                       const Tensor room = permuted ? at::empty_permuted({3, 4}, {1, 0})
                                                    : at::empty_strided({3, 4}, {1, 3});
                       for (int n = 0; n < 12; ++n)
                         room.mutable_data_ptr<float>()[n] = static_cast<float>(n % (step + 2));
                       const Tensor loss = net->forward(room).sum();
                       loss.backward();
                       sgd->step();
                       return loss.detach();
                     }};
    };
    const Outcome plain = train(make, false), scheduled = train(make, true);
    CAPTURE(scheduled.stats.last_divergence, scheduled.stats.last_refusal);
    REQUIRE(scheduled.stats.scheduled >= kSteps - 4);
    REQUIRE(same(plain, scheduled));
  }
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

// Steps in turn that call the same operators and differ in what these take.
TEST_CASE("Steps differ in flags of tensors and in the memory around them", "[step]") {
  for (const bool flags : {false, true}) {
    const auto make = [flags] {
      nn::Linear net(6, 6);
      auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
      const Tensor few = torch::randn({24, 6}), many = torch::randn({40, 6});
      return Subject{net.ptr(), sgd, [=](int step) mutable {
                       sgd->zero_grad();
                       const Tensor& data = !flags && step % 2 == 1 ? few : many;
                       const Tensor out = net->forward(data.narrow(0, step % 8, 16));
                       const Tensor value = torch::complex(out, out.sin());
                       const Tensor other = flags && step % 2 == 1 ? value.conj() : value;
                       Tensor parts = value.clone().conj();
                       parts[0] = other[1];
                       const Tensor loss = (torch::imag(other * value).neg() + parts.abs()).sum();
                       loss.backward();
                       sgd->step();
                       return loss.detach();
                     }};
    };
    const Outcome plain = train(make, false, 14), scheduled = train(make, true, 14);
    CAPTURE(flags, scheduled.stats.last_divergence, scheduled.stats.last_refusal);
    REQUIRE(scheduled.stats.programs == 2);
    REQUIRE(scheduled.stats.scheduled >= 9);
    REQUIRE(same(plain, scheduled));
  }
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

TEST_CASE("Steps that are refused do not delay those of another kind", "[step]") {
  torch::manual_seed(3);
  nn::Linear net(4, 4);
  StepProgram program(waiting());
  const auto step = [&](bool refused) {
    const auto scope = program.step();
    if (refused) (void)at::_nested_tensor_from_tensor_list({torch::ones({8})});
    return net->forward(torch::ones({2, 4}));
  };
  const Tensor expected = net->forward(torch::ones({2, 4}));
  for (int n = 0; n < 3; ++n) {
    for (int refused = 0; refused < 6; ++refused) step(true);
    REQUIRE(same_bits(step(false), expected));
    REQUIRE(program.stats().scheduled == (n < 2 ? 0 : 1));
  }
  REQUIRE(program.stats().refused >= 12);
}

TEST_CASE("Each reason why steps are refused is told once", "[step]") {
  std::vector<std::string> told;
  berth::set_warning_sink([&](std::string_view name, const std::string& text) {
    if (name == "step-refused") told.push_back(text);
  });
  StepProgram program(waiting());
  Tensor written = torch::ones({8});
  for (int step = 0; step < 6; ++step) {
    const auto scope = program.step();
    (void)written.sum();
    if (step % 2 == 0)
      (void)at::_nested_tensor_from_tensor_list({written});
    else
      std::thread([&] { written.mul_(0.5); }).join();
  }
  berth::set_warning_sink({});
  REQUIRE(program.stats().refused == 6);
  REQUIRE(told.size() == 2);
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
// As torch.distributed defines it in Python.
TORCH_LIBRARY(c10d_functional, library) { library.def("all_reduce(Tensor x) -> Tensor"); }

TEST_CASE("Collectives of both libraries of c10d leave the caller's turn to their threads",
          "[step]") {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const char* const name : {"c10d_functional::all_reduce", "berth_test::hidden"}) {
    const auto& facts = berth::torch::step::facts_of(dispatcher.findSchemaOrThrow(name, ""));
    CAPTURE(name);
    REQUIRE(facts.opaque);
    REQUIRE(facts.collective == (std::string_view(name) != "berth_test::hidden"));
  }
}

TEST_CASE("An LSTM's backward part on a GPU writes what the forward part kept for it",
          "[step][hidden]") {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_cudnn_rnn_backward", "");
  const auto& arguments = op.schema().arguments();
  const auto& facts = berth::torch::step::facts_of(op);
  for (std::size_t n = 0; n < arguments.size(); ++n)
    CHECK(facts.writes[n] == (arguments[n].name() == "reserve"));
}

TEST_CASE("What is written without being said is found where bytes are looked at",
          "[step][hidden]") {
  ::setenv("BERTH_CHECK", "full", 1);
  berth::torch::pure("berth_test::hidden");  // which is not true
  // Nothing of what models use does.
  for (const Named& subject : subjects()) {
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
