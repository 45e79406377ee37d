// A step program holds the memory that it says, within budgets, and no bit changes by it.
#include "csrc/torch/step/operator_facts.h"
#include "tests/catch.h"
#include "tests/support/thoroughness.h"
#include "tests/torch_step/subjects.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

using namespace berth::test;

namespace {

namespace nn = torch::nn;
using berth::torch::StepProgram;
using berth::torch::StepProgramStats;
using torch::Tensor;

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
    // Not a number that an operator in place makes a tensor of: what that has written nobody knows.
    const bool counts = bytes > sizeof(double) && left_ > 0;
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
  std::atomic<int> left_ = 0;
};

}  // namespace

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
  for (const Named& subject : subjects()) {
    DYNAMIC_SECTION(subject.name) {
      for (berth::torch::StepProgramOptions options :
           {berth::torch::StepProgramOptions{.engine = "release"},
            berth::torch::StepProgramOptions{},
            berth::torch::StepProgramOptions{.memory_share = 0.9},
            berth::torch::StepProgramOptions{
                .engine = "offload", .memory_share = 0.9, .copy_rate = 1'000'000'000'000}}) {
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
  constexpr std::array kShares{0.9, 0.75, 0.6};
  std::size_t turn = 0;
  for (const Named& subject : subjects()) {
    const double own = kShares[turn++ % kShares.size()];
    DYNAMIC_SECTION(subject.name) {
      const Outcome plain = train(subject.make, false), free = train(subject.make, true);
      const std::uint64_t activations = free.stats.predicted_peak - free.stats.resident;
      for (const double share : kShares) {
        if (share != own && !is_thorough()) continue;
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
               Catch::Contains("the budget leaves 0.1% of the added bytes, and no budget below "));
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
                      Catch::Contains("dymem offloads to the host: copy_rate is not given"));
  REQUIRE_THROWS_WITH(made({.engine = "chen"}), Catch::Contains("none is given"));
}
