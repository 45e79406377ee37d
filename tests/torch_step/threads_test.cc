// Step programs beside other programs, threads and processes, and while a step is being planned.
#include "csrc/torch/step/thread_count.h"
#include "tests/catch.h"
#include "tests/torch_step/subjects.h"

#include <ATen/record_function.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace berth::test;

namespace {

namespace nn = torch::nn;
using berth::torch::StepProgram;
using berth::torch::StepProgramStats;
using berth::torch::step::ThreadCount;
using torch::Tensor;

}  // namespace

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
      REQUIRE_THAT(
          program.stats().last_divergence,
          Catch::Contains("aten::mul.Scalar is called on another thread, and takes a tensor "
                          "of the step in argument 0"));
    }
    return Outcome{.tensors = left, .versions = {}, .stats = {}};
  };
  REQUIRE(same(run(false), run(true)));
}

TEST_CASE("A thread of the body's has the number of threads that it has without berth",
          "[step][threads]") {
  const int before = ThreadCount::now();
  int fresh = 0;
  std::thread([&] { fresh = ThreadCount::now(); }).join();
  torch::set_num_threads(fresh + 1);  // which a thread has once it asks for it
  const auto run = [](bool by_program, bool with_barrier = false) {
    torch::manual_seed(7);
    nn::Linear net(32, 64);
    StepProgram program(waiting());
    std::vector<int> seen;
    for (int step = 0; step < 6; ++step) {
      const Tensor x = torch::randn({1000, 32});
      if (by_program) program.begin();
      const Tensor out = torch::gelu(net->forward(x)).detach();  // large enough for several
      if (with_barrier) berth::torch::read_bytes(net->bias);
      if (step > 2)
        std::thread([&] {
          seen.push_back(ThreadCount::now());
          (void)out.select(0, 0).mul(2);
          seen.push_back(ThreadCount::now());
          (void)out.mul(2);
          seen.push_back(ThreadCount::now());
        }).join();
      (void)out.sum().item();
      if (by_program) program.end();
    }
    if (by_program) REQUIRE(program.stats().diverged >= 2);
    return seen;
  };
  const std::vector<int> plain = run(false);
  REQUIRE(plain[1] == fresh);
  REQUIRE(plain[2] == fresh + 1);
  REQUIRE(run(true) == plain);
  REQUIRE(run(true, true) == plain);
  // So has a thread that runs steps without large operators.
  std::vector<int> seen;
  std::thread([&] {
    nn::Linear net(4, 4);
    StepProgram program(waiting());
    for (int step = 0; step < 6; ++step) {
      program.begin();
      net->forward(torch::ones({2, 4})).sum().backward();
      program.end();
      seen.push_back(ThreadCount::now());
    }
    seen.push_back(program.stats().scheduled >= 3 ? fresh : 0);
  }).join();
  REQUIRE(seen == std::vector<int>(7, fresh));
  torch::set_num_threads(before);
}

TEST_CASE("An observer of all operators sees each where the body calls it", "[step]") {
  const auto run = [](bool by_program, bool within) {
    torch::manual_seed(7);
    nn::Linear net(8, 8);
    StepProgram program(waiting());
    static std::vector<std::string> seen;
    seen.clear();
    const auto observe = [] {
      return at::addGlobalCallback(at::RecordFunctionCallback(
          [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
            seen.emplace_back(function.name());
            return nullptr;
          }));
    };
    std::vector<Tensor> left;
    for (int step = 0; step < 7; ++step) {
      std::optional<at::CallbackHandle> handle;
      if (step == 5 && !within) handle = observe();
      if (by_program) program.begin();
      const Tensor y = net->forward(torch::ones({2, 8}) * step);
      if (step == 5 && within) handle = observe();
      left.push_back(y.sin().sum());
      if (by_program) program.end();
      if (handle) at::removeCallback(*handle);
    }
    if (by_program) REQUIRE(program.stats().scheduled >= 3);
    return std::pair(seen, left);
  };
  for (const bool within : {false, true}) {
    const auto [plain, bits] = run(false, within);
    const auto [seen, same_bits] = run(true, within);
    REQUIRE(plain.size() >= 2);
    REQUIRE(seen == plain);
    REQUIRE(same({.tensors = bits, .versions = {}, .stats = {}},
                 {.tensors = same_bits, .versions = {}, .stats = {}}));
  }
}

TEST_CASE("What a step has not written another thread takes as it is", "[step][threads]") {
  const auto run = [](bool by_program) {
    torch::manual_seed(7);
    nn::Linear net(4, 4);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Tensor data = torch::randn({8, 4});
    StepProgram program(waiting());
    std::vector<Tensor> left;
    for (int step = 0; step < 12; ++step) {
      if (by_program) program.begin();
      optimizer.zero_grad();
      const Tensor loss = net->forward(data).square().sum();
      Tensor before, after;
      // The data of the next step, and a checkpoint of this one.
      std::thread([&] { before = torch::cat({data * 2, net->weight.detach()}); }).join();
      loss.backward();
      optimizer.step();
      if (step > 9) std::thread([&] { after = net->weight.detach().clone(); }).join();
      if (by_program) program.end();
      for (const Tensor& one : {loss.detach(), before, after})
        if (one.defined()) left.push_back(one);
    }
    if (by_program) {
      REQUIRE(program.stats().scheduled == 8);
      REQUIRE(program.stats().diverged == 2);
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
    if (by_program)
      REQUIRE_THAT(program.stats().last_refusal,
                   Catch::Contains("aten::mul_.Scalar is called on another thread, and writes a "
                                   "tensor of the step in argument 0"));
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
