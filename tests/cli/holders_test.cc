#include "csrc/cli/report/report.h"
#include "csrc/cli/summaries/peak_holders.h"
#include "csrc/cli/summaries/trace_summary.h"
#include "csrc/replay/forecast.h"
#include "tests/catch.h"

#include <map>
#include <string>

using namespace berth;
using namespace berth::cli;

namespace {

// Two modules, whose backward part runs on another thread without an open range; an optimizer that
// runs in none of them; and steps, of which the second has the peak.
Trace two_modules() {
  using namespace berth::trace;
  Trace trace;
  trace.alignment = 512;
  trace.lanes = {{0}};
  trace.program.device_name = "stand-in";
  trace.strings = {"",         "encoder",     "decoder",        "aten::empty",
                   "aten::mm", "MmBackward0", "aten::addcdiv_", "Optimizer.step"};
  Tick tick = 0;
  BlockId next = 1;
  std::uint64_t range = 1, op = 1;
  std::int64_t sequence = 0;
  const auto add = [&](const Event& event, ThreadId thread = 0) {
    trace.entries.push_back({.tick = tick++, .time_ns = 0, .thread = thread, .event = event});
  };
  const auto request = [&](Bytes bytes, ThreadId thread = 0) {
    add(Request{.id = next, .bytes = bytes, .lane = 0}, thread);
    return next++;
  };
  const BlockId weights[] = {request(4 << 10), request(8 << 10)};
  for (int step = 0; step < 2; ++step) {
    BlockId activations[2], gradients[2];
    for (const StringId module : {1u, 2u}) {
      add(RangeBegin{.range = range, .name = module, .kind = RangeKind::kModule});
      add(OperatorBegin{.op = op, .name = 4, .sequence = sequence + module});
      add(Operand{.op = op, .block = weights[module - 1]});
      add(OperatorBegin{.op = op + 1, .name = 3});
      activations[module - 1] = request((1000 + 3000 * module) << step);
      add(OperatorEnd{.op = op + 1});
      add(OperatorEnd{.op = op});
      add(RangeEnd{.range = range++});
      op += 2;
    }
    for (const StringId module : {2u, 1u}) {
      add(OperatorBegin{.op = op,
                        .name = 5,
                        .sequence = sequence + module,
                        .forward_thread = 0,
                        .backward = true},
          1);
      gradients[module - 1] = request(std::uint64_t{4 << 10} * module, 1);
      add(OperatorEnd{.op = op++}, 1);
    }
    sequence += 2;
    for (const BlockId block : activations) add(Free{.id = block});
    add(OperatorBegin{.op = op, .name = 6});
    const BlockId workspace = request(512);
    add(OperatorEnd{.op = op++});
    add(Free{.id = workspace});
    for (const BlockId block : gradients) add(Free{.id = block});
    add(StepMark{});
  }
  return trace;
}

}  // namespace

