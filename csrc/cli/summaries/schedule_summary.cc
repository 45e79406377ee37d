#include "csrc/cli/summaries/schedule_summary.h"

#include "csrc/cli/summaries/live_picture.h"
#include "csrc/schedule/joint/lifetimes.h"
#include "csrc/schedule/order/from_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace berth::cli {
namespace {

using graph::ScheduleStep;
using Kind = ScheduleStep::Kind;

constexpr std::size_t kMostRows = 10;

std::size_t count_of(const graph::Schedule& schedule, Kind kind) {
  return static_cast<std::size_t>(
      std::count_if(schedule.steps.begin(), schedule.steps.end(),
                    [kind](const ScheduleStep& step) { return step.kind == kind; }));
}

// Live bytes of the runs alone.
std::vector<Bytes> of_runs(const graph::Schedule& schedule, const std::vector<Bytes>& live) {
  std::vector<Bytes> runs;
  for (std::size_t k = 0; k < live.size(); ++k)
    if (schedule.steps[k].kind == Kind::kRun) runs.push_back(live[k]);
  return runs;
}

// The first ten rows of a table of them, and how many more there are.
template <class Rows, class AddRow>
std::string table_of(const std::string& title, Table table, const Rows& rows,
                     const AddRow& add_row) {
  if (rows.empty()) return {};
  for (std::size_t k = 0; k < std::min(rows.size(), kMostRows); ++k) add_row(table, rows[k]);
  std::string text = title + "\n" + table.to_string();
  if (rows.size() > kMostRows)
    text += fmt::format("  and {} more\n", format_count(rows.size() - kMostRows));
  return text;
}

}  // namespace

ScheduleSummary::ScheduleSummary(const graph::Schedule& schedule) : schedule_(schedule) {}

ScheduleSummary::ScheduleSummary(const graph::Schedule& schedule, const graph::Graph& graph,
                                 const graph::CopyRates& rates)
    : schedule_(schedule), graph_(&graph), after_(graph::replay(graph, schedule, rates)) {
  if (!violation().empty()) return;
  const std::vector<graph::OperatorId> given =
      graph.order.empty() ? schedule::order_problem(graph).first_order() : graph.order;
  const graph::Schedule as_given = graph::schedule_of_order(graph, given);
  before_ = graph::replay(graph, as_given);
  const schedule::Lifetimes lifetimes = schedule::lifetimes_of(graph, schedule, rates);
  if (schedule.arena_bytes != 0 && all_placed(lifetimes, schedule))
    fragmentation_ =
        1 - static_cast<double>(lifetimes.live_peak) / static_cast<double>(schedule.arena_bytes);
  live_before_ = of_runs(as_given, before_.live);
  live_after_ = of_runs(schedule, after_.live);
  walk();
}

// Through a legal schedule: who made each buffer, which are alive at the peak, what is recomputed
// and what is copied.
void ScheduleSummary::walk() {
  std::vector<std::string> makers(schedule_.buffers.size());
  std::vector<bool> alive(schedule_.buffers.size(), false);
  const auto storage_of = [&](graph::BufferId buffer) -> const graph::Storage& {
    return graph_->storages[schedule_.buffers[buffer].storage];
  };
  for (graph::BufferId buffer = 0; buffer < makers.size(); ++buffer) {
    if (storage_of(buffer).kind == graph::StorageClass::kStep) continue;
    alive[buffer] = true;
    makers[buffer] = fmt::format("(input {})", schedule_.buffers[buffer].storage);
  }
  std::vector<std::uint64_t> runs(graph_->operators.size(), 0);
  std::map<graph::OperatorId, Again> again;
  std::map<graph::BufferId, Copied> copied;
  for (std::size_t k = 0; k < schedule_.steps.size(); ++k) {
    const ScheduleStep& step = schedule_.steps[k];
    if (step.kind == Kind::kRun) {
      const graph::Operator& op = graph_->operators[step.op];
      for (const graph::BufferId buffer : step.writes) {
        alive[buffer] = true;
        makers[buffer] = op.name;
      }
      if (step.alternative != 0)
        chosen_.push_back({step.op, step.alternative, op.alternatives[step.alternative].algorithm});
      if (runs[step.op]++ != 0) {
        Again& one = again[step.op];
        one.op = step.op;
        ++one.times;
        one.ns += op.alternatives[step.alternative].ns;
      }
    } else {
      alive[step.buffer] = step.kind == Kind::kReload;
      if (step.kind == Kind::kOffload) {
        Copied& one = copied[step.buffer];
        one.buffer = step.buffer;
        one.bytes += storage_of(step.buffer).bytes;
        one.maker = makers[step.buffer];
      }
    }
    if (k != after_.peak_step) continue;
    if (step.kind == Kind::kRun) {
      peak_operator_ = graph_->operators[step.op].name;
      peak_workspace_ = graph_->operators[step.op].alternatives[step.alternative].workspace;
    }
    for (graph::BufferId buffer = 0; buffer < alive.size(); ++buffer)
      if (alive[buffer] && storage_of(buffer).kind != graph::StorageClass::kResident)
        largest_.push_back({buffer, storage_of(buffer).bytes, makers[buffer]});
  }
  for (const auto& [op, one] : again) again_.push_back(one);
  for (const auto& [buffer, one] : copied) copied_.push_back(one);
  const auto by_bytes = [](const auto& a, const auto& b) { return a.bytes > b.bytes; };
  std::stable_sort(largest_.begin(), largest_.end(), by_bytes);
  std::stable_sort(copied_.begin(), copied_.end(), by_bytes);
  std::stable_sort(again_.begin(), again_.end(),
                   [](const Again& a, const Again& b) { return a.ns > b.ns; });
}

