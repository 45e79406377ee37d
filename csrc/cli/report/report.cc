#include "csrc/cli/report/report.h"

#include "csrc/cli/core/output.h"
#include "csrc/cli/summaries/stats_summary.h"
#include "csrc/place/plan_trace.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/torch_layout.h"
#include "csrc/replay/workload.h"
#include "csrc/trace/held_segments.h"
#include "csrc/trace/role_names.h"
#include "csrc/trace/traced_run.h"

#include <berth/place.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

namespace berth::cli {
namespace {

using replay::Layout;

// Nobody waits long for a picture, and `berth plan` takes its time.
constexpr double kPlanSeconds = 2;

std::string gap_of(Bytes arena, Bytes bound) {
  if (bound == 0) return "";
  if (arena == bound) return "the lower bound: no smaller one exists";
  return fmt::format("{} above the lower bound of {}",
                     format_percent(static_cast<double>(arena) / static_cast<double>(bound) - 1),
                     format_bytes(bound));
}

std::string over(Bytes reserved, Bytes live) {
  if (live == 0) return "";
  return fmt::format("{:.3f} x what is alive at the peak",
                     static_cast<double>(reserved) / static_cast<double>(live));
}

Report::Fact bytes_fact(std::string what, Bytes bytes, std::string more) {
  return {std::move(what), format_bytes(bytes), std::move(more)};
}

std::string program_of(const trace::Program& program) {
  std::string text;
  if (!program.device_name.empty()) text += ", on " + program.device_name;
  if (!program.torch_version.empty()) text += ", torch " + program.torch_version;
  if (!program.tag.empty()) text += ", tag " + program.tag;
  return text;
}

// The path of a plan that ends in `last`: what it shares with others as well as its own.
Report::View view_of_path(const Plan& plan, std::size_t last, Report& report) {
  const Sequence& sequence = plan.sequences[last];
  Report::View view;
  view.label = fmt::format("lane {}{}", plan.lane_keys.at(sequence.lane),
                           sequence.parent < 0 ? "" : fmt::format(", path {}", last));
  view.time = "requests of the step";
  view.unit = "request";
  view.period = sequence.period;
  view.bound = plan.sequences.size() == 1 ? plan.lower_bound : 0;
  view.marks.assign(sequence.marks.begin(), sequence.marks.end());
  Report::Layout layout;
  layout.label = "the plan";
  layout.arena = layout.span = plan.arena_bytes;
  std::vector<std::pair<const Slot*, std::uint32_t>> slots;
  std::uint32_t until = sequence.period;
  for (auto at = static_cast<std::int32_t>(last); at >= 0;) {
    const Sequence& part = plan.sequences[static_cast<std::size_t>(at)];
    for (const Slot& slot : part.slots) {
      if (slot.birth < until && slot.length > 0) slots.emplace_back(&slot, part.lane);
    }
    until = std::min(until, part.fork);
    at = part.parent;
  }
  std::stable_sort(slots.begin(), slots.end(),
                   [](const auto& a, const auto& b) { return a.first->birth < b.first->birth; });
  for (const auto& [slot, lane] : slots) {
    view.blocks.push_back({.birth = slot->birth,
                           .end = std::uint64_t{slot->birth} + slot->length,
                           .bytes = slot->size,
                           .requested = slot->requested,
                           .op = report.name(plan.strings.at(slot->origin)),
                           .lane = lane});
    layout.addresses.push_back(slot->planned() ? slot->offset : Layout::kNowhere);
  }
  view.layouts.push_back(std::move(layout));
  return view;
}

// Keeps the kMostReportBlocks blocks around the peak of a run.
void keep_around_peak(Report::View& view, std::uint64_t peak) {
  const std::uint64_t most = kMostReportBlocks;
  if (view.blocks.size() <= most) return;
  const std::uint64_t from = std::min(peak - std::min(peak, most / 2), view.period - most);
  const std::uint64_t to = from + most;
  std::vector<std::size_t> kept;
  for (std::size_t k = 0; k < to; ++k) {
    if (k >= from || view.blocks[k].end > from) kept.push_back(k);
  }
  const auto keep = [&](auto& values) {
    if (values.empty()) return;
    auto out = values.begin();
    for (const std::size_t k : kept) *out++ = values[k];
    values.erase(out, values.end());
  };
  for (Report::Layout& layout : view.layouts) {
    keep(layout.addresses);
    keep(layout.outcomes);
    if (layout.reserved.empty()) continue;
    layout.reserved = {layout.reserved.begin() + static_cast<std::ptrdiff_t>(from),
                       layout.reserved.begin() + static_cast<std::ptrdiff_t>(to)};
  }
  if (!view.recorded.empty())
    view.recorded = {view.recorded.begin() + static_cast<std::ptrdiff_t>(from),
                     view.recorded.begin() + static_cast<std::ptrdiff_t>(to)};
  keep(view.blocks);
  for (Report::Block& block : view.blocks) {
    block.birth = std::max(block.birth, from) - from;
    block.end = std::min(block.end, to) - from;
  }
  std::erase_if(view.marks, [&](std::uint64_t mark) { return mark < from || mark > to; });
  for (std::uint64_t& mark : view.marks) mark -= from;
  view.first = from;
  view.period = most;
}

bool in_arena(replay::Outcome outcome) {
  return outcome == replay::Outcome::kHit || outcome == replay::Outcome::kHitBucket ||
         outcome == replay::Outcome::kLent;
}

// Where the arena of each block began. It moves only while nothing lives in it, and then far.
std::vector<std::uint64_t> arena_bases(const Layout& layout, Bytes arena) {
  std::vector<std::uint64_t> inside;
  for (std::size_t k = 0; k < layout.addresses.size(); ++k) {
    if (in_arena(layout.outcomes[k])) inside.push_back(layout.addresses[k]);
  }
  std::sort(inside.begin(), inside.end());
  std::vector<std::uint64_t> bases;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (i == 0 || inside[i] - inside[i - 1] > arena) bases.push_back(inside[i]);
  }
  return bases;
}

// berth's layout: the arena from 0. Blocks of the pool have no bytes of their own, for its pages
// move and come from the arena, too; they are drawn where they fit beside what is in the arena.
Report::Layout drawn_with_pool(Layout layout, Bytes arena, std::span<const Report::Block> blocks) {
  const std::vector<std::uint64_t> bases = arena_bases(layout, arena);
  Problem problem;
  std::vector<std::size_t> placed;
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    if (layout.addresses[k] == Layout::kNowhere) continue;
    placed.push_back(k);
    Buffer& buffer = problem.buffers.emplace_back();
    buffer.size = blocks[k].bytes;
    buffer.birth = blocks[k].birth;
    buffer.length = blocks[k].end - blocks[k].birth;
    if (in_arena(layout.outcomes[k]))
      buffer.pinned = layout.addresses[k] -
                      *std::prev(std::upper_bound(bases.begin(), bases.end(), layout.addresses[k]));
  }
  PlaceOptions options;
  options.time_limit_seconds = kPlanSeconds / 4;
  options.capacity = layout.reserved_peak;
  const Placement placement = place_buffers(problem, options);
  for (std::size_t i = 0; i < placed.size(); ++i)
    layout.addresses[placed[i]] = placement.offsets[i];
  Report::Layout shown;
  shown.addresses = std::move(layout.addresses);
  shown.outcomes = std::move(layout.outcomes);
  shown.span = std::max(placement.high_water_mark, arena);
  shown.arena = arena;
  if (std::any_of(shown.outcomes.begin(), shown.outcomes.end(), std::not_fn(in_arena)))
    shown.note = "hatched: in the pool, drawn where it fits";
  return shown;
}

