#include "csrc/cli/lifetimes.h"
#include "csrc/cli/output.h"
#include "csrc/cli/picture.h"
#include "csrc/cli/spelling.h"
#include "csrc/cli/workload.h"
#include "tests/catch.h"

#include <map>
#include <set>

using namespace berth;
using namespace berth::cli;
using Catch::Matchers::Contains;

TEST_CASE("A table wider than 100 columns cuts its widest text", "[cli][parts]") {
  Table table({{"name", Table::Align::kLeft}, {"bytes"}});
  table.add({std::string(300, 'x'), "1,024"});
  const std::string text = table.to_string();
  REQUIRE_THAT(text, Contains("…"));
  std::size_t columns = 0, line = 0;
  for (const char c : text) {
    line = c == '\n' ? 0 : line + ((static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0);
    columns = std::max(columns, line);
  }
  REQUIRE(columns == 100);
}

TEST_CASE("Numbers are written for people", "[cli][parts]") {
  REQUIRE(format_count(0) == "0");
  REQUIRE(format_count(999) == "999");
  REQUIRE(format_count(1000) == "1,000");
  REQUIRE(format_count(1234567) == "1,234,567");
  REQUIRE(format_percent(0.0123) == "1.23 %");
  REQUIRE(format_exactly(1536) == "1.5 KiB (1,536 bytes)");
  REQUIRE(format_number_of(1, "step") == "1 step");
  REQUIRE(format_number_of(2, "step") == "2 steps");
}

TEST_CASE("The nearest name is found for a slip and for nothing else", "[cli][parts]") {
  const std::vector<std::string> names = {"record", "plan", "show"};
  REQUIRE(nearest("recrod", names) == "record");
  REQUIRE(nearest("plans", names) == "plan");
  REQUIRE(nearest("x", names).empty());
  REQUIRE(nearest("completely else", names).empty());
}

TEST_CASE("Rows that are alive together and share a byte are found", "[cli][parts]") {
  const std::vector<Lifetime> rows = {{"a", 0, 4, 10}, {"b", 3, 6, 10}, {"c", 4, 8, 10}};
  REQUIRE(find_overlap(rows, std::vector<Bytes>{0, 10, 0}) == std::nullopt);
  REQUIRE_THAT(*find_overlap(rows, std::vector<Bytes>{0, 9, 0}), Contains("'a' and 'b'"));
  REQUIRE_THAT(*find_overlap(rows, std::vector<Bytes>{0, 10, 10}), Contains("'b' and 'c'"));
}

namespace {

Workload steps_workload() {
  Workload workload;
  workload.lane_keys = {0};
  for (int step = 0; step < 50; ++step) {
    const std::uint64_t first = workload.block_count;
    for (int i = 0; i < 10; ++i) {
      workload.operations.push_back({Operation::Kind::kAllocate, 0, workload.block_count++,
                                     static_cast<Bytes>(1000 * (i + 1))});
    }
    for (std::uint64_t block = first; block < workload.block_count; ++block)
      workload.operations.push_back({Operation::Kind::kFree, 0, block, 0});
    workload.operations.push_back({Operation::Kind::kStep, 0, 0, 0});
    ++workload.steps;
  }
  return workload;
}

// Allocated once, before its uses, and freed at most once.
bool is_legal(const Workload& workload) {
  std::map<std::uint64_t, int> state;  // 1 live, 2 freed
  for (const Operation& operation : workload.operations) {
    switch (operation.kind) {
      case Operation::Kind::kAllocate:
        if (state[operation.block]++ != 0 || operation.size == 0) return false;
        break;
      case Operation::Kind::kFree:
        if (state[operation.block]++ != 1) return false;
        break;
      case Operation::Kind::kUse:
        if (state[operation.block] != 1) return false;
        break;
      case Operation::Kind::kStep:
        break;
    }
    if (operation.block >= workload.block_count && operation.kind != Operation::Kind::kStep)
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("Any perturbation leaves a legal order of requests and frees", "[cli][parts][property]") {
  const Workload workload = steps_workload();
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Perturbation perturbation;
    perturbation.insert = static_cast<double>(seed % 5) * 0.1;
    perturbation.drop = static_cast<double>(seed % 3) * 0.2;
    perturbation.resize = static_cast<double>(seed % 7) * 0.1;
    perturbation.swap = static_cast<double>(seed % 4) * 0.3;
    INFO("seed " << seed);
    const Workload perturbed = perturb(workload, perturbation, seed);
    REQUIRE(is_legal(perturbed));
    REQUIRE(perturbed.steps == 50);
  }
}

TEST_CASE("A perturbation leaves the first three steps alone", "[cli][parts]") {
  const Workload workload = steps_workload();
  Perturbation perturbation;
  perturbation.insert = perturbation.resize = 1;
  const Workload perturbed = perturb(workload, perturbation, 3);
  std::size_t same = 0;
  while (perturbed.operations[same].kind == workload.operations[same].kind &&
         perturbed.operations[same].size == workload.operations[same].size)
    ++same;
  REQUIRE(same == 3 * 21);
}

TEST_CASE("A perturbation of no rate changes nothing", "[cli][parts]") {
  const Workload workload = steps_workload();
  const Workload same = perturb(workload, Perturbation{}, 7);
  REQUIRE(same.operations.size() == workload.operations.size());
  REQUIRE(same.requests == 500);
  REQUIRE(same.frees == 500);
}

TEST_CASE("A workload leaves out what no allocator could be asked for", "[cli][parts]") {
  Trace run;
  run.lanes = {{5}};
  const std::vector<trace::Event> events = {trace::Request{1, 100, 0, 0},
                                            trace::Request{2, 0, 0, 0},
                                            trace::Free{99},
                                            trace::Free{1},
                                            trace::Free{2},
                                            trace::StepMark{}};
  for (const trace::Event& event : events)
    run.entries.push_back({static_cast<trace::Tick>(run.entries.size()), 0, 0, event});
  const Workload workload = make_workload(run);
  REQUIRE(workload.requests == 1);
  REQUIRE(workload.frees == 1);
  REQUIRE(workload.steps == 1);
  REQUIRE(workload.live_peak(512) == 512);
}

TEST_CASE("A box over the end of the step is drawn in two pieces", "[cli][parts]") {
  Plan plan;
  plan.lane_keys = {0};
  plan.arena_bytes = plan.lower_bound = 1 << 20;
  Sequence sequence;
  sequence.period = 10;
  for (std::uint32_t tick = 0; tick < 10; ++tick) {
    Slot slot;
    slot.offset = tick == 8 ? 0 : Slot::kUnplanned;
    slot.requested = slot.size = 1 << 20;
    slot.birth = tick;
    slot.length = 4;
    sequence.slots.push_back(slot);
  }
  plan.sequences.push_back(sequence);
  const Picture picture = picture_of(plan, "<x&y>");
  REQUIRE(picture.panels.size() == 1);
  const std::string svg = to_svg(picture);
  REQUIRE_THAT(svg, Contains("&lt;x&amp;y&gt;"));
  const std::size_t fill = svg.find("stroke=\"#fff\" stroke-width=\".5\"");
  REQUIRE(fill != std::string::npos);
  const std::string path = svg.substr(svg.rfind("d=\"", fill), fill - svg.rfind("d=\"", fill));
  REQUIRE(std::count(path.begin(), path.end(), 'M') == 2);
}

TEST_CASE("A branch is drawn in a panel of its own with its prefix faded", "[cli][parts]") {
  Plan plan;
  plan.lane_keys = {0};
  plan.arena_bytes = plan.lower_bound = 4096;
  Sequence root, branch;
  root.period = 3;
  root.slots = {{0, 64, 64, 0, 1, 0}, {64, 64, 64, 1, 1, 0}, {128, 64, 64, 2, 1, 0}};
  branch.parent = 0;
  branch.fork = 1;
  branch.period = 2;
  branch.slots = {{256, 64, 64, 1, 1, 0}};
  plan.sequences = {root, branch};
  const Picture picture = picture_of(plan, "branches");
  REQUIRE(picture.panels.size() == 2);
  REQUIRE(picture.panels[0].boxes.size() == 3);
  REQUIRE(picture.panels[1].boxes.size() == 2);  // one of its own, one of the prefix
  REQUIRE_FALSE(picture.panels[1].boxes[0].faded);
  REQUIRE(picture.panels[1].boxes[1].faded);
  REQUIRE(picture.panels[1].period == 2);
}

TEST_CASE("Of very many boxes the smallest are left out and the picture says so", "[cli][parts]") {
  Picture picture;
  picture.arena = picture.bound = 1 << 20;
  Picture::Panel panel;
  panel.period = 50'000;
  for (std::uint64_t i = 0; i < 50'000; ++i) panel.boxes.push_back({0, i + 1, i, 1, false});
  picture.panels.push_back(panel);
  REQUIRE_THAT(to_svg(picture), Contains("10,000 smallest boxes not drawn"));
}
