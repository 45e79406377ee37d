#include "tests/catch.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_folder.h"

#include <berth/berth.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" int berth_use_from_c(void);

namespace {

// The order of requests that a number stands for, on the host.
void* lane(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

std::string last_error() { return berth_last_error(); }

berth_statistics statistics() {
  berth_statistics result{};
  result.size = sizeof result;
  REQUIRE(berth_get_statistics(BERTH_HOST, &result) == BERTH_OK);
  CHECK(result.hits + result.misses <= result.requests);
  CHECK(result.frees <= result.requests);
  CHECK(result.live_bytes <= result.live_peak_bytes);
  CHECK(result.live_bytes <= result.reserved_bytes);
  CHECK(result.reserved_bytes <= result.reserved_peak_bytes);
  return result;
}

// One step: a few blocks, some of them freed late.
void step() {
  void* const a = berth_malloc(4096, BERTH_HOST, nullptr);
  void* const b = berth_malloc(70000, BERTH_HOST, nullptr);
  berth_free(a, 4096, BERTH_HOST, nullptr);
  void* const c = berth_malloc(20000, BERTH_HOST, nullptr);
  std::memset(b, 1, 70000);
  berth_free(b, 70000, BERTH_HOST, nullptr);
  berth_free(c, 20000, BERTH_HOST, nullptr);
  REQUIRE(berth_mark_step(BERTH_HOST, nullptr) == BERTH_OK);
}

}  // namespace

TEST_CASE("A C program allocates and frees and reads statistics", "[capi]") {
  CHECK(berth_use_from_c() == 0);
  CHECK(berth_abi_version() >> 16 == BERTH_ABI_MAJOR);
}

TEST_CASE("Blocks of the C ABI are aligned to 512 bytes and null for no bytes", "[capi]") {
  CHECK(berth_malloc(0, BERTH_HOST, nullptr) == nullptr);
  berth_free(nullptr, 0, BERTH_HOST, nullptr);
  std::vector<void*> blocks;
  for (const std::size_t size : {1, 511, 513, 100000}) {
    blocks.push_back(berth_malloc(size, BERTH_HOST, nullptr));
    CHECK(reinterpret_cast<std::uintptr_t>(blocks.back()) % 512 == 0);
  }
  for (void* block : blocks) CHECK(berth_release(block, 0, BERTH_HOST, nullptr) == BERTH_OK);
}

TEST_CASE("Misuse of the C ABI is a code and a text that names it", "[capi][misuse]") {
  void* const block = berth_malloc(1000, BERTH_HOST, nullptr);
  CHECK(berth_release(block, 999, BERTH_HOST, nullptr) == BERTH_USAGE);
  CHECK(last_error().find("999") != std::string::npos);
  CHECK(last_error().find("1000") != std::string::npos);
  CHECK(berth_release(static_cast<char*>(block) + 8, 0, BERTH_HOST, nullptr) == BERTH_USAGE);
  CHECK(berth_release(block, 1000, BERTH_HOST, nullptr) == BERTH_OK);
  CHECK(berth_release(block, 1000, BERTH_HOST, nullptr) == BERTH_USAGE);
  CHECK(last_error().find("freed before") != std::string::npos);
  int outside = 0;
  CHECK(berth_release(&outside, 0, BERTH_HOST, nullptr) == BERTH_USAGE);
  CHECK(berth_release(&outside, 0, 5, nullptr) == BERTH_USAGE);
  CHECK(berth_malloc(8, -2, nullptr) == nullptr);
  CHECK(last_error().find("-2") != std::string::npos);
  CHECK(berth_malloc(SIZE_MAX / 2, BERTH_HOST, nullptr) == nullptr);
  CHECK_THROWS_AS(berth_malloc_or_throw(SIZE_MAX / 2, BERTH_HOST, nullptr), std::runtime_error);
  CHECK(berth_load_plan(BERTH_HOST, nullptr) == BERTH_USAGE);
  CHECK(berth_load_plan(BERTH_HOST, "/nowhere/at.plan") == BERTH_INPUT);
  CHECK(berth_init(nullptr) == BERTH_USAGE);  // a device is in use
  CHECK(berth_mark_step(7, nullptr) == BERTH_NO);
  CHECK(berth_record_stream(&outside, BERTH_HOST, nullptr) == BERTH_NO);
}

TEST_CASE("A step that repeats is learned and served through the C ABI", "[capi][learn]") {
  const berth::test::TemporaryFolder folder;
  step();
  for (int i = 0; i < 200 && statistics().hits == 0; ++i) {
    step();
    if (i > 20) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const berth_statistics before = statistics();
  CHECK(before.plans_learned >= 1);
  for (int i = 0; i < 10; ++i) step();
  const berth_statistics after = statistics();
  CHECK(after.hits - before.hits == 30);
  CHECK(after.arena_bytes == after.arena_bound_bytes);
  const std::string file = folder / "step.plan";
  REQUIRE(berth_save_plan(BERTH_HOST, file.c_str()) == BERTH_OK);
  CHECK(berth_load_plan(BERTH_HOST, file.c_str()) == BERTH_OK);

  const auto served = berth::test::run_program({"/proc/self/exe", "[.served]"},
                                               {{"BERTH_MODE", "serve"}, {"BERTH_PLAN", file}});
  INFO(served.out);
  CHECK(served.exit_code == 0);
}

// Its own process: the case before this one runs it with a plan to serve.
TEST_CASE("Before the first mark an arena that is planned is not counted as held", "[.served]") {
  void* const block = berth_malloc(4096, BERTH_HOST, nullptr);
  const berth_statistics unmarked = statistics();
  CHECK(unmarked.arena_bytes > 0);
  CHECK(unmarked.reserved_bytes < unmarked.arena_bytes + 4096);
  CHECK(berth_release(block, 0, BERTH_HOST, nullptr) == BERTH_OK);
}

TEST_CASE("Statistics are cut to what the caller knows", "[capi]") {
  berth_statistics none{};
  none.size = sizeof none;
  CHECK(berth_get_statistics(BERTH_HOST - 1, &none) == BERTH_NO);
  berth_free(berth_malloc(8, BERTH_HOST, nullptr), 8, BERTH_HOST, nullptr);
  struct {
    berth_statistics known;
    unsigned char beyond[8];
  } two{};
  std::memset(two.beyond, 0x5a, sizeof two.beyond);
  two.known.size = 2 * sizeof(std::size_t);
  two.known.frees = 77;
  CHECK(berth_get_statistics(BERTH_HOST, &two.known) == BERTH_OK);
  CHECK(two.known.requests > 0);
  CHECK(two.known.frees == 77);
  CHECK(two.beyond[0] == 0x5a);

  std::size_t needed = 0;
  REQUIRE(berth_statistics_json(BERTH_HOST, nullptr, 0, &needed) == BERTH_OK);
  std::string text(needed, 'x');
  REQUIRE(berth_statistics_json(BERTH_HOST, text.data(), text.size(), nullptr) == BERTH_OK);
  CHECK(text.find("\"requests\"") != std::string::npos);
  char small[4];
  REQUIRE(berth_statistics_json(BERTH_HOST, small, sizeof small, &needed) == BERTH_OK);
  CHECK(small[3] == '\0');
}

TEST_CASE("Threads and lanes share the C ABI", "[capi][threads]") {
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 1; t <= 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 2000; ++i) {
        void* const block = berth_malloc(100 * t + i % 7, BERTH_HOST, lane(t));
        std::memset(block, static_cast<int>(t), 100);
        if (i % 3 == 0) (void)berth_record_stream(block, BERTH_HOST, lane(t + 1));
        if (i % 3 == 1) berth_use_on_stream(block, lane(t + 1));
        berth_free(block, 0, BERTH_HOST, lane(i % 2 == 0 ? t : t + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  berth_trim_all();
  CHECK(statistics().live_bytes == 0);
  CHECK(berth_trim(BERTH_HOST) == BERTH_OK);
}
