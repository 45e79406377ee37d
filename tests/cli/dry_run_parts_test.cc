#include "csrc/cli/core/host_watch.h"
#include "csrc/cli/core/python_program.h"
#include "csrc/cli/core/scratch_folder.h"
#include "csrc/cli/dry_run/batch_argument.h"
#include "csrc/cli/dry_run/gpu_use.h"
#include "csrc/cli/dry_run/left_out.h"
#include "csrc/cli/dry_run/rank_traces.h"
#include "csrc/cli/dry_run/recorded_step.h"
#include "csrc/cli/summaries/peak_holders.h"
#include "csrc/trace/recorder.h"
#include "tests/catch.h"

#include <berth/error.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace berth;
using namespace berth::cli;
using Catch::Matchers::Contains;

TEST_CASE("The command that fits keeps the interpreter, its options and what a shell would split",
          "[cli][dry-run]") {
  CHECK(command_that_fits({"python3", "-u", "-B", "train.py", "--name", "a b"}, "") ==
        "python3 -u -B -m berth run --fit train.py --name 'a b'");
  CHECK(command_that_fits({"/x/bin/python", "-m", "trainer", "--it's"}, "/tmp/x-{rank}.schedule") ==
        "BERTH_SCHEDULE=/tmp/x-{rank}.schedule /x/bin/python -m berth run --fit -m trainer "
        "'--it'\\''s'");
  CHECK(command_that_fits({"torchrun", "--nproc-per-node", "2", "train.py"}, "") ==
        "python -m berth run --fit torchrun --nproc-per-node 2 train.py");
  CHECK(command_that_fits({"python", "-c", "import torch\ntorch.ones(1)"}, "") ==
        "python -m berth run --fit -c '...'");
}

TEST_CASE("The batch of a program stands where its option or its place says", "[cli][dry-run]") {
  const std::vector<std::string> program = {"python", "train.py", "--batch-size", "8", "--n=3"};
  const BatchArgument option("batch=--batch-size", program);
  REQUIRE(option.given() == 8);
  REQUIRE(option.with(16) ==
          std::vector<std::string>{"python", "train.py", "--batch-size", "16", "--n=3"});
  REQUIRE(BatchArgument("--n", program).with(5).back() == "--n=5");
  REQUIRE(BatchArgument("b=3", program).with(5) == option.with(5));
  const BatchArgument added("batch=-b", program);
  REQUIRE_FALSE(added.given().has_value());
  REQUIRE(added.with(2).size() == 7);
  for (const char* const text : {"batch=", "=--n", "batch=1", "batch=9", "batch=size", "batch=0"})
    REQUIRE_THROWS_AS(BatchArgument(text, program), Error);
  REQUIRE_THROWS_WITH(BatchArgument("batch=2", program), Contains("whose value is '--batch-size'"));
}

