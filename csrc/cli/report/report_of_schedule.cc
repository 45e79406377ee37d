#include "csrc/cli/core/output.h"
#include "csrc/cli/report/report.h"
#include "csrc/schedule/joint/lifetimes.h"
#include "csrc/trace/role_names.h"

#include <berth/referee.h>

#include <fmt/format.h>

#include <array>

namespace berth::cli {
namespace {

using graph::ScheduleStep;
using One = schedule::Lifetimes::One;

constexpr std::array<const char*, 4> kPhases = {"forward", "loss", "backward", "optimizer"};

}  // namespace

Report report_of(const graph::Schedule& schedule, const graph::Graph& graph,
                 const graph::CopyRates& rates, const std::string& name) {
  const schedule::Lifetimes lifetimes = schedule::lifetimes_of(graph, schedule, rates);
  const graph::Verdict verdict = graph::replay(graph, schedule, rates);
  // Runs before each tick of the lifetimes, as in address_picture.
  std::vector<std::uint64_t> runs = {0, 0};
  std::uint64_t run = 0;
  for (const ScheduleStep& step : schedule.steps) {
    runs.push_back(run);
    if (step.kind == ScheduleStep::Kind::kRun) ++run;
    runs.push_back(run);
  }
  runs.push_back(run);

  Report report;
  report.title = name;
  report.about = fmt::format("schedule of {}", format_number_of(run, "operator run"));
  report.facts.push_back({"alive at the peak", format_bytes(verdict.peak),
                          fmt::format("residents of {} are part of it and not drawn",
                                      format_bytes(verdict.resident))});
  if (schedule.budget != 0)
    report.facts.push_back({"budget", format_bytes(schedule.budget), "residents included"});
  if (schedule.arena_bytes != 0)
    report.facts.push_back(
        {"arena", format_bytes(schedule.arena_bytes),
         fmt::format("{} alive in it at the peak", format_bytes(lifetimes.live_peak))});
  report.facts.push_back(
      {"time", format_ms(verdict.ns),
       verdict.recomputed == 0
           ? "nothing runs twice"
           : fmt::format("{} again, {}", format_number_of(verdict.recomputed, "run"),
                         format_ms(verdict.recomputed_ns))});
  if (verdict.offloaded_bytes != 0)
    report.facts.push_back({"copied to the host", format_bytes(verdict.offloaded_bytes),
                            fmt::format("{} there at most", format_bytes(verdict.host_peak))});

  Report::View& view = report.views.emplace_back();
  view.time = "operators run";
  view.unit = "run";
  view.period = run;
  view.bound = lifetimes.live_peak;
  Report::Layout layout;
  layout.label = "the schedule";
  layout.arena = layout.span = schedule.arena_bytes;
  std::vector<std::size_t> births(schedule.buffers.size(), 0);
  std::vector<std::uint32_t> makers(schedule.buffers.size(), 0), phases(schedule.buffers.size(), 0);
  for (const One& one : lifetimes.all) {
    Report::Block block;
    block.birth = runs[one.birth];
    block.end = runs[one.end];
    block.bytes = block.requested = one.bytes;
    const ScheduleStep* step = one.birth < 2 ? nullptr : &schedule.steps[(one.birth - 2) / 2];
    const bool made = step != nullptr && step->kind == ScheduleStep::Kind::kRun;
    const std::uint32_t op = made ? report.name(graph.operators[step->op].name) : 0;
    const std::uint32_t phase =
        made ? report.name(kPhases.at(static_cast<std::size_t>(graph.operators[step->op].phase)))
             : 0;
    Bytes offset = graph::Buffer::kNoOffset;
    if (one.buffer == One::kWorkspace) {
      offset = schedule.steps[one.step].workspace_offset;
      block.op = op;
      block.phase = phase;
      block.role = report.name("workspace");
    } else {
      // What comes back from the host is its first maker's.
      if (made) {
        makers[one.buffer] = op;
        phases[one.buffer] = phase;
      }
      block.op = makers[one.buffer] != 0 ? makers[one.buffer] : report.name("(input)");
      block.phase = phases[one.buffer];
      const graph::Buffer& buffer = schedule.buffers[one.buffer];
      const graph::Storage& storage = graph.storages[buffer.storage];
      block.role = report.name(std::string(name_of(storage.role)));
      if (!buffer.offsets.empty()) offset = buffer.offsets[births[one.buffer]++];
    }
    if (block.birth >= block.end || block.bytes == 0) continue;
    view.blocks.push_back(block);
    layout.addresses.push_back(offset == graph::Buffer::kNoOffset ? replay::Layout::kNowhere
                                                                  : offset);
  }
  if (schedule.arena_bytes == 0) {
    layout = {};
    layout.label = "the schedule";
    layout.missing = "this schedule has no addresses";
  }
  view.layouts.push_back(std::move(layout));
  return report;
}

}  // namespace berth::cli
