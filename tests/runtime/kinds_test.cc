// Programs whose steps are of several kinds, learned in place: how much of them the plan serves.

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_program.h"

#include <berth/error.h>

#include <random>
#include <vector>

using namespace berth;
using test::Program;

namespace {

// Runs steps on an allocator that plans in place, and counts from when each kind was seen thrice.
class Served {
 public:
  // Leaves the first steps of each kind out.
  explicit Served(std::uint64_t ignored = 3, double plan_seconds = 0.2)
      : allocator_(*device_, options(plan_seconds)), ignored_(ignored) {}
  void step(const Program::Step& step, std::size_t kind, bool marked = true) {
    const Stats before = allocator_.stats();
    program_.run(step, allocator_);
    if (marked) allocator_.mark_step(0);
    const Stats after = allocator_.stats();
    if (seen_.size() <= kind) seen_.resize(kind + 1);
    if (++seen_[kind] <= ignored_) return;
    requests_ += after.requests - before.requests;
    hits_ += after.hits + after.hits_bucket - before.hits - before.hits_bucket;
  }
  [[nodiscard]] double share() const {
    return static_cast<double>(hits_) / static_cast<double>(requests_);
  }
  [[nodiscard]] Stats stats() const { return allocator_.stats(); }
  [[nodiscard]] std::size_t sequences() const { return allocator_.plan().value().sequences.size(); }
  // The plan that is served begins anew, whatever step comes next.
  void begin_plan_anew() { allocator_.load_plan(allocator_.plan().value()); }

 private:
  static Allocator::Options options(double plan_seconds) {
    Allocator::Options options;
    options.start_threads = false;
    options.config.plan_time_limit_seconds = plan_seconds;
    return options;
  }
  std::unique_ptr<Device> device_ = make_host_device(Bytes{1} << 34);
  test::CheckedAllocator allocator_;
  Program program_;
  const std::uint64_t ignored_;
  std::vector<std::uint64_t> seen_;
  std::uint64_t requests_ = 0, hits_ = 0;
};

}  // namespace

TEST_CASE("Training with an evaluation every ten steps is served by one plan", "[learn][kinds]") {
  const bool zero_first = GENERATE(true, false);
  CAPTURE(zero_first);
  Served served;
  const auto train = Program::training({.layers = 30, .batch = 32, .zero_first = zero_first});
  const auto evaluate = Program::evaluation({.layers = 30, .batch = 64});
  for (int epoch = 0; epoch < 40; ++epoch) {
    for (int i = 0; i < 10; ++i) served.step(train, 0);
    for (int i = 0; i < 3; ++i) served.step(evaluate, 1);
  }
  CHECK(served.share() >= 0.995);
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.stats().plans_learned <= 6);
}