Report::Layout torch_layout_of(const replay::Workload& workload,
                               std::span<const Report::Block> blocks, Bytes* peak) {
  Layout layout = replay::torch_layout(workload);
  *peak = layout.reserved_peak;
  Report::Layout shown;
  shown.label = "PyTorch's caching allocator";
  shown.addresses = std::move(layout.addresses);
  shown.reserved = std::move(layout.reserved);
  shown.reserved_peak = layout.reserved_peak;
  pack_addresses(shown, blocks);
  return shown;
}

// What the run's own allocator held after each request of bytes, where the trace says.
std::vector<Bytes> recorded_reserved(const Trace& trace) {
  std::vector<Bytes> reserved;
  HeldSegments held;
  for (const trace::Entry& entry : trace.entries) {
    held.see(entry);
    const auto* const request = std::get_if<trace::Request>(&entry.event);
    if (request != nullptr && request->bytes != 0) reserved.push_back(held.now);
  }
  return held.any ? reserved : std::vector<Bytes>{};
}

}  // namespace

std::uint32_t Report::name(std::string_view text) {
  if (text.empty()) return 0;
  const auto [it, added] =
      numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(names.size()));
  if (added) names.emplace_back(text);
  return it->second;
}

void pack_addresses(Report::Layout& layout, std::span<const Report::Block> blocks) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> used;
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    if (layout.addresses[k] != Layout::kNowhere)
      used.emplace_back(layout.addresses[k], layout.addresses[k] + blocks[k].bytes);
  }
  std::sort(used.begin(), used.end());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> stretches;
  Bytes total = 0;
  for (const auto& [begin, end] : used) {
    if (stretches.empty() || begin > stretches.back().second) {
      stretches.emplace_back(begin, end);
    } else {
      stretches.back().second = std::max(stretches.back().second, end);
    }
  }
  for (const auto& [begin, end] : stretches) total += end - begin;
  // Where each stretch goes.
  std::vector<Bytes> places;
  layout.breaks.clear();
  Bytes at = 0;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    if (i > 0) {
      const Bytes gap = stretches[i].first - stretches[i - 1].second;
      if (gap <= total / 100) {
        at += gap;
      } else {
        layout.breaks.push_back(at);
      }
    }
    places.push_back(at);
    at += stretches[i].second - stretches[i].first;
  }
  layout.span = at;
  for (std::uint64_t& address : layout.addresses) {
    if (address == Layout::kNowhere) continue;
    const auto next = std::upper_bound(
        stretches.begin(), stretches.end(), address,
        [](std::uint64_t value, const auto& stretch) { return value < stretch.first; });
    const auto index = static_cast<std::size_t>(next - stretches.begin()) - 1;
    address = places[index] + (address - stretches[index].first);
  }
}