TEST_CASE("A program that takes the last of the host's memory is ended and told",
          "[cli][dry-run]") {
  const pid_t program = ::fork();
  if (program == 0) {
    ::signal(SIGTERM, SIG_IGN);  // so that it takes the second signal
    for (;;) ::pause();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  HostWatch calm;
  calm.look(program);
  REQUIRE_FALSE(calm.stopped());
  REQUIRE(calm.peak() > 0);
  HostWatch others(kMaxBytes, kMaxBytes);  // nothing is enough, but the program does not hold it
  others.look(program);
  REQUIRE_FALSE(others.stopped());
  HostWatch watch(kMaxBytes, 0);
  watch.look(program);
  REQUIRE(watch.stopped());
  REQUIRE_THAT(watch.why(), Contains("are left"));
  for (int look = 0; look < 20; ++look) watch.look(program);
  int status = 0;
  ::waitpid(program, &status, 0);
  REQUIRE(WIFSIGNALED(status));
}

TEST_CASE("Memory that processes share counts once", "[cli][dry-run]") {
  constexpr Bytes kShared = Bytes{64} << 20;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t program = ::fork();
  if (program == 0) {
    ::signal(SIGTERM, SIG_DFL);  // not Catch's
    void* const shared =
        ::mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (::fork() < 0) ::_exit(1);
    std::memset(shared, 1, kShared);
    const pid_t self = ::getpid();
    if (::write(ready[1], &self, sizeof self) != sizeof self) ::_exit(1);
    for (;;) ::pause();
  }
  Bytes resident = 0;  // of each, whoever else has the pages
  for (int process = 0; process < 2; ++process) {
    pid_t one = 0;
    REQUIRE(::read(ready[0], &one, sizeof one) == sizeof one);
    std::ifstream file("/proc/" + std::to_string(one) + "/statm");
    Bytes size = 0, pages = 0;
    file >> size >> pages;
    resident += pages * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  }
  HostWatch calm;
  calm.look(program);
  HostWatch watch(kMaxBytes, 0);
  for (int look = 0; look < 21; ++look) watch.look(program);  // ends both
  ::waitpid(program, nullptr, 0);
  REQUIRE(calm.peak() > kShared);
  REQUIRE(calm.peak() + kShared / 2 < resident);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("Traces of several processes and GPUs have names that differ", "[cli][dry-run]") {
  using Files = std::vector<RankTraces::File>;
  using Names = std::vector<std::string>;
  const Files one = {{.rank = 0, .device = 0, .pid = 7}};
  REQUIRE(RankTraces::names("/a/x.trace", one) == Names{"/a/x.trace"});
  const Files ranks = {{.rank = 0, .device = 0, .pid = 7}, {.rank = 1, .device = 0, .pid = 8}};
  REQUIRE(RankTraces::names("/a/x.trace", ranks) == Names{"/a/x-0-0.trace", "/a/x-1-0.trace"});
  REQUIRE(RankTraces::names("/a/{rank}.trace", ranks) == Names{"/a/0.trace", "/a/1.trace"});
  REQUIRE(RankTraces::names("/a/{device}", ranks) == Names{"/a/0-0-0", "/a/0-1-0"});
  const Files same = {{.rank = 0, .device = 0, .pid = 7}, {.rank = 0, .device = 0, .pid = 8}};
  REQUIRE(RankTraces::names("x.trace", same) == Names{"x-0-0-7.trace", "x-0-0-8.trace"});
  REQUIRE(RankTraces::names("{pid}.trace", same) == Names{"7.trace", "8.trace"});
}

TEST_CASE("What a program wrote gets its name, and nothing else is left", "[cli][dry-run]") {
  const ScratchFolder folder("berth-test");
  const auto path = [&](const std::string& name) { return (folder.path() / name).string(); };
  const auto write = [](std::string name, int rank, int pid) {
    for (const auto& [word, value] :
         {std::pair("{rank}", rank), std::pair("{device}", 0), std::pair("{pid}", pid)})
      name.replace(name.find(word), std::strlen(word), std::to_string(value));
    std::ofstream(name) << rank;
  };
  {
    const RankTraces traces(path("x.trace"));
    REQUIRE(traces.take().empty());
    write(traces.written_to(), 12, 5);
    write(traces.written_to(), 2, 6);
    const auto taken = traces.take();
    REQUIRE(taken.size() == 2);
    REQUIRE(taken[0].path == path("x-2-0.trace"));
    REQUIRE(taken[1].path == path("x-12-0.trace"));
    write(traces.written_to(), 3, 6);
  }
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  REQUIRE(files == 2);
}

TEST_CASE("A GPU must have what its process finishes with, and a context", "[cli][dry-run]") {
  Needs alone{.file = {.rank = 0, .device = 0}};
  alone.reserved = {{.name = "caching", .peak = 300, .least = 120},
                    {.name = "learning", .peak = 110, .least = 105}};
  const auto uses = gpu_uses({&alone});
  REQUIRE(uses[0].needed("caching", 10) == Bytes{130});
  REQUIRE(uses[0].held("caching", 10) == Bytes{310});
  REQUIRE(uses[0].least_needed(10) == Bytes{115});
  REQUIRE_FALSE(uses[0].needed("planned", 10).has_value());
}

TEST_CASE("A GPU of several processes must have what each reserves, and a context of each",
          "[cli][dry-run]") {
  Needs planned{.file = {.rank = 0, .device = 1}};
  planned.reserved = {{.name = "caching", .peak = 300, .least = 100},
                      {.name = "learning", .peak = 250, .least = 100},
                      {.name = "planned", .peak = 200, .least = 100}};
  Needs small{.file = {.rank = 1, .device = 1}};
  small.reserved = {{.name = "caching", .peak = 40, .least = 20},
                    {.name = "learning", .peak = 30, .least = 20}};
  Needs other{.file = {.rank = 1, .device = 0}};
  other.reserved = {{.name = "caching", .peak = 5, .least = 4}};
  const auto uses = gpu_uses({&planned, &small, &other});
  REQUIRE(uses.size() == 2);
  REQUIRE(uses[0].processes.size() == 1);
  REQUIRE(uses[0].needed("caching", 10) == Bytes{14});
  REQUIRE_FALSE(uses[0].needed("planned", 10).has_value());
  REQUIRE(uses[1].needed("caching", 10) == Bytes{360});
  REQUIRE(uses[1].needed("planned", 10) == Bytes{250});  // one has no plan: its least
  REQUIRE(uses[1].least_needed(10) == Bytes{250});
  small.reserved[0].peak.reset();
  REQUIRE_FALSE(uses[1].needed("caching", 10).has_value());
}

// Batches of 1, 2, .. 12 units, each freed before the next comes.
TEST_CASE("What a run needs is what it reserves without a limit, and the least that does",
          "[cli][dry-run]") {
  constexpr Bytes kUnit = Bytes{64} << 20;
  const ScratchFolder folder("berth-test");
  const RankTraces::File file{.path = (folder.path() / "x.trace").string()};
  {
    const auto recorder = Recorder::open(file.path, {}, 512);
    const trace::LaneId lane = recorder->lane(0);
    for (std::uint64_t i = 1; i <= 12; ++i) {
      recorder->append(trace::Request{.id = i, .bytes = i * kUnit, .lane = lane});
      recorder->append(trace::Free{.id = i});
    }
  }
  const Needs needs = find_needs(file, {.limit = 16 * kUnit});
  const Needs::Reserved* const caching = needs.find("caching");
  REQUIRE(caching->peak == 78 * kUnit);
  REQUIRE(caching->least == 12 * kUnit);
  REQUIRE(caching->retries == 6);
  REQUIRE(needs.find("expandable")->least.value_or(0) / kUnit == 12);
  REQUIRE(needs.find("expandable")->retries == 0);
  REQUIRE(*needs.find("learning")->least <= 12 * kUnit * 1.005);
  REQUIRE(needs.least(false) == 12 * kUnit);
  REQUIRE_FALSE(find_needs(file, {.limit = 11 * kUnit}).find("caching")->retries.has_value());
}

TEST_CASE("What a dry run leaves out is told, with how much", "[cli][dry-run]") {
  DryRunJob job;
  job.gpu = find_gpu("A100-80");
  DryRun run;
  REQUIRE(find_left_out(job, run).to_text().size() == 2);
  run.held = {{.pid = 1, .device = 0, .communicators = {8, 2}},
              {.pid = 2, .device = 1, .communicators = {8}}};
  const LeftOut out = find_left_out(job, run);
  REQUIRE(out.context == job.gpu->context_bytes);
  REQUIRE(out.communicators == 2);
  REQUIRE(out.nccl == Bytes{688 + 544} << 20);
  REQUIRE(out.to_json()["nccl"]["counted"] == false);
  REQUIRE_THAT(out.to_text().back(), Contains("NCCL's buffers are not counted: about 1.2 GiB"));
}

TEST_CASE("A script is Python where its first line says so", "[cli][dry-run]") {
  const ScratchFolder folder("berth-test");
  const auto script = [&](const std::string& first_line) {
    const std::string path = (folder.path() / "script").string();
    std::ofstream(path) << first_line << "\nimport torch\n";
    return path;
  };
  REQUIRE(interpreter_of("python3") == "python3");
  REQUIRE(interpreter_of(script("#!/opt/venv/bin/python3.11 -B")) == "/opt/venv/bin/python3.11");
  REQUIRE(is_python(script("#!/usr/bin/env python3")));
  REQUIRE(interpreter_of(script("#!/usr/bin/env python3")) == "python3");
  REQUIRE_FALSE(is_python(script("#!/bin/sh")));
  REQUIRE(interpreter_of(script("#!/bin/sh")).empty());
}
