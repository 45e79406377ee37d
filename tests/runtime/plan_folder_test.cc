// Runs that share a folder of plans.

#include "csrc/core/file.h"
#include "csrc/device/host_device.h"
#include "csrc/plan/file.h"
#include "csrc/plan/folder.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/small_step.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/warnings.h"

#include <berth/error.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

using namespace berth;

namespace {

namespace fs = std::filesystem;
using Step = std::vector<test::Operation>;

// One run of a program whose plans are in a folder.
struct Run {
  explicit Run(const std::string& folder, Mode mode = Mode::kLearn, std::uint32_t rank = 0)
      : device(make_host_device(Bytes{1} << 30)), allocator(*device, options(folder, mode, rank)) {}
  static Allocator::Options options(const std::string& folder, Mode mode, std::uint32_t rank) {
    Allocator::Options options;
    options.config.mode = mode;
    options.config.plan = folder;
    options.program.rank = rank;
    options.program.world_size = 8;
    options.start_threads = false;
    return options;
  }
  void* allocate(Bytes size) { return allocator.allocate(size, 0); }
  void free(void* pointer) { REQUIRE(allocator.free(pointer) == Allocator::FreeOutcome::kDone); }
  // Returns the share of hits.
  double step(const Step& operations, bool mark = true) {
    const Stats before = allocator.stats();
    test::run_step(operations, *this);
    if (mark) allocator.mark_step(0);
    const Stats after = allocator.stats();
    return static_cast<double>(after.hits - before.hits) /
           static_cast<double>(after.requests - before.requests);
  }
  std::unique_ptr<Device> device;
  test::CheckedAllocator allocator;
};

void learn(const std::string& folder, const Step& step, std::uint32_t rank = 0, int steps = 4) {
  Run run(folder, Mode::kLearn, rank);
  for (int i = 0; i < steps; ++i) run.step(step);
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("The second run of a program is planned from its first mark on", "[folder][learn]") {
  const test::TemporaryFolder folder;
  const std::string plans = folder.path() + GENERATE("", "/plans/");
  const Step step = test::training_step(60);
  learn(plans, step);
  REQUIRE(files_in(plans).size() == 1);
  const Mode mode = GENERATE(Mode::kLearn, Mode::kServe);
  Run again(plans, mode);
  again.step(step);
  REQUIRE(again.step(step) == 1.0);
  REQUIRE(again.allocator.stats().plans_found == 1);
  REQUIRE(again.allocator.stats().plan_searches == 0);
  REQUIRE(files_in(plans).size() == 1);
}

TEST_CASE("A program whose model is made before its first step is planned from its first mark on",
          "[folder][learn]") {
  const test::TemporaryFolder folder;
  const Step step = test::training_step(60);
  learn(folder.path(), step);
  Run again(folder.path());
  std::vector<void*> weights;
  for (Bytes i = 0; i < 500; ++i) weights.push_back(again.allocate(4096 * (1 + i % 7)));
  again.step(step);
  REQUIRE(again.step(step) == 1.0);
  for (void* weight : weights) again.free(weight);
}

TEST_CASE("The second run of a program with random lengths is planned from its first steps on",
          "[folder][learn][kinds]") {
  const test::TemporaryFolder folder;
  const auto run = [&](unsigned seed, int steps) {
    Run one(folder.path());
    std::mt19937 random(seed);
    for (int i = 0; i < steps; ++i) one.step(test::training_step(60, 64 * (1 + random() % 200)));
    return one.allocator.stats();
  };
  const Stats first = run(7, 60);
  REQUIRE(first.hits_bucket > 0);
  const Stats second = run(8, 20);
  UNSCOPED_INFO(second.to_line());
  REQUIRE(second.plans_found == 1);
  REQUIRE(second.hits + second.hits_bucket >= second.requests * 8 / 10);
}

TEST_CASE("A second run without marks is planned without a search", "[folder][learn]") {
  const test::TemporaryFolder folder;
  const Step step = test::training_step(60);
  learn(folder.path(), step);
  Run again(folder.path());
  double share = 0;
  for (int i = 0; i < 8; ++i) share = again.step(step, false);
  REQUIRE(share == 1.0);
  REQUIRE(again.allocator.stats().plans_found == 1);
  REQUIRE(again.allocator.stats().plans_learned == 0);
}

TEST_CASE("Of the programs in a folder each finds its own plan", "[folder][learn]") {
  const test::TemporaryFolder folder;
  std::vector<Step> steps;
  for (std::size_t i = 0; i < 6; ++i) steps.push_back(test::training_step(40 + 7 * i));
  for (const Step& step : steps) learn(folder.path(), step, 0, 20);
  REQUIRE(files_in(folder.path()).size() == 6);
  for (const Step& step : steps) {
    Run run(folder.path());
    run.step(step);
    if (run.allocator.stats().plans_found == 0) run.step(step);
    REQUIRE(run.step(step) == 1.0);
    REQUIRE(run.allocator.stats().plans_learned == 0);
  }
}

TEST_CASE("All ranks start from the plan that one of them learned", "[folder][learn]") {
  const test::TemporaryFolder folder;
  const Step step = test::training_step(60);
  learn(folder.path(), step, 3);
  test::Warnings warnings;
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    Run run(folder.path(), Mode::kLearn, rank);
    run.step(step);
    REQUIRE(run.step(step) == 1.0);
  }
  REQUIRE(warnings.names.empty());
}

TEST_CASE("A program that is new to a folder learns and leaves its plan there", "[folder][learn]") {
  const test::TemporaryFolder folder;
  learn(folder.path(), test::training_step(60));
  Run run(folder.path());
  const Step step = test::training_step(31, 8192);
  for (int i = 0; i < 4; ++i) run.step(step);
  REQUIRE(run.step(step) == 1.0);
  REQUIRE(run.allocator.stats().plans_learned == 1);
  REQUIRE(files_in(folder.path()).size() == 2);
}

TEST_CASE("A plan that begins like the run and goes on otherwise is learned anew and kept",
          "[folder][learn]") {
  const test::TemporaryFolder folder;
  const Step one = test::training_step(60);
  Step other = one;
  other.resize(180);  // 60 layers forward, and something else than the way back
  for (int i = 0; i < 40; ++i) other.push_back({1000, 0});
  for (std::size_t i = 0; i < 60; ++i) other.push_back({0, 2 * i + 1});
  for (std::size_t i = 120; i < 160; ++i) other.push_back({0, i});
  learn(folder.path(), one);
  Run run(folder.path());
  double share = 0;
  for (int i = 0; i < 30; ++i) share = run.step(other);
  REQUIRE(share == 1.0);
  REQUIRE(files_in(folder.path()).size() == 2);
  for (const Step& step : {one, other}) {
    Run again(folder.path());
    again.step(step);
    again.step(step);  // the end of the first one decided
    REQUIRE(again.step(step) == 1.0);
    REQUIRE(again.allocator.stats().plans_learned == 0);
  }
}

TEST_CASE("A kind of step that a folder's plan does not have is learned beside those it has",
          "[folder][learn][kinds]") {
  const test::TemporaryFolder folder;
  const Step training = test::training_step(60), evaluation = test::training_step(45, 8192);
  learn(folder.path(), training);
  const auto worst = [&](Run& run, int from) {
    double share = 1;
    for (int i = 0; i < 100; ++i) {
      const double hits = run.step(i % 5 == 4 ? evaluation : training);
      if (i >= from) share = std::min(share, hits);
    }
    return share;
  };
  {
    Run run(folder.path());
    REQUIRE(worst(run, 50) == 1.0);
    REQUIRE(run.allocator.stats().plans_found == 1);
  }
  REQUIRE(files_in(folder.path()).size() == 1);
  Run again(folder.path());
  REQUIRE(worst(again, 30) == 1.0);  // a cycle begins where it did when it was learned
  REQUIRE(again.allocator.stats().plans_found == 1);
}

TEST_CASE("Serving from a folder without the program's plan is one warning", "[folder][learn]") {
  const test::TemporaryFolder folder;
  test::Warnings warnings;
  SECTION("no plan of the program") {
    Run run(folder.path(), Mode::kServe);
    for (int i = 0; i < 20; ++i) run.step(test::training_step(20));
    REQUIRE_THAT(warnings.texts.at(0), Catch::Matchers::Contains("holds no plan of this program"));
  }
  SECTION("none that begins as it does") {
    learn(folder.path(), test::training_step(60));
    const bool marks = GENERATE(true, false);
    Run run(folder.path(), Mode::kServe);
    for (int i = 0; i < 300; ++i) run.step(test::training_step(31, 8192), marks);
    REQUIRE_THAT(warnings.texts.at(0), Catch::Matchers::Contains("none of 1 plans"));
  }
  REQUIRE(warnings.names == std::vector<std::string>{"plan-misfit"});
  REQUIRE(files_in(folder.path()).size() <= 1);
}

TEST_CASE("Serving from a folder that is not there is an error", "[folder][learn]") {
  const test::TemporaryFolder folder;
  REQUIRE_THROWS_WITH(Run(folder / "plans/", Mode::kServe),
                      Catch::Matchers::Contains("there is no folder of plans at"));
}

TEST_CASE("A folder that cannot be written is one warning and the run learns", "[folder][learn]") {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "buy milk\n";
  test::Warnings warnings;
  Run run(folder / "file/plans/");
  double share = 0;
  for (int i = 0; i < 20; ++i) share = run.step(test::training_step(20));
  for (int i = 0; i < 60; ++i) share = run.step(test::training_step(31));
  REQUIRE(share == 1.0);
  REQUIRE(run.allocator.stats().plans_learned >= 2);
  REQUIRE(warnings.names.size() <= 2);  // to read, to write
  for (const std::string& name : warnings.names) REQUIRE(name == "plan-folder");
}

TEST_CASE("On a full disk the run learns and says once that its plan is not kept",
          "[folder][learn]") {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const test::Warnings warnings;
    const auto device = make_host_device(Bytes{1} << 30);
    Allocator allocator(*device, Run::options(folder.path(), Mode::kLearn, 0));
    struct Memory {
      Allocator& allocator;
      void* allocate(Bytes size) { return allocator.allocate(size, 0); }
      void free(void* pointer) { allocator.free(pointer); }
    };
    for (int i = 0; i < 80; ++i) {
      test::run_step(test::training_step(i < 20 ? 20 : 31), Memory{allocator});
      allocator.mark_step(0);
    }
    const bool good = allocator.stats().plans_learned >= 2 &&
                      warnings.names == std::vector<std::string>{"plan-folder"};
    ::_exit(good ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(files_in(folder.path()).empty());
}

TEST_CASE("A damaged plan is one warning and the run learns another", "[folder][learn]") {
  const test::TemporaryFolder folder;
  const Step step = test::training_step(60);
  learn(folder.path(), step);
  const std::string file = folder / files_in(folder.path()).at(0);
  std::vector<std::byte> bytes = read_file(file, Bytes{1} << 30);
  bytes[bytes.size() - 20] ^= std::byte{1};
  write_file_atomically(file, bytes);
  {
    test::Warnings warnings;
    Run run(folder.path());
    for (int i = 0; i < 4; ++i) run.step(step);
    REQUIRE(run.step(step) == 1.0);
    REQUIRE(run.allocator.stats().plans_learned == 1);
    REQUIRE(warnings.names == std::vector<std::string>{"plan-folder"});
    REQUIRE_THAT(warnings.texts[0], Catch::Matchers::Contains("is damaged"));
  }
  Run again(folder.path());
  again.step(step);
  REQUIRE(again.step(step) == 1.0);
}

TEST_CASE("A plan that is gone when it is to be read is no warning", "[folder][learn]") {
  const test::TemporaryFolder folder;
  const Step step = test::training_step(60);
  learn(folder.path(), step);
  test::Warnings warnings;
  Run run(folder.path());
  fs::remove(folder / files_in(folder.path()).at(0));
  for (int i = 0; i < 4; ++i) run.step(step);
  REQUIRE(run.step(step) == 1.0);
  REQUIRE(warnings.names.empty());
}

TEST_CASE("A plan that cannot be opened is one warning at the start", "[folder][learn]") {
  const test::TemporaryFolder folder;
  learn(folder.path(), test::training_step(60));
  const std::string file = folder / files_in(folder.path()).at(0);
  fs::remove(file);
  fs::create_directory(file);
  test::Warnings warnings;
  Run run(folder.path());
  for (int i = 0; i < 5; ++i) run.step(test::training_step(20));
  REQUIRE(warnings.names == std::vector<std::string>{"plan-folder"});
  REQUIRE(run.allocator.stats().plans_learned == 1);
}

TEST_CASE("Reading a plan in the background does not wait for a mark to begin",
          "[folder][learn][threads]") {
  const test::TemporaryFolder folder;
  const Step step = test::training_step(60);
  learn(folder.path(), step);
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options = Run::options(folder.path(), Mode::kServe, 0);
  options.start_threads = true;
  test::CheckedAllocator allocator(*device, options);
  struct Memory {
    Allocator& allocator;
    void* allocate(Bytes size) { return allocator.allocate(size, 0); }
    void free(void* pointer) { allocator.free(pointer); }
  } memory{allocator};
  int steps = 0;
  while (allocator.stats().plans_found == 0 && steps < 1'000'000) {
    test::run_step(step, memory);
    allocator.mark_step(0);
    ++steps;
  }
  REQUIRE(allocator.stats().plans_found == 1);
  const Stats before = allocator.stats();
  test::run_step(step, memory);
  REQUIRE(allocator.stats().hits - before.hits == 180);
}

TEST_CASE("Eight ranks that start together on an empty folder leave one plan for all",
          "[folder][learn]") {
  const test::TemporaryFolder folder;
  const std::string plans = folder / "plans/";
  const Step step = test::training_step(60);
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        const test::Warnings warnings;
        learn(plans, step, rank);
        ::_exit(warnings.names.empty() ? 0 : 2);
      } catch (...) {
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
  REQUIRE(files_in(plans).size() == 1);
  Run again(plans, Mode::kServe, 5);
  again.step(step);
  REQUIRE(again.step(step) == 1.0);
}

TEST_CASE("Mode record leaves a folder of plans alone", "[folder]") {
  const test::TemporaryFolder folder;
  learn(folder.path(), test::training_step(60));
  Allocator::Options options = Run::options(folder.path(), Mode::kRecord, 0);
  options.config.trace = folder / "run.trace";
  const auto device = make_host_device(Bytes{1} << 30);
  test::CheckedAllocator allocator(*device, options);
  REQUIRE(allocator.free(allocator.allocate(64, 0)) == Allocator::FreeOutcome::kDone);
}