Report report_of(const Plan& plan, const std::string& name) {
  Report report;
  report.title = name;
  report.about = fmt::format("plan of {} a step{}", format_number_of(plan.slot_count(), "request"),
                             program_of(plan.program));
  report.facts.push_back(
      bytes_fact("arena", plan.arena_bytes, gap_of(plan.arena_bytes, plan.lower_bound)));
  report.facts.push_back(
      bytes_fact("lower bound", plan.lower_bound, "the most of a step that is alive at one time"));
  Bytes step = 0;
  std::size_t pool = 0;
  for (const Sequence& sequence : plan.sequences) {
    for (const Slot& slot : sequence.slots) {
      if (slot.planned()) {
        step += slot.size;
      } else {
        ++pool;
      }
    }
  }
  report.facts.push_back(bytes_fact(
      "a step asks for", step,
      plan.arena_bytes == 0
          ? ""
          : fmt::format("each byte of the arena {:.1f} times",
                        static_cast<double>(step) / static_cast<double>(plan.arena_bytes))));
  if (pool > 0)
    report.facts.push_back({"left to the pool", format_number_of(pool, "request"), "not drawn"});
  report.facts.push_back({"made by", plan.engine.empty() ? "unknown" : plan.engine,
                          fmt::format("seed {}, in {:.3f} s", plan.seed, plan.plan_seconds)});
  std::size_t blocks = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    Report::View view = view_of_path(plan, i, report);
    blocks += view.blocks.size();
    if (blocks > kMostReportBlocks && i > 0) {
      report.about += fmt::format("; {} of {} shown", i, format_count(plan.sequences.size()));
      break;
    }
    report.views.push_back(std::move(view));
  }
  return report;
}

