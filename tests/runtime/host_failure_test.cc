// A host that has no memory or no threads left: this program's own allocations and threads fail on
// demand.

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/fed_learner.h"
#include "tests/support/host_faults.h"
#include "tests/support/lone_arena.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"

#include <berth/warnings.h>

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace berth;
using namespace berth::test;

static bool g_no_threads = false;
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return g_no_threads ? EAGAIN : create(thread, attributes, start, argument);
}

void* operator new(std::size_t size) { return HostFaults::allocate(size, sizeof(void*)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return HostFaults::allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

// An allocator on two lanes of a device, and what is live on it.
struct Program {
  Program() { blocks.reserve(4096); }

  void start(const std::function<void(Allocator::Options&)>& change = {}) {
    const HostFaults::Pause pause;
    options.start_threads = false;
    options.captures = &captures;
    if (change) change(options);
    allocator.emplace(device, options);
  }
  // What the program gets; null where it is refused for want of memory.
  void* allocate(Bytes size, LaneKey lane = 0) {
    try {
      void* const block = allocator->allocate(size, lane);
      const HostFaults::Pause pause;
      simulated.hand_out(lane, block, size);
      blocks.push_back(block);
      return block;
    } catch (const std::bad_alloc&) {
    } catch (const OutOfMemory&) {
    }
    return nullptr;
  }
  void use(void* block, LaneKey lane) {
    if (block == nullptr) return;
    try {
      allocator->record_use(block, lane);
      const HostFaults::Pause pause;
      simulated.touch(lane, block, 1);
    } catch (const std::bad_alloc&) {
    }
  }
  void free(void* block) {
    if (block == nullptr) return;
    std::erase(blocks, block);
    if (allocator->free(block) != Allocator::FreeOutcome::kDone) lost = true;
  }
  void free_all() {
    while (!blocks.empty()) free(blocks.back());
  }
  // A step of four requests, the last two of which are used on lane 1.
  void step(Bytes unit = 4096) {
    void* const kept = allocate(3 * unit);
    free(allocate(unit));
    void* const used = allocate(2 * unit);
    use(used, 1);
    free(kept);
    void* const moved = allocate(5 * unit);
    use(moved, 1);
    free(used);
    free(moved);
    allocator->mark_step(0);
  }

  SimulatedDevice simulated{{.total_bytes = 64 * kMiB}};
  UnfailingDevice device{simulated};
  std::atomic<int> captures{0};
  Allocator::Options options;
  std::optional<Allocator> allocator;
  std::vector<void*> blocks;
  bool lost = false;
  TemporaryFolder folder;
};

struct Scenario {
  const char* name;
  void (*prepare)(Program&);
  void (*act)(Program&);
};

void serve(Program& program) {
  program.start();
  for (int i = 0; i < 6; ++i) program.step();
}

const Scenario kScenarios[] = {
    {"start", [](Program& program) { program.options.config.check = CheckLevel::kFull; },
     [](Program& program) {
       try {
         program.allocator.emplace(program.device, program.options);
       } catch (const std::bad_alloc&) {
       } catch (const Error&) {
       }
       if (!program.allocator) program.start();
     }},
    {"hit", serve, [](Program& program) { program.step(); }},
    {"hit, checked",
     [](Program& program) {
       program.options.config.check = CheckLevel::kFull;
       serve(program);
     },
     [](Program& program) { program.step(); }},
    {"miss", serve,
     [](Program& program) {
       for (Bytes i = 1; i < 40; ++i) program.allocate(i * 1000, i % 3);
       program.step(8192);
     }},
    {"growth", [](Program& program) { program.start(); },
     [](Program& program) {
       for (int i = 0; i < 3; ++i) {
         for (Bytes size = 64; size < 4 * kMiB; size *= 4) program.allocate(size);
         program.allocator->mark_step(0);
       }
     }},
    {"release",
     [](Program& program) {
       serve(program);
       for (int i = 0; i < 20; ++i) program.use(program.allocate(kMiB / 2, i % 2), 2);
       program.use(program.allocate(3 * 4096), 1);
     },
     [](Program& program) {
       program.free_all();
       (void)program.allocator->trim();
       (void)program.allocator->trim();
     }},
    {"exhaustion",
     [](Program& program) {
       serve(program);
       program.use(program.allocate(8 * kMiB), 1);
     },
     [](Program& program) {
       while (program.allocate(8 * kMiB) != nullptr) {
       }
       program.free_all();
       program.allocate(48 * kMiB);
     }},
    {"two streams", [](Program& program) { program.start(); },
     [](Program& program) {
       for (int i = 0; i < 20; ++i) {
         void* const block = program.allocate(4096 * Bytes(1 + i), i % 2);
         program.use(block, 1 - i % 2);
         program.use(block, 5 + i % 4);
         if (block != nullptr) {
           std::erase(program.blocks, block);
           (void)program.allocator->free(block, 3);
         }
       }
       program.allocator->process_events();
     }},
    {"capture", serve,
     [](Program& program) {
       void* const block = program.allocate(4096 * 3);
       void* const pooled = program.allocate(kMiB);
       program.use(pooled, 1);
       bool pinned[2] = {false, false};
       program.simulated.set_capturing(1, true);
       program.captures = 1;
       try {
         pinned[0] = block != nullptr && program.allocator->pin(block);
         pinned[1] = pooled != nullptr && program.allocator->pin(pooled);
       } catch (const std::bad_alloc&) {
       }
       program.use(block, 1);
       program.free(block);
       program.free(pooled);
       program.step();
       program.captures = 0;
       program.simulated.set_capturing(1, false);
       if (pinned[0]) (void)program.allocator->unpin(block);
       if (pinned[1]) (void)program.allocator->unpin(pooled);
       program.step();
     }},
    {"switch", [](Program& program) { program.start(); },
     [](Program& program) {
       for (int i = 0; i < 6; ++i) program.step();
       try {
         program.allocator->load_plan(plan_of({sequence_of({{0, 128, 2}, {128, 64, 1}})}));
       } catch (const std::bad_alloc&) {
       } catch (const Error&) {
       }
       program.step();
     }},
    {"record",
     [](Program& program) {
       program.start([&](Allocator::Options& options) {
         options.config.mode = Mode::kRecord;
         options.config.trace = program.folder / "run.trace";
       });
     },
     [](Program& program) {
       for (int i = 0; i < 3; ++i) program.step();
     }},
    {"what an exporter asks", serve,
     [](Program& program) {
       void* const block = program.allocate(3 * 4096);
       (void)program.allocator->find(block);
       try {
         if (block != nullptr && program.allocator->pin(block))
           (void)program.allocator->unpin(block);
         program.allocator->for_each_stretch([](const Stretch&, bool) {});
       } catch (const std::bad_alloc&) {
       }
     }},
    {"exit",
     [](Program& program) {
       program.start([&](Allocator::Options& options) {
         options.config.mode = Mode::kRecord;
         options.config.trace = program.folder / "run.trace";
         options.config.stats = program.folder / "stats.json";
       });
       program.step();
     },
     [](Program& program) {
       program.allocator->before_fork();
       program.allocator->after_fork_in_parent();
       program.allocator->shut_down();
       program.free_all();
     }},
};

// What is wrong after the n-th allocation failed; empty where nothing is. `met` is whether it was.
std::string run(const Scenario& scenario, long n, bool all_later, bool* met) {
  std::string wrong;
  Program program;
  const SimulatedDevice& device = program.simulated;
  scenario.prepare(program);
  HostFaults::arm(n, all_later);
  scenario.act(program);
  *met = HostFaults::disarm();
  Allocator& allocator = *program.allocator;
  if (wrong.empty()) wrong = allocator.is_valid();
  program.free_all();
  allocator.process_events();
  if (program.lost) wrong = "a block that was handed out was not known";
  if (wrong.empty()) wrong = allocator.is_valid();
  if (wrong.empty()) wrong = inconsistency(allocator.stats());
  if (wrong.empty() && allocator.stats().live != 0) wrong = "blocks leaked";
  // A fresh workload passes, and nothing is kept back.
  (void)allocator.trim();
  (void)allocator.trim();
  (void)allocator.trim();
  if (wrong.empty() && allocator.stats().reserved != 0)
    wrong = fmt::format("{} bytes stay reserved", allocator.stats().reserved);
  for (int i = 0; i < 3; ++i) program.step();
  if (wrong.empty() && (program.lost || allocator.stats().live != 0)) wrong = "later blocks leaked";
  program.allocator.reset();
  if (wrong.empty() && device.live_events() != 0) wrong = "events leaked";
  if (wrong.empty() && device.live_ranges() != 0) wrong = "ranges leaked";
  if (wrong.empty() && !device.violations().empty()) wrong = device.violations().front();
  return wrong;
}

}  // namespace

TEST_CASE("Whichever host allocation fails the allocator stays whole and leaks nothing",
          "[runtime][fault_loop]") {
  set_warning_sink([](std::string_view, const std::string&) {});
  for (const Scenario& scenario : kScenarios) {
    for (const bool all_later : {false, true}) {
      bool met = true;
      long n = 0;
      while (met) {
        n += test::stride(n);
        const std::string wrong = run(scenario, n, all_later, &met);
        CAPTURE(scenario.name, all_later, n);
        REQUIRE(wrong == "");
      }
      REQUIRE(n > 1);  // it asked for memory at all
    }
  }
  set_warning_sink({});
}

TEST_CASE("A larger plan that there is no host memory for takes nothing from the one before",
          "[arena][fault_loop]") {
  const auto small = look(plan_of({sequence_of({{0, 64, 1}})}));
  const auto larger = look(plan_of({sequence_of({{kMiB, 64, 1}})}));
  bool met = true;
  for (long n = 1; met; ++n) {
    SimulatedDevice simulated;
    UnfailingDevice device(simulated);
    LoneArena arena(device);
    simulated.fail_call(1, {Status::Code::kOutOfMemory, "test"}, CallKind::kReserve);
    REQUIRE(arena.activate(small, Arena::Pages::kNow).ok());  // in a range of its own size
    (void)arena.mark(0);
    HostFaults::arm(n, false);
    bool short_of_memory = false;
    try {
      (void)arena.activate(larger, Arena::Pages::kNow);
    } catch (const std::bad_alloc&) {
      short_of_memory = true;
    }
    met = HostFaults::disarm();
    if (!short_of_memory) continue;
    CAPTURE(n);
    REQUIRE(arena.allocate(64, 0, 0).served == Served::kHit);
    REQUIRE(arena.committed() != 0);
    REQUIRE(arena.is_valid() == "");
  }
}

TEST_CASE("A planning thread without host memory makes no plan and ends nothing",
          "[runtime][fault_loop]") {
  HostFaults::others_fail(true);
  {
    Program program;
    program.start([](Allocator::Options& options) { options.start_threads = true; });
    for (int i = 0; i < 50; ++i) {
      program.step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(program.allocator->stats().plans_learned == 0);
    program.free_all();
    CHECK(program.allocator->is_valid() == "");
  }
  HostFaults::others_fail(false);
}

TEST_CASE("A planning thread that cannot start costs no request", "[arena][lanes]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.config.mode = Mode::kLearn;
  test::CheckedAllocator allocator(*device, options);
  std::string thrown;
  Bytes live = 0;
  g_no_threads = true;
  for (int i = 0; i < 200000 && thrown.empty(); ++i) {
    try {
      live = allocator.stats().live;
      allocator.free(allocator.allocate(64 * (1 + i % 8), 1));
    } catch (const std::exception& e) {
      thrown = e.what();
    }
  }
  g_no_threads = false;
  CHECK(thrown == "");
  CHECK(allocator.stats().live == live);
}

TEST_CASE("What learning hears of takes no host memory", "[learn]") {
  FedLearner run;
  HostFaults::arm(1, true);
  for (trace::BlockId id = 1; id <= 4000; ++id) {
    const LaneKey lane = id % 300;
    run.learner.request(id, 64 * id, lane, 0);
    run.learner.use(id, lane + 1);
    run.learner.free(id);
    (void)run.learner.mark(lane);
  }
  run.learner.watch();
  run.learner.start();
  REQUIRE_FALSE(HostFaults::disarm());
}
