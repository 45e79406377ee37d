#include "csrc/cli/core/lifetimes.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/spelling.h"
#include "csrc/cli/report/report.h"
#include "csrc/cli/summaries/address_picture.h"
#include "csrc/cli/summaries/picture.h"
#include "csrc/graph/file.h"
#include "tests/catch.h"

#include <array>

using namespace berth;
using namespace berth::cli;
using Catch::Matchers::Contains;

TEST_CASE("A table wider than 80 columns cuts its widest text", "[cli][parts]") {
  Table table({{"name", Table::Align::kLeft}, {"bytes"}});
  table.add({std::string(300, 'x'), "1,024"});
  const std::string text = table.to_string();
  REQUIRE_THAT(text, Contains("…"));
  std::size_t columns = 0, line = 0;
  for (const char c : text) {
    line = c == '\n' ? 0 : line + ((static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0);
    columns = std::max(columns, line);
  }
  REQUIRE(columns == 80);
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

TEST_CASE("A schedule's picture has a box where a buffer or a workspace is", "[cli][parts]") {
  const graph::Graph graph = graph::parse_graph(R"({"format": "berth-graph 1",
    "storages": [{"bytes": 64, "class": "resident"}, {"bytes": 100, "class": "input"}, {"bytes": 80, "class": "step"}],
    "operators": [
      {"name": "f", "phase": "forward", "alternatives": [{"ns": 10, "workspace": 7, "reads": [[0, 0, 0, 64], [1, 0, 0, 100]], "writes": [[2, 1]]}]},
      {"name": "g", "phase": "backward", "alternatives": [{"ns": 10, "workspace": 0, "reads": [[2, 1, 0, 80]], "writes": []}]}]})",
                                                "x");
  graph::Schedule schedule = graph::schedule_of_order(graph, std::vector<graph::OperatorId>{0, 1});
  schedule.buffers[1].offsets = {0};
  schedule.buffers[2].offsets = {107};
  schedule.steps[0].workspace_offset = 100;
  schedule.arena_bytes = 190;
  const auto boxes_of = [&](const Picture& picture) {
    std::vector<std::array<std::uint64_t, 4>> boxes;
    for (const Picture::Box& box : picture.panels.at(0).boxes)
      boxes.push_back({box.offset, box.size, box.birth, box.length});
    return boxes;
  };
  const Picture whole = picture_of(schedule, graph, {}, "x");
  REQUIRE(whole.panels[0].period == 2);
  REQUIRE(boxes_of(whole) == std::vector<std::array<std::uint64_t, 4>>{
                                 {0, 100, 0, 1}, {107, 80, 0, 2}, {100, 7, 0, 1}});
  REQUIRE(whole.arena == 190);
  REQUIRE(whole.bound == 187);
  // What lies elsewhere is not drawn, and says nothing of the arena's least size.
  schedule.buffers[2].offsets.clear();
  const Picture part = picture_of(schedule, graph, {}, "x");
  REQUIRE(boxes_of(part).size() == 2);
  REQUIRE(part.bound == 0);
}

TEST_CASE("A picture without a bound claims none", "[cli][parts]") {
  Picture picture;
  picture.arena = 1 << 20;
  picture.panels.push_back({"", 10, {{0, 1 << 20, 0, 10, false}}});
  REQUIRE_THAT(to_svg(picture), !Contains("bound"));
  picture.bound = 1 << 20;
  REQUIRE_THAT(to_svg(picture), Contains("no smaller one exists"));
}

TEST_CASE("The live line of a picture falls at the tick of an end", "[cli][parts]") {
  Picture picture;
  picture.arena = picture.bound = 4;
  picture.panels.push_back({"", 3, {{0, 4, 0, 2, false}, {0, 2, 2, 1, false}}});
  REQUIRE_THAT(to_svg(picture), Contains("M92.0 76.0H402.7L402.7 76.0H713.3L713.3 329.0H1024.0"));
  // What wraps around is alive from the first tick on.
  picture.panels[0].boxes = {{0, 4, 2, 2, false}};
  REQUIRE_THAT(to_svg(picture), Contains("M92.0 76.0H402.7L402.7 582.0H713.3L713.3 76.0H1024.0"));
  picture.panels[0].boxes = {{0, 4, 2, 3, false}};
  REQUIRE_THAT(to_svg(picture), Contains("M92.0 76.0H402.7L402.7 76.0H713.3L713.3 76.0H1024.0"));
}

TEST_CASE("A legend names no lifetime that a picture has not", "[cli][parts]") {
  Picture picture;
  picture.arena = picture.bound = 4;
  picture.panels.push_back({"", 3, {{0, 4, 0, 3, false}}});
  REQUIRE_THAT(to_svg(picture), Contains("to 3 ticks") && !Contains("to 4 ticks"));
}

TEST_CASE("Addresses that nobody uses are left out of a layout, small gaps stay", "[cli][report]") {
  std::vector<Report::Block> blocks(4);
  for (Report::Block& block : blocks) block.bytes = 1000;
  Report::Layout layout;
  // Two neighbours, a third 10 bytes above them, a fourth far away; a fifth has no address.
  layout.addresses = {5'000'000, 5'001'000, 5'002'010, 90'000'000};
  blocks.push_back({});
  layout.addresses.push_back(berth::replay::Layout::kNowhere);
  pack_addresses(layout, blocks);
  REQUIRE(layout.addresses ==
          std::vector<std::uint64_t>{0, 1000, 2010, 3010, berth::replay::Layout::kNowhere});
  REQUIRE(layout.span == 4010);
  REQUIRE(layout.breaks == std::vector<berth::Bytes>{3010});
}

TEST_CASE("A report gives each name one number, and none to no name", "[cli][report]") {
  Report report;
  REQUIRE(report.name("") == 0);
  const std::uint32_t linear = report.name("linear");
  REQUIRE(report.name("norm") != linear);
  REQUIRE(report.name("linear") == linear);
  REQUIRE(report.names.at(linear) == "linear");
}
