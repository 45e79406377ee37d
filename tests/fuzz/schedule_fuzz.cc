// The readers of binary graphs and schedules: what they accept is written as it was read, a graph
// is one, and the referee has an answer to any schedule.
#include "csrc/core/check.h"
#include "csrc/graph/graph_file.h"
#include "csrc/graph/schedule_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair_file.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"

#include <cstdio>
#include <cstdlib>
#include <random>

namespace berth {
namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

fuzz::Input as_input(const std::vector<std::byte>& file) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  return {bytes, bytes + file.size()};
}

struct Example {
  graph::Graph graph;
  graph::Schedule schedule;  // with copies and places, on the device and on the host
};

const Example& example() {
  static const Example made = [] {
    std::mt19937 random(5);
    while (true) {
      Example one;
      one.graph = test::random_graph(random, 9);
      auto schedule = test::RandomSchedule(random, one.graph, true).make(true);
      if (!schedule) continue;
      one.schedule = std::move(*schedule);
      one.schedule.graph_hash = 0;
      if (one.schedule.host_bytes != 0) return one;
    }
  }();
  return made;
}

template <class Check>
void check_if_read(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kInput, "refusals are input errors");
  }
}

}  // namespace

namespace fuzz {

std::vector<std::pair<std::string, Input>> seeds() {
  return {{"graph", as_input(graph::serialize_graph(example().graph))},
          {"schedule", as_input(graph::serialize_schedule(example().schedule))},
          {"nothing", as_input(graph::serialize_schedule({}))},
          {"empty", {}}};
}

void repair(Input& input) { repair_file(input); }

}  // namespace fuzz
}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace berth;
  // A copy of its own, so that a read beyond the end is seen, aligned as a file that was read.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  check_if_read([&] {
    const graph::Graph graph = graph::parse_graph_file(file, "input");
    require(graph::violation(graph).empty(), "what is read is a graph");
    require(graph::parse_graph_file(graph::serialize_graph(graph), "again") == graph,
            "a graph that is written reads back");
  });
  check_if_read([&] {
    const graph::Schedule schedule = graph::parse_schedule(file, "input");
    require(graph::parse_schedule(graph::serialize_schedule(schedule), "again") == schedule,
            "a schedule that is written reads back");
    const graph::Verdict verdict = graph::replay(example().graph, schedule);
    require(!verdict.violation.empty() || verdict.host_arena <= schedule.host_bytes,
            "what is legal fits the host's arena");
  });
  return 0;
}
