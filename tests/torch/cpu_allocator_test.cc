#include "csrc/torch/cpu_allocator.h"

#include "tests/catch.h"

#include <berth/torch.h>
#include <berth/warnings.h>

#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

// libtorch's allocator, which is berth's from here on.
c10::Allocator& allocator() {
  berth::Config config;
  config.mode = berth::Mode::kLearn;
  berth::torch::install(config);
  return *c10::GetCPUAllocator();
}

// What a profiler hangs into a thread to hear of memory.
class Listener : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    changes.push_back(bytes);
  }
  void reportOutOfMemory(int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    refused.push_back(bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::vector<int64_t> changes, refused;
};

// Collects warnings for its life.
class Warnings {
 public:
  Warnings() {
    berth::set_warning_sink(
        [this](std::string_view name, const std::string&) { names.emplace_back(name); });
  }
  ~Warnings() { berth::set_warning_sink({}); }
  std::vector<std::string> names;
};

}  // namespace

TEST_CASE("libtorch's CPU allocator is berth's after the install", "[torch]") {
  c10::Allocator& ours = allocator();
  REQUIRE(berth::torch::installed());
  REQUIRE(dynamic_cast<berth::torch::CpuAllocator*>(&ours) != nullptr);
  berth::torch::install();  // a second call changes nothing
  REQUIRE(c10::GetCPUAllocator() == &ours);
}

TEST_CASE("Blocks are aligned to 64 bytes and their own context", "[torch]") {
  for (const std::size_t bytes : {1, 63, 64, 65, 4096, 100000, 40 << 20}) {
    const c10::DataPtr block = allocator().allocate(bytes);
    REQUIRE(reinterpret_cast<std::uintptr_t>(block.get()) % 64 == 0);
    REQUIRE(block.get_context() == block.get());
    REQUIRE(block.get_deleter() == allocator().raw_deleter());
    REQUIRE(block.device() == c10::Device(c10::DeviceType::CPU));
    REQUIRE(allocator().is_simple_data_ptr(block));
    std::memset(block.get(), 0xA5, bytes);
  }
}

TEST_CASE("Size 0 gives a null block and frees nothing", "[torch]") {
  c10::Allocator& ours = allocator();
  const auto before = berth::torch::stats();
  {
    const c10::DataPtr block = ours.allocate(0);
    REQUIRE(block.get() == nullptr);
  }
  const auto after = berth::torch::stats();
  REQUIRE(after.frees == before.frees);
  REQUIRE(after.misuses == before.misuses);
}

TEST_CASE("The raw interface and clone work", "[torch]") {
  c10::Allocator& ours = allocator();
  void* raw = ours.raw_allocate(1000);
  std::memset(raw, 0x5A, 1000);
  {
    const c10::DataPtr copy = ours.clone(raw, 1000);
    REQUIRE(copy.get() != raw);
    REQUIRE(std::memcmp(copy.get(), raw, 1000) == 0);
  }
  const auto before = berth::torch::stats();
  ours.raw_deallocate(raw);
  REQUIRE(berth::torch::stats().frees == before.frees + 1);
}

TEST_CASE("A profiler hears of every request and free", "[torch][profiler]") {
  c10::Allocator& ours = allocator();
  const auto listener = std::make_shared<Listener>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, listener);
    { const c10::DataPtr block = ours.allocate(1000); }
    const c10::DataPtr empty = ours.allocate(0);
  }
  { const c10::DataPtr block = ours.allocate(2000); }  // nobody listens
  REQUIRE(listener->changes == std::vector<int64_t>{1000, -1000});
}

TEST_CASE("Exhausted memory is the error that libtorch's users catch", "[torch][errors]") {
  c10::Allocator& ours = allocator();
  const auto listener = std::make_shared<Listener>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, listener);
  constexpr std::size_t kTooMuch = std::size_t{1} << 50;
  try {
    const c10::DataPtr block = ours.allocate(kTooMuch);
    FAIL("a petabyte was handed out");
  } catch (const c10::OutOfMemoryError& error) {
    REQUIRE_THAT(error.what_without_backtrace(),
                 Catch::Matchers::StartsWith(
                     "DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                     "1125899906842624 bytes"));
  }
  REQUIRE(listener->refused == std::vector<int64_t>{kTooMuch});
  // A negative size, as an overflow makes it.
  REQUIRE_THROWS_AS(ours.allocate(static_cast<std::size_t>(-64)), c10::Error);
  const c10::DataPtr small = ours.allocate(64);  // and life goes on
  REQUIRE(small.get() != nullptr);
}

TEST_CASE("A second free and an unknown pointer are left alone and warned of once",
          "[torch][errors]") {
  c10::Allocator& ours = allocator();
  const Warnings warnings;
  const auto misuses = berth::torch::stats().misuses;
  for (int i = 0; i < 3; ++i) {
    void* block = ours.raw_allocate(4096);
    ours.raw_deallocate(block);
    ours.raw_deallocate(block);
    alignas(64) char foreign[64];
    ours.raw_deallocate(foreign);
  }
  REQUIRE(warnings.names == std::vector<std::string>{"double-free", "unknown-pointer"});
  REQUIRE(berth::torch::stats().misuses == misuses + 6);
}

TEST_CASE("Threads request and free each other's blocks", "[torch][threads]") {
  c10::Allocator& ours = allocator();
  const auto before = berth::torch::stats();
  constexpr int kThreads = 4, kBlocks = 500;
  std::vector<std::vector<c10::DataPtr>> made(kThreads);
  const auto each = [&](const auto& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&work, t] { work(t); });
    for (std::thread& thread : threads) thread.join();
  };
  each([&](int t) {
    std::mt19937 random(static_cast<unsigned>(t));
    for (int i = 0; i < kBlocks; ++i) {
      const std::size_t bytes = 1 + random() % 20000;
      made[t].push_back(ours.allocate(bytes));
      std::memset(made[t].back().get(), t, bytes);
      if (random() % 3 == 0) made[t].pop_back();
    }
  });
  bool intact = true;
  for (int t = 0; t < kThreads; ++t)
    for (const c10::DataPtr& block : made[t])
      intact = intact && *static_cast<const char*>(block.get()) == t;
  REQUIRE(intact);
  each([&](int t) { made[(t + 1) % kThreads].clear(); });
  const auto after = berth::torch::stats();
  REQUIRE(after.requests == before.requests + kThreads * kBlocks);
  REQUIRE(after.frees == before.frees + kThreads * kBlocks);
  REQUIRE(after.live == before.live);
  REQUIRE(after.misuses == before.misuses);
}

TEST_CASE("Scopes nest and end", "[torch]") {
  (void)allocator();
  const berth::torch::Scope outer("encoder");
  { const berth::torch::Scope inner("attention"); }
  const c10::DataPtr block = allocator().allocate(100);
  REQUIRE(block.get() != nullptr);
}
