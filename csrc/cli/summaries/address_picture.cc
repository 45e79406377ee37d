#include "csrc/cli/summaries/address_picture.h"

#include "csrc/cli/core/output.h"
#include "csrc/schedule/joint/lifetimes.h"

#include <fmt/format.h>

namespace berth::cli {

Picture picture_of(const graph::Schedule& schedule, const graph::Graph& graph,
                   const graph::CopyRates& rates, const std::string& name) {
  using One = schedule::Lifetimes::One;
  const schedule::Lifetimes lifetimes = schedule::lifetimes_of(graph, schedule, rates);
  // Runs before each tick: drops and copies take no room in the picture.
  std::vector<std::uint64_t> runs = {0, 0};
  std::uint64_t run = 0;
  for (const graph::ScheduleStep& step : schedule.steps) {
    runs.push_back(run);
    if (step.kind == graph::ScheduleStep::Kind::kRun) ++run;
    runs.push_back(run);
  }
  runs.push_back(run);

  Picture picture;
  picture.title = fmt::format("{}: {}", name, format_number_of(run, "run"));
  picture.time = "operators run";
  picture.unit = "run";
  picture.arena = schedule.arena_bytes;
  Picture::Panel& panel = picture.panels.emplace_back();
  panel.period = run;
  std::vector<std::size_t> births(schedule.buffers.size(), 0);
  for (const One& one : lifetimes.all) {
    Bytes offset = graph::Buffer::kNoOffset;
    if (one.buffer == One::kWorkspace) {
      offset = schedule.steps[one.step].workspace_offset;
    } else if (const auto& offsets = schedule.buffers[one.buffer].offsets; !offsets.empty()) {
      offset = offsets[births[one.buffer]++];
    }
    if (offset == graph::Buffer::kNoOffset) continue;
    const std::uint64_t birth = runs[one.birth], end = runs[one.end];
    if (birth != end)
      panel.boxes.push_back(
          {.offset = offset, .size = one.bytes, .birth = birth, .length = end - birth});
  }
  if (all_placed(lifetimes, schedule)) picture.bound = lifetimes.live_peak;
  return picture;
}

}  // namespace berth::cli