Report report_of(const Trace& trace, const std::optional<Plan>& plan, const std::string& name) {
  const replay::Workload workload = replay::make_workload(trace);
  const TracedRun traced(trace);
  Report report;
  report.title = name;
  report.about =
      fmt::format("run of {} in {}{}", format_number_of(workload.requests, "request"),
                  format_number_of(workload.steps, "marked step"), program_of(trace.program));
  if (trace.cut_bytes > 0)
    report.about += fmt::format("; torn tail of {} left out", format_bytes(trace.cut_bytes));

  Report::View& view = report.views.emplace_back();
  view.time = "requests of the run";
  view.unit = "request";
  view.period = workload.requests;
  // Ticks of the trace to requests: those before a tick.
  std::vector<trace::Tick> births;
  for (const TracedBlock& block : traced.blocks()) {
    if (block.requested != 0) births.push_back(block.birth);
  }
  const auto request_of = [&](trace::Tick tick) {
    return static_cast<std::uint64_t>(std::lower_bound(births.begin(), births.end(), tick) -
                                      births.begin());
  };
  for (const TracedBlock& block : traced.blocks()) {
    if (block.requested == 0) continue;
    const std::uint64_t birth = view.blocks.size();
    view.blocks.push_back(
        {.birth = birth,
         .end = block.end == TracedBlock::kNever ? workload.requests : request_of(block.end),
         .bytes = block.bytes,
         .requested = block.requested,
         .module = report.name(
             trace.name(block.origin.module != 0 ? block.origin.module : block.origin.scope)),
         .op = report.name(trace.name(block.origin.op)),
         .phase = report.name(phase_name(trace, block.origin)),
         .role = report.name(std::string(name_of(block.role))),
         .lane = block.lane});
  }
  for (const trace::Entry& entry : trace.entries) {
    if (std::holds_alternative<trace::StepMark>(entry.event))
      view.marks.push_back(request_of(entry.tick));
  }
  view.recorded = recorded_reserved(trace);
  view.bound = traced.peak();
  report.facts.push_back(
      bytes_fact("alive at the peak", traced.peak(),
                 fmt::format("request {} (tick {}){}", format_count(request_of(traced.peak_tick())),
                             format_count(traced.peak_tick()),
                             traced.marks() > 0
                                 ? fmt::format(", in step {}", format_count(traced.peak_step() + 1))
                                 : "")));

  Layout layout;
  // The same replay as the doctor's, so that both name one figure.
  const replay::Result result =
      plan ? replay::through_berth(workload, {.plan = plan, .layout = &layout})
           : replay::learn_in_place(workload, &layout);
  const Bytes arena = result.stats->arena;
  const bool served = result.stats->hits != 0;
  if (served)
    report.facts.push_back(
        bytes_fact("arena of the plan", arena, gap_of(arena, result.stats->arena_bound)));
  report.facts.push_back(bytes_fact("berth reserves", layout.reserved_peak,
                                    over(layout.reserved_peak, traced.peak())));
  std::vector<Bytes> reserved = std::move(layout.reserved);
  const Bytes reserved_peak = layout.reserved_peak;
  if (served) {
    view.layouts.push_back(drawn_with_pool(std::move(layout), arena, view.blocks));
    view.layouts.back().label = plan ? "berth, by the plan" : "berth, learning in place";
  } else {
    const std::string why_not =
        plan ? "it has no request of this run" : find_repeats(trace).why_not;
    view.layouts.emplace_back().label = "berth, its pool alone";
    view.layouts.back().missing =
        fmt::format("No plan to draw: {}. The pool serves, and its pages move.",
                    why_not.empty() ? "the run ends before one serves" : why_not);
  }
  view.layouts.back().reserved = std::move(reserved);
  view.layouts.back().reserved_peak = reserved_peak;
  if (!result.problem.empty()) report.about += "; berth ended early: " + result.problem;
  Bytes torch_peak = 0;
  view.layouts.push_back(torch_layout_of(workload, view.blocks, &torch_peak));
  report.facts.push_back(
      bytes_fact("PyTorch reserves", torch_peak, over(torch_peak, traced.peak())));
  if (served) report.statistics = StatsSummary(*result.stats).to_json();
  keep_around_peak(view, request_of(traced.peak_tick()));
  if (view.first > 0 || view.period < workload.requests)
    report.about +=
        fmt::format("; the {} around the peak are shown", format_number_of(view.period, "request"));
  return report;
}