Json ScheduleSummary::to_json() const {
  Json json = {{"operators_run", count_of(schedule_, Kind::kRun)},
               {"buffers", schedule_.buffers.size()},
               {"drops", count_of(schedule_, Kind::kDrop)},
               {"offloads", count_of(schedule_, Kind::kOffload)},
               {"reloads", count_of(schedule_, Kind::kReload)},
               {"arena_bytes", schedule_.arena_bytes},
               {"host_arena_bytes", schedule_.host_bytes},
               {"budget_bytes", schedule_.budget},
               {"claimed_peak_bytes", schedule_.peak},
               {"bound_bytes", schedule_.peak_bound},
               {"claimed_time_ns", schedule_.ns},
               {"time_bound_ns", schedule_.ns_bound},
               {"engine", schedule_.engine},
               {"seed", schedule_.seed}};
  if (graph_ == nullptr) return json;
  json["legal"] = violation().empty();
  json["violation"] = violation().empty() ? Json(nullptr) : Json(violation());
  if (!violation().empty()) return json;
  json["fragmentation"] = fragmentation_ ? Json(*fragmentation_) : Json(nullptr);
  json["peak_bytes"] = after_.peak;
  json["peak_step"] = after_.peak_step;
  json["peak_operator"] = peak_operator_;
  json["peak_workspace_bytes"] = peak_workspace_;
  json["given_peak_bytes"] = has_before() ? Json(before_.peak) : Json(nullptr);
  json["resident_bytes"] = after_.resident;
  json["time_ns"] = after_.ns;
  json["base_time_ns"] = has_before() ? Json(before_.ns) : Json(nullptr);
  json["recomputed"] = after_.recomputed;
  json["recomputed_ns"] = after_.recomputed_ns;
  json["offloaded_bytes"] = after_.offloaded_bytes;
  json["reloaded_bytes"] = after_.reloaded_bytes;
  json["host_peak_bytes"] = after_.host_peak;
  json["largest"] = Json::array();
  for (std::size_t k = 0; k < std::min(largest_.size(), kMostRows); ++k)
    json["largest"].push_back({{"buffer", largest_[k].buffer},
                               {"bytes", largest_[k].bytes},
                               {"made_by", largest_[k].maker}});
  json["recomputed_operators"] = Json::array();
  for (const Again& one : again_)
    json["recomputed_operators"].push_back({{"operator", one.op},
                                            {"name", graph_->operators[one.op].name},
                                            {"times", one.times},
                                            {"ns", one.ns}});
  json["alternatives_taken"] = Json::array();
  for (const Chosen& one : chosen_)
    json["alternatives_taken"].push_back({{"operator", one.op},
                                          {"name", graph_->operators[one.op].name},
                                          {"alternative", one.alternative},
                                          {"algorithm", one.algorithm}});
  json["offloaded"] = Json::array();
  for (const Copied& one : copied_)
    json["offloaded"].push_back(
        {{"buffer", one.buffer}, {"bytes", one.bytes}, {"made_by", one.maker}});
  return json;
}

