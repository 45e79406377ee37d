// The options of berth_init() on a GPU, the stand-in's. Each hidden case is a process of its own:
// devices are made once.

#include "tests/catch.h"
#include "tests/support/run_program.h"

#include <berth/berth.h>

#include <cstddef>
#include <cstdint>
#include <string>

using berth::test::ProgramResult;
using berth::test::run_program;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string statistics_json() {
  std::string text(1 << 16, '\0');
  std::size_t needed = 0;
  REQUIRE(berth_statistics_json(0, text.data(), text.size(), &needed) == BERTH_OK);
  text.resize(needed - 1);
  return text;
}

bool memory_is(const char* form) {
  return statistics_json().find("\"device_memory\": \"" + std::string(form)) != std::string::npos;
}

// Driver calls that 64 MiB cost, with the device made.
std::uint64_t calls_of_growth() {
  void* const first = berth_malloc(1000, 0, nullptr);
  INFO(berth_last_error());
  REQUIRE(first != nullptr);
  berth_statistics before{};
  before.size = sizeof before;
  REQUIRE(berth_get_statistics(0, &before) == BERTH_OK);
  void* const block = berth_malloc(64 * kMiB, 0, nullptr);
  REQUIRE(block != nullptr);
  berth_statistics after{};
  after.size = sizeof after;
  REQUIRE(berth_get_statistics(0, &after) == BERTH_OK);
  berth_free(block, 0, 0, nullptr);
  berth_free(first, 0, 0, nullptr);
  return after.driver_calls - before.driver_calls;
}

void passes(const char* hidden_case, const std::string& driver = "full") {
  const ProgramResult result =
      run_program({"/proc/self/exe", hidden_case}, {{"BERTH_STANDIN_DRIVER", driver}});
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
}

}  // namespace

TEST_CASE("The C ABI takes a GPU's memory in the form that its options name", "[capi][options]") {
  passes("[.plain]");
  passes("[.virtual]");
  passes("[.older]");
}

TEST_CASE("The C ABI refuses virtual memory where the driver has none", "[capi][options]") {
  passes("[.refused]", "no-virtual");
}

TEST_CASE("The C ABI makes memory in handles of the size that its options name",
          "[capi][options]") {
  passes("[.handle]");
}

TEST_CASE("A form of memory that is none is refused by name", "[capi][options]") {
  berth_options options{};
  options.size = sizeof options;
  options.memory = "unified";
  CHECK(berth_init(&options) == BERTH_USAGE);
  CHECK(std::string(berth_last_error()) ==
        "berth_options.memory is 'unified': there are auto, virtual, plain");
}

TEST_CASE("Options say plain", "[.plain]") {
  berth_options options{};
  options.size = sizeof options;
  options.memory = "plain";
  REQUIRE(berth_init(&options) == BERTH_OK);
  CHECK(calls_of_growth() > 0);
  CHECK(memory_is("plain, as requested"));
}

TEST_CASE("Options say virtual", "[.virtual]") {
  berth_options options{};
  options.size = sizeof options;
  options.memory = "virtual";
  REQUIRE(berth_init(&options) == BERTH_OK);
  CHECK(calls_of_growth() > 0);
  CHECK(memory_is("virtual"));
}

TEST_CASE("Options say virtual to a driver without", "[.refused]") {
  berth_options options{};
  options.size = sizeof options;
  options.memory = "virtual";
  REQUIRE(berth_init(&options) == BERTH_OK);
  CHECK(berth_malloc(1000, 0, nullptr) == nullptr);
  CHECK(std::string(berth_last_error()).find("virtual memory was requested") != std::string::npos);
}

// A caller that was compiled against version 1.3: what lies behind its struct is not read.
TEST_CASE("Options are those of an older header", "[.older]") {
  berth_options options{};
  options.size = offsetof(berth_options, memory);
  options.memory = "behind the end";
  options.handle = 1;
  REQUIRE(berth_init(&options) == BERTH_OK);
  CHECK(calls_of_growth() > 0);
  CHECK(memory_is("virtual"));
}

// Of 2 MiB each 64 MiB are 32 handles, of 32 MiB two.
TEST_CASE("Options say large handles", "[.handle]") {
  berth_options options{};
  options.size = sizeof options;
  options.handle = 32 * kMiB;
  REQUIRE(berth_init(&options) == BERTH_OK);
  CHECK(calls_of_growth() < 20);
}