Report report_of(std::span<const Lifetime> rows, const std::string& name) {
  constexpr double kPlanSeconds =
      2;  // nobody waits long for a picture; `berth plan` takes its time
  Report report;
  report.title = name;
  report.about = fmt::format("lifetimes of {}", format_number_of(rows.size(), "buffer"));
  const Problem problem = make_problem(rows, 1);
  PlaceOptions options;
  options.time_limit_seconds = kPlanSeconds;
  const Placement placement = place_buffers(problem, options);
  report.facts.push_back(bytes_fact("arena", placement.high_water_mark,
                                    gap_of(placement.high_water_mark, placement.lower_bound)));
  report.facts.push_back(
      bytes_fact("lower bound", placement.lower_bound, "the most that is alive at one time"));
  report.facts.push_back(
      {"placed by", placement.engine,
       fmt::format("in {:.3f} s; berth plan can take longer", placement.seconds)});
  Report::View& view = report.views.emplace_back();
  view.time = "time";
  view.unit = "tick";
  view.op_word = "id";
  view.bound = placement.lower_bound;
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows[a].lower < rows[b].lower; });
  order.resize(std::min(order.size(), kMostReportBlocks));
  if (!order.empty()) view.first = rows[order.front()].lower;
  Report::Layout layout;
  layout.label = "berth";
  layout.arena = layout.span = placement.high_water_mark;
  for (const std::size_t k : order) {
    const Lifetime& row = rows[k];
    view.period = std::max(view.period, row.upper - view.first);
    view.blocks.push_back({.birth = row.lower - view.first,
                           .end = row.upper - view.first,
                           .bytes = row.size,
                           .requested = row.size,
                           .op = report.name(row.id)});
    layout.addresses.push_back(placement.offsets[k]);
  }
  view.layouts.push_back(std::move(layout));
  return report;
}

Picture picture_of(const Report& report) {
  const Report::View& view = report.views.at(0);
  Picture picture;
  picture.title = report.title + ": " + report.about;
  picture.time = view.time;
  picture.unit = view.unit;
  picture.address = "address";
  picture.bound = view.bound;
  for (const Report::Layout& layout : view.layouts) {
    if (!layout.missing.empty()) continue;
    Picture::Panel& panel = picture.panels.emplace_back();
    const Bytes held = layout.reserved_peak != 0 ? layout.reserved_peak : layout.arena;
    panel.label = fmt::format("{}: {}{}", layout.label, format_bytes(held),
                              layout.note.empty() ? "" : ", the pool drawn where it fits");
    panel.period = view.period;
    picture.arena = std::max(picture.arena, layout.span);
    for (std::size_t k = 0; k < view.blocks.size(); ++k) {
      const Report::Block& block = view.blocks[k];
      if (layout.addresses[k] != Layout::kNowhere)
        panel.boxes.push_back({.offset = layout.addresses[k],
                               .size = block.bytes,
                               .birth = block.birth,
                               .length = block.end - block.birth});
    }
  }
  for (const Report::Fact& fact : report.facts) {
    if (picture.about.size() > 80) break;
    picture.about +=
        fmt::format("{}{} {}", picture.about.empty() ? "" : ", ", fact.what, fact.value);
  }
  return picture;
}

Report report_of_statistics(Json statistics, const std::string& name) {
  Report report;
  report.title = name;
  report.about = "how the requests of a run were served";
  report.statistics = std::move(statistics);
  return report;
}

}  // namespace berth::cli