TEST_CASE("An evaluation that begins as a training step does is told from it", "[learn][kinds]") {
  const bool zero_first = GENERATE(true, false);
  CAPTURE(zero_first);
  Served served;
  const auto train = Program::training({.layers = 30, .batch = 32, .zero_first = zero_first});
  const auto evaluate = Program::evaluation({.layers = 30, .batch = 32});
  for (int epoch = 0; epoch < 40; ++epoch) {
    for (int i = 0; i < 10; ++i) served.step(train, 0);
    for (int i = 0; i < 3; ++i) served.step(evaluate, 1);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("The two optimizers of a GAN are served with a mark after each", "[learn][kinds]") {
  Served served;
  const auto discriminator = Program::training({.layers = 20, .batch = 16});
  const auto generator = Program::training({.layers = 33, .batch = 16, .network = 1});
  for (int round = 0; round < 50; ++round) {
    served.step(discriminator, 0);
    served.step(generator, 1);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("A cycle that is taken up within is in step from the next mark on", "[learn][kinds]") {
  Served served;
  const std::array steps{Program::training({.layers = 20, .batch = 16}),
                         Program::training({.layers = 26, .batch = 16, .network = 1}),
                         Program::training({.layers = 22, .batch = 16, .network = 2})};
  for (std::size_t i = 0; i < 30; ++i) served.step(steps[i % 3], i % 3);
  CHECK(served.stats().plans_learned == 1);
  const std::size_t first = GENERATE(0u, 1u, 2u);
  CAPTURE(first);
  for (std::size_t i = 0; i < first; ++i) served.step(steps[i], i);
  served.begin_plan_anew();
  served.step(steps[first], first);
  served.step(steps[(first + 1) % 3], first);
  const Stats before = served.stats();
  for (std::size_t i = 2; i < 8; ++i) served.step(steps[(first + i) % 3], 0);
  const Stats after = served.stats();
  CHECK(after.realigned == before.realigned);
  CHECK(after.hits - before.hits == after.requests - before.requests);
}

TEST_CASE("Gradients that are summed over four micro-batches are served", "[learn][kinds]") {
  Served served;
  for (int round = 0; round < 50; ++round) {
    for (int micro = 0; micro < 4; ++micro) {
      served.step(Program::training({.layers = 20,
                                     .batch = 8,
                                     .zero_first = micro == 0,
                                     .accumulates = micro != 0,
                                     .optimizes = micro == 3}),
                  static_cast<std::size_t>(micro));
    }
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("Micro-batches are told from each other where they come in other turns, too",
          "[learn][kinds]") {
  // The first of them makes the requests that the last begins with, and leaves its gradients.
  const bool evaluates = GENERATE(true, false);
  const bool zero_first = GENERATE(true, false);
  CAPTURE(evaluates, zero_first);
  Served served;
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const std::size_t count = evaluates ? 4 : 3 + random() % 2;
    for (std::size_t micro = 0; micro < count; ++micro) {
      const bool last = micro + 1 == count;
      served.step(Program::training({.layers = 20,
                                     .batch = 8,
                                     .zero_first = zero_first && micro == 0,
                                     .accumulates = micro != 0,
                                     .optimizes = last}),
                  last ? 3 : std::min<std::size_t>(micro, 2));
    }
    for (int i = 0; evaluates && round % 10 == 9 && i < 3; ++i)
      served.step(Program::evaluation({.layers = 20, .batch = 16}), 4);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("The short last batch of an epoch is served", "[learn][kinds]") {
  Served served;
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (int i = 0; i < 20; ++i) served.step(Program::training({.layers = 25, .batch = 32}), 0);
    served.step(Program::training({.layers = 25, .batch = 7}), 1);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("Two to six kinds of steps in random turns are served", "[learn][kinds]") {
  const auto count = GENERATE(std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{6});
  const bool zero_first = GENERATE(true, false);
  CAPTURE(count, zero_first);
  Served served;
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const std::size_t kind = random() % count;
    const Program::Shape shape{
        .layers = 15, .batch = 8 + 8 * static_cast<Bytes>(kind), .zero_first = zero_first};
    served.step(kind % 3 == 2 ? Program::evaluation(shape) : Program::training(shape), kind);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("Kinds of steps in random turns are told apart without marks", "[learn][kinds]") {
  const auto count = GENERATE(std::size_t{3}, std::size_t{4}, std::size_t{6});
  const bool zero_first = GENERATE(true, false);
  CAPTURE(count, zero_first);
  Served served(150);
  std::mt19937 random(7);
  for (int i = 0; i < 450; ++i) {
    const std::size_t kind = random() % count;
    const Program::Shape shape{.layers = 15, .batch = 4096 * (1 + kind), .zero_first = zero_first};
    served.step(kind % 3 == 2 ? Program::evaluation(shape) : Program::training(shape), 0, false);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("What looked like steps before the first mark has no room in the plan",
          "[learn][kinds]") {
  // Equal layers, run again on the way back, and an optimizer with a state for each weight.
  const auto layer_count = GENERATE(std::size_t{22}, std::size_t{100});
  CAPTURE(layer_count);
  constexpr std::size_t kWeights = 9;
  constexpr std::uint64_t kKept = 1 << 12, kGradients = 2 << 12, kRunAgain = 3 << 12;
  constexpr Bytes kUnit = 4096;
  Program::Step first, step;
  const auto each_weight = [&](Program::Step& to, const auto& does) {
    for (std::size_t i = 0; i < layer_count * kWeights; ++i)
      does(to, kUnit * (1 + i % kWeights), i);
  };
  for (std::uint64_t names : {4 << 12, 5 << 12, 6 << 12}) {  // weights and two states
    each_weight(first, [&](Program::Step& to, Bytes bytes, std::uint64_t i) {
      to.push_back({.bytes = bytes, .name = names + i});
    });
  }
  each_weight(step, [&](Program::Step& to, Bytes, std::uint64_t i) {
    to.push_back({.name = kGradients + i});
  });
  const auto forward = [&](std::uint64_t keeps) {
    for (std::size_t i = 0; i < 70; ++i)
      step.push_back({.bytes = kUnit * (1 + 5 * i % 17), .name = keeps + i % 12});
  };
  for (std::size_t layer = 0; layer < layer_count; ++layer) {
    forward(kRunAgain);
    step.push_back({.bytes = 16 * kUnit, .name = kKept + layer});
  }
  for (std::size_t layer = layer_count; layer-- > 0;) {
    forward(kRunAgain + 12);
    for (std::size_t i = 0; i < 60; ++i)
      step.push_back({.bytes = kUnit * (1 + 7 * i % 19), .frees_at_once = true});
    for (std::size_t i = 0; i < kWeights; ++i)
      step.push_back({.bytes = kUnit * (1 + i), .name = kGradients + kWeights * layer + i});
    step.push_back({.name = kKept + layer});
  }
  each_weight(step, [&](Program::Step& to, Bytes bytes, std::uint64_t) {
    to.push_back({.bytes = bytes, .frees_at_once = true});
  });
  first.insert(first.end(), step.begin(), step.end());

  Served marked_at_the_start(5, 2), marked(5, 2);
  marked_at_the_start.step({}, 0);
  for (int i = 0; i < 12; ++i) {
    marked_at_the_start.step(i == 0 ? first : step, 1);
    marked.step(i == 0 ? first : step, 1);
  }
  UNSCOPED_INFO(marked_at_the_start.stats().to_line() + '\n' + marked.stats().to_line());
  CHECK(marked.share() >= 0.999);
  // Only a long record is searched for steps where marks may yet come.
  CHECK((marked.stats().plans_learned > 1) == (layer_count == 100));
  CHECK(marked.stats().arena_bound == marked_at_the_start.stats().arena_bound);
  CHECK(marked.sequences() == 1);
  CHECK(marked_at_the_start.sequences() == 1);
  // How near to the bound a search comes depends on how much of the processor it has.
  CHECK(marked.stats().arena <= marked.stats().arena_bound + marked.stats().arena_bound / 50);
}

TEST_CASE("Steps of two kinds in turns of six are served", "[learn][kinds]") {
  Served served;
  for (int turn = 0; turn < 30; ++turn) {
    const auto kind = static_cast<std::size_t>(turn % 2);
    for (int i = 0; i < 6; ++i)
      served.step(Program::training({.layers = 20, .batch = 16 + 16 * kind}), kind);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("Kinds that differ in their last request only are served", "[learn][kinds]") {
  Served served;
  std::mt19937 random(7);
  for (int i = 0; i < 120; ++i) {
    const std::size_t kind = random() % 3;
    Program::Step step = Program::training({.layers = 60, .batch = 16});
    step.push_back({.bytes = 5000 + 1000 * kind, .frees_at_once = true});
    served.step(step, kind);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.995);
}

TEST_CASE("Steps of random lengths are served by a bucket", "[learn][kinds]") {
  // Twenty lengths; any up to 1,024. What counts comes after 50 steps.
  const bool any = GENERATE(false, true);
  const bool zero_first = GENERATE(true, false);
  CAPTURE(any, zero_first);
  Served served(50);
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    const Bytes length = any ? 1 + random() % 1024 : 64 + 48 * (random() % 20);
    served.step(Program::training({.layers = 20, .batch = length, .zero_first = zero_first}), 0);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.98);
  CHECK(served.stats().hits_bucket > 10000);
}

TEST_CASE("Evaluations of random lengths are told from training", "[learn][kinds]") {
  Served served(50);
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    const Program::Shape shape{.layers = 20, .batch = 1 + random() % 1024};
    if (i % 13 < 10) {
      served.step(Program::training(shape), 0);
    } else {
      served.step(Program::evaluation(shape), 1);
    }
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.98);
}

TEST_CASE("Short lengths that take other kernels are served by a bucket of their own",
          "[learn][kinds]") {
  const Bytes most_short = GENERATE(Bytes{100}, Bytes{300});
  CAPTURE(most_short);
  Served served(100);
  std::mt19937 random(7);
  for (int i = 0; i < 600; ++i) {
    const Bytes length = 1 + random() % 1024;
    Program::Step step = Program::training({.layers = 20, .batch = length});
    if (length > most_short) {  // a workspace for each layer's product
      Program::Step longer;
      for (const Program::Operation& one : step) {
        longer.push_back(one);
        if (one.bytes != 0 && one.name != 0 && longer.size() > 40)
          longer.push_back({.bytes = 300 * length, .frees_at_once = true});
      }
      step = longer;
    }
    served.step(step, 0);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.98);
}

TEST_CASE("Evaluations that no mark ends are planned apart from the training that follows",
          "[learn][kinds]") {
  const std::size_t trainings = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{4});
  CAPTURE(trainings);
  Served served(20);
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    // Of several sizes and as many in a row as chance says: hardly two steps are alike.
    for (std::size_t left = random() % 4; left > 0; --left) {
      const std::size_t of = random() % 2;
      served.step(Program::evaluation({.layers = 30, .batch = 64 + 32 * of}), 8 + of, false);
    }
    const std::size_t of = random() % trainings;
    served.step(Program::training({.layers = 30, .batch = 32 + 8 * of}), of);
  }
  UNSCOPED_INFO(served.stats().to_line());
  CHECK(served.share() >= 0.985);
  CHECK(served.stats().plans_learned <= 6);
}

TEST_CASE("Evaluations that come in other numbers each time are planned after a few",
          "[learn][kinds]") {
  Served served(0);
  const auto train = Program::training({.layers = 30, .batch = 32});
  const auto evaluate = Program::evaluation({.layers = 30, .batch = 64});
  for (int i = 0; i < 6; ++i) served.step(train, 0);
  const auto evaluated = [&](int times) {
    for (int i = 0; i < times; ++i) served.step(evaluate, 1, false);
    served.step(train, 0);
  };
  for (int times = 1; times <= 5; ++times) evaluated(times);
  const Stats before = served.stats();
  for (int times = 6; times <= 9; ++times) evaluated(times);
  const Stats after = served.stats();
  CHECK(after.hits - before.hits == after.requests - before.requests);
}

TEST_CASE("Batches that grow from step to step are planned at growing distances",
          "[learn][kinds]") {
  Served served(0);
  for (Bytes i = 0; i < 500; ++i)
    served.step(Program::training({.layers = 20, .batch = 100 + i}), 0);
  CHECK(served.stats().plans_learned >= 4);
  CHECK(served.stats().plan_searches <= 24);
}

TEST_CASE("A step that is larger than its bucket makes the plan grow at the next mark",
          "[learn][kinds]") {
  Served served(0);
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i)
    served.step(Program::training({.layers = 20, .batch = 1 + random() % 100}), 0);
  const Stats before = served.stats();
  served.step(Program::training({.layers = 20, .batch = 180}), 0);
  const Stats larger = served.stats();
  CHECK(larger.misses_size > before.misses_size);
  CHECK(larger.plans_learned == before.plans_learned + 1);
  served.step(Program::training({.layers = 20, .batch = 179}), 0);
  served.step(Program::training({.layers = 20, .batch = 178}), 0);
  CHECK(served.stats().misses_size == larger.misses_size);
}

TEST_CASE("A step that is far larger than its bucket has room in it once it comes again",
          "[learn][kinds]") {
  Served served(0);
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i)
    served.step(Program::training({.layers = 20, .batch = 1 + random() % 100}), 0);
  const Stats before = served.stats();
  served.step(Program::training({.layers = 20, .batch = 1000}), 0);
  CHECK(served.stats().arena == before.arena);
  CHECK(served.stats().plans_learned == before.plans_learned);
  for (const Bytes batch : {999, 998})
    served.step(Program::training({.layers = 20, .batch = batch}), 0);
  const Stats again = served.stats();
  CHECK(again.arena > before.arena);
  served.step(Program::training({.layers = 20, .batch = 997}), 0);
  CHECK(served.stats().misses_size == again.misses_size);
}

TEST_CASE("A request that is refused, or far larger than all others, grows no bucket",
          "[learn][kinds]") {
  const auto huge = GENERATE(Bytes{1} << 40, Bytes{1} << 30);
  CAPTURE(huge);
  const auto device = make_host_device(Bytes{2} << 30);
  Allocator::Options options;
  options.start_threads = false;
  options.config.plan_time_limit_seconds = 0.1;
  Allocator allocator(*device, options);
  std::mt19937 random(5);
  Stats before;
  for (int step = 0; step < 800; ++step) {
    if (step == 400) before = allocator.stats();
    const Bytes length = 1 + random() % 1024;
    std::vector<void*> live;
    for (Bytes i = 0; i < 60; ++i) {
      if (step == 400 && i == 31) {
        try {
          allocator.free(allocator.allocate(huge, 0));
        } catch (const OutOfMemory&) {  // as programs do that skip a batch
        }
        break;
      }
      live.push_back(
          allocator.allocate(i % 3 != 0 ? 64 * length * (1 + i % 7) : 4096 * (1 + i % 5), 0));
      if (live.size() > 4) {
        allocator.free(live.front());
        live.erase(live.begin());
      }
    }
    for (void* const pointer : live) allocator.free(pointer);
    allocator.mark_step(0);
  }
  const Stats after = allocator.stats();
  CHECK(after.arena <= 2 * before.arena);
  CHECK(static_cast<double>(after.hits + after.hits_bucket - before.hits - before.hits_bucket) >=
        0.98 * static_cast<double>(after.requests - before.requests));
}

TEST_CASE("Kinds of steps whose blocks cross a mark hold little more than lives",
          "[learn][kinds]") {
  const auto count = GENERATE(std::size_t{2}, std::size_t{4}, std::size_t{16}, std::size_t{64});
  CAPTURE(count);
  test::SimulatedDevice device(
      {.total_bytes = Bytes{64} << 30, .page_bytes = Bytes{2} << 20, .maps_pages = true});
  const auto held = [&](Mode mode) {
    Allocator::Options options;
    options.alignment = 512;
    options.config.mode = mode;
    options.pool.growth_bytes = options.pool.resident_growth_bytes = Bytes{2} << 20;
    options.start_threads = false;
    options.config.plan_time_limit_seconds = 0.1;
    Allocator allocator(device, options);
    std::mt19937 random(5);
    std::vector<std::vector<Bytes>> kinds(count);
    for (std::vector<Bytes>& kind : kinds) {
      kind.resize(50 + random() % 150);
      for (Bytes& bytes : kind) bytes = 512 * (1 + random() % 8000);
    }
    std::vector<void*> kept;
    for (int step = 0; step < 600; ++step) {
      const std::vector<Bytes>& kind = kinds[random() % count];
      std::vector<void*> live, crossing;
      for (std::size_t i = 0; i < kind.size(); ++i) {
        (i % 9 == 0 ? crossing : live).push_back(allocator.allocate(kind[i], 0));
        if (live.size() > 6) {
          allocator.free(live.front());
          live.erase(live.begin());
        }
      }
      for (void* const pointer : live) allocator.free(pointer);
      for (void* const pointer : kept) allocator.free(pointer);
      kept = crossing;
      allocator.mark_step(0);
    }
    const Stats stats = allocator.stats();
    for (void* const pointer : kept) allocator.free(pointer);
    return static_cast<double>(stats.reserved_peak) / static_cast<double>(stats.live_peak);
  };
  CHECK(held(Mode::kLearn) <= 1.1 * held(Mode::kOff));
}

TEST_CASE("A cycle whose steps come in other turns is left after one that misses",
          "[learn][kinds]") {
  Served served(0);
  const auto one = Program::training({.layers = 20, .batch = 16, .zero_first = false});
  const auto other = Program::training({.layers = 20, .batch = 40, .zero_first = false});
  for (int round = 0; round < 10; ++round) {
    served.step(one, 0);
    served.step(other, 1);
  }
  CHECK(served.stats().plans_learned == 1);
  served.step(other, 1);
  const Stats before = served.stats();
  for (const auto& step : {other, other, one, one, other}) served.step(step, 0);
  const Stats after = served.stats();
  CHECK(after.hits - before.hits == after.requests - before.requests);
}

TEST_CASE("Kinds that come in the same turns for long are planned as a cycle", "[learn][kinds]") {
  Served served(0);
  const auto one = Program::training({.layers = 20, .batch = 16, .zero_first = false});
  const auto other = Program::training({.layers = 20, .batch = 40, .zero_first = false});
  std::mt19937 random(11);
  for (int i = 0; i < 40; ++i) served.step(random() % 2 == 0 ? one : other, 0);
  const std::uint64_t plans = served.stats().plans_learned;
  CHECK(plans != 0);
  const auto turn = [&] {
    served.step(one, 0);
    served.step(other, 0);
  };
  for (int round = 0; round < 64; ++round) turn();
  CHECK(served.stats().plans_learned == plans + 1);
  const Stats before = served.stats();
  for (int round = 0; round < 64; ++round) turn();
  const Stats after = served.stats();
  CHECK(after.plans_learned == before.plans_learned);
  CHECK(after.hits - before.hits == after.requests - before.requests);
  // They come in other turns again.
  for (int i = 0; i < 40; ++i) served.step(random() % 2 == 0 ? one : other, 0);
  const Stats turned = served.stats();
  for (int i = 0; i < 20; ++i) served.step(random() % 2 == 0 ? one : other, 0);
  const Stats last = served.stats();
  CHECK(static_cast<double>(last.hits - turned.hits) >=
        0.95 * static_cast<double>(last.requests - turned.requests));
}

TEST_CASE("Ten thousand kinds cost a search now and then", "[learn][kinds]") {
  Served served(3, 0.01);
  for (std::size_t i = 0; i < 10000; ++i) {
    const auto step = Program::evaluation({.layers = 1 + i % 100, .batch = 32 * (100 - i / 100)});
    for (int times = 0; times < 2; ++times) served.step(step, 0);
  }
  CHECK(served.stats().plan_searches < 300);
}

TEST_CASE("Kinds of steps of which one is the beginning of another stay apart", "[learn][kinds]") {
  // Few requests, with other lifetimes in each kind; later some marks and requests are missing.
  const unsigned seed = GENERATE(range(401u, 425u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.start_threads = false;
  options.config.plan_time_limit_seconds = 0.01;
  test::CheckedAllocator allocator(*device, options);
  const unsigned shorter = 3 + below(9), longer = shorter + 4 + below(14);
  std::vector<Bytes> sizes(longer);
  for (Bytes& size : sizes) size = 64 * (1 + below(40));
  std::vector<void*> kept;
  for (int step = 0; step < 200; ++step) {
    const bool is_longer = below(3) == 0;
    std::vector<void*> live;
    for (unsigned i = 0; i < (is_longer ? longer : shorter); ++i) {
      if (step > 60 && below(40) == 0) continue;
      Bytes size = sizes[i];
      if (step > 60 && below(60) == 0) size = 64 * (1 + below(60));
      void* const pointer = allocator.allocate(size, 0);
      (i % 3 == 0 && i < shorter && !is_longer ? kept : live).push_back(pointer);
      if (live.size() > 2) {
        allocator.free(live.front());
        live.erase(live.begin());
      }
    }
    for (void* const pointer : live) allocator.free(pointer);
    if (is_longer || kept.size() > 40) {
      for (void* const pointer : kept) allocator.free(pointer);
      kept.clear();
    }
    if (step < 60 || below(4) != 0) allocator.mark_step(0);
  }
  for (void* const pointer : kept) allocator.free(pointer);
}