std::string ScheduleSummary::to_text(const std::string& path) const {
  std::string text =
      fmt::format("{}: {}, {}", path, format_number_of(count_of(schedule_, Kind::kRun), "run"),
                  format_number_of(schedule_.buffers.size(), "buffer"));
  text += schedule_.engine.empty() ? "\n" : fmt::format(", by {}\n", schedule_.engine);
  const auto line = [&text](const char* what, const std::string& figure) {
    text += fmt::format("  {:<12} {}\n", what, figure);
  };
  if (schedule_.budget != 0) line("budget", format_exactly(schedule_.budget));
  if (graph_ == nullptr) {
    line("peak", format_exactly(schedule_.peak) + ", by its planner");
    line("time", format_ms(schedule_.ns) + ", by its planner");
  } else {
    if (has_before()) line("as given", format_exactly(before_.peak));
    line("peak",
         format_exactly(after_.peak) +
             (peak_operator_.empty() ? "" : fmt::format(", while {} runs", peak_operator_)));
    if (peak_workspace_ != 0) line("", format_bytes(peak_workspace_) + " of them are workspace");
    if (schedule_.peak != 0 && schedule_.peak != after_.peak)
      line("", fmt::format("{} by its planner", format_exactly(schedule_.peak)));
  }
  if (schedule_.peak_bound != 0) line("lower bound", format_exactly(schedule_.peak_bound));
  if (schedule_.arena_bytes != 0)
    line("arena", format_exactly(schedule_.arena_bytes) +
                      (fragmentation_ ? ", fragmentation " + format_percent(*fragmentation_) : ""));
  if (schedule_.host_bytes != 0) line("on the host", format_exactly(schedule_.host_bytes));
  if (graph_ == nullptr)
    return text + "  With its graph the report has more: berth show x.schedule x.graph\n";
  line("residents", format_bytes(after_.resident));
  std::string time = format_ms(after_.ns);
  if (has_before() && before_.ns != 0)
    time +=
        fmt::format(", as given {} ({:+.2f} %)", format_ms(before_.ns),
                    (static_cast<double>(after_.ns) / static_cast<double>(before_.ns) - 1) * 100);
  line("time", time);
  if (after_.recomputed != 0)
    line("recomputed", fmt::format("{}, {}", format_number_of(after_.recomputed, "run"),
                                   format_ms(after_.recomputed_ns)));
  if (after_.offloaded_bytes != 0)
    line("offloaded",
         fmt::format("{} out, {} in, at most {} on the host", format_bytes(after_.offloaded_bytes),
                     format_bytes(after_.reloaded_bytes), format_bytes(after_.host_peak)));
  using Align = Table::Align;
  const std::vector<Table::Column> buffers = {
      {"bytes", Align::kRight}, {"buffer", Align::kRight}, {"made by", Align::kLeft}};
  const auto add_buffer = [](Table& table, const auto& one) {
    table.add({format_bytes(one.bytes), std::to_string(one.buffer), one.maker});
  };
  text += table_of("alive at the peak, residents apart", Table(buffers), largest_, add_buffer);
  text += table_of(
      "recomputed",
      Table({{"time", Align::kRight}, {"runs", Align::kRight}, {"operator", Align::kLeft}}), again_,
      [this](Table& table, const Again& one) {
        table.add({format_ms(one.ns), std::to_string(one.times), graph_->operators[one.op].name});
      });
  text += table_of(
      "by another alternative than recorded",
      Table({{"alternative", Align::kRight},
             {"algorithm", Align::kLeft},
             {"operator", Align::kLeft}}),
      chosen_, [this](Table& table, const Chosen& one) {
        table.add({std::to_string(one.alternative), one.algorithm.empty() ? "-" : one.algorithm,
                   graph_->operators[one.op].name});
      });
  text += table_of("offloaded to the host", Table(buffers), copied_, add_buffer);
  return text;
}

std::string ScheduleSummary::to_svg(const std::string& name) const {
  LivePicture picture;
  picture.title = fmt::format("{}: {}", name, format_number_of(live_after_.size(), "run"));
  picture.subtitle = fmt::format("peak {}", format_bytes(after_.peak));
  if (has_before()) {
    picture.subtitle += fmt::format(", as given {}", format_bytes(before_.peak));
    picture.lines.push_back({"as given", live_before_});
  }
  picture.lines.push_back({"scheduled", live_after_});
  picture.bound = schedule_.peak_bound;
  return cli::to_svg(picture);
}

}  // namespace berth::cli