TEST_CASE("The holders of a peak are weights and activations by module and role",
          "[cli][dry-run][holders]") {
  using namespace berth::trace;
  Trace trace;
  trace.alignment = 512;
  trace.lanes = {{0}};
  trace.strings = {"", "layers.0.mlp", "layers.1.mlp", "aten::empty", "aten::mm", "MmBackward0"};
  Tick tick = 0;
  const auto add = [&](const Event& event, ThreadId thread = 0) {
    trace.entries.push_back({.tick = tick++, .time_ns = 0, .thread = thread, .event = event});
  };
  add(Request{.id = 1, .bytes = 1000, .lane = 0});  // weights: of the first module that uses them
  add(Request{.id = 2, .bytes = 3000, .lane = 0});  // dies before the peak
  add(Free{.id = 2});
  for (const std::uint64_t layer : {0, 1}) {
    add(RangeBegin{
        .range = layer + 1, .name = static_cast<StringId>(layer + 1), .kind = RangeKind::kModule});
    add(OperatorBegin{
        .op = 2 * layer + 1, .name = 4, .sequence = static_cast<std::int64_t>(layer)});
    if (layer == 0) add(Operand{.op = 1, .block = 1});
    add(OperatorBegin{.op = 2 * layer + 2, .name = 3});
    add(Request{.id = 10 + layer, .bytes = 512, .lane = 0});
    add(OperatorEnd{.op = 2 * layer + 2});
    add(OperatorEnd{.op = 2 * layer + 1});
    add(Role{.id = 10 + layer, .role = RoleKind::kActivation});
    add(RangeEnd{.range = layer + 1});
  }
  add(Role{.id = 1, .role = RoleKind::kParameter});
  // The engine's thread: what the node of layer 1 asks for is that module's.
  add(OperatorBegin{.op = 9, .name = 5, .sequence = 1, .forward_thread = 0, .backward = true}, 1);
  add(Request{.id = 20, .bytes = 4096, .lane = 0}, 1);
  add(OperatorEnd{.op = 9}, 1);

  const PeakHolders found = find_peak_holders(trace);
  REQUIRE(found.peak == 1024 + 2 * 512 + 4096);
  REQUIRE(found.holders.size() == 3);
  REQUIRE(found.holders[0].op == "MmBackward0");
  REQUIRE(found.holders[0].module == "layers.*.mlp");
  REQUIRE(found.by_module.size() == 1);
  REQUIRE(found.by_module[0].blocks == 4);
  REQUIRE(found.by_module[0].bytes == found.peak);
  const auto role = [&](const std::string& name) {
    for (const auto& holder : found.by_role)
      if (holder.role == name) return holder.bytes;
    return Bytes{0};
  };
  REQUIRE(role("parameter") == 1024);
  REQUIRE(role("activation") == 1024);
  REQUIRE(role("") == 4096);
}

TEST_CASE("All commands name the same bytes of the same holders at the peak", "[cli][holders]") {
  const Trace trace = two_modules();
  const PeakHolders dry_run = find_peak_holders(trace);
  const TraceSummary show = summarize(trace);
  const replay::Forecast doctor = replay::forecast(trace);
  const Report page = report_of(trace, std::nullopt, "x.trace");
  REQUIRE(show.peak == dry_run.peak);
  REQUIRE(show.peak_tick == dry_run.tick);
  REQUIRE(doctor.live == dry_run.peak);
  REQUIRE(page.views.at(0).bound == dry_run.peak);

  using Held = std::map<std::string, Bytes>;
  Held by_module, by_operator;
  for (const auto& holder : dry_run.by_module) by_module[holder.module] = holder.bytes;
  for (const auto& holder : dry_run.by_operator) by_operator[holder.op] = holder.bytes;
  // The weights' first reader, the activations' and the gradients' module: nothing is nobody's.
  REQUIRE(by_module == Held{{"encoder", (4 << 10) + 8192 + (4 << 10)},
                            {"decoder", (8 << 10) + 14336 + (8 << 10)}});
  REQUIRE(by_operator ==
          Held{{"", 12 << 10}, {"aten::mm", 8192 + 14336}, {"MmBackward0", 12 << 10}});

  REQUIRE(show.resident_bytes == 0);
  Held shown_module, shown_operator;
  for (const Holder& holder : show.by_module) shown_module[holder.name] = holder.bytes;
  for (const Holder& holder : show.by_operator) shown_operator[holder.name] = holder.bytes;
  REQUIRE(shown_module == by_module);
  REQUIRE(shown_operator == by_operator);

  std::map<std::uint64_t, Bytes> alive;  // requests of the page to live bytes
  for (const Report::Block& block : page.views.at(0).blocks)
    for (std::uint64_t at = block.birth; at < block.end; ++at) alive[at] += block.bytes;
  std::uint64_t peak_at = 0;
  while (alive[peak_at] != dry_run.peak) REQUIRE(++peak_at < page.views.at(0).period);
  Held page_module, page_operator;
  for (const Report::Block& block : page.views.at(0).blocks) {
    if (block.birth > peak_at || block.end <= peak_at) continue;
    page_module[page.names.at(block.module)] += block.bytes;
    page_operator[page.names.at(block.op)] += block.bytes;
  }
  REQUIRE(page_module == by_module);
  REQUIRE(page_operator == by_operator);
}
