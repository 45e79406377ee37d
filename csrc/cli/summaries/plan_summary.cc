#include "csrc/cli/summaries/plan_summary.h"

#include "csrc/cli/core/lifetimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace berth::cli {
namespace {

// Blocks of sizes in (limit / 4, limit].
struct SizeClass {
  std::size_t count = 0;
  Bytes bytes = 0;
};

// By upper limit: powers of four from 1 KiB on.
class SizeClasses {
 public:
  void add(Bytes size) {
    Bytes limit = 1024;
    while (limit < size) limit *= 4;
    SizeClass& found = classes_[limit];
    ++found.count;
    found.bytes += size;
    total_ += size;
  }
  [[nodiscard]] Bytes total() const noexcept { return total_; }
  [[nodiscard]] Json to_json() const {
    Json list = Json::array();
    for (const auto& [limit, entry] : classes_)
      list.push_back({{"up_to_bytes", limit}, {"count", entry.count}, {"bytes", entry.bytes}});
    return list;
  }
  [[nodiscard]] std::string to_text(const char* what) const {
    Table table({{"size", Table::Align::kLeft}, {what}, {"bytes"}, {"share"}});
    for (const auto& [limit, entry] : classes_) {
      table.add({"to " + format_bytes(limit), format_count(entry.count), format_bytes(entry.bytes),
                 format_percent(static_cast<double>(entry.bytes) / static_cast<double>(total_))});
    }
    return table.to_string();
  }

 private:
  std::map<Bytes, SizeClass> classes_;
  Bytes total_ = 0;
};

double gap_of(Bytes arena, Bytes bound) {
  return bound == 0 ? 0 : static_cast<double>(arena) / static_cast<double>(bound) - 1;
}

SizeClasses classes_of(const Plan& plan) {
  SizeClasses classes;
  for (const Sequence& sequence : plan.sequences) {
    for (const Slot& slot : sequence.slots) {
      if (slot.planned()) classes.add(slot.size);
    }
  }
  return classes;
}

std::size_t unplanned_of(const Sequence& sequence) {
  return static_cast<std::size_t>(std::count_if(sequence.slots.begin(), sequence.slots.end(),
                                                [](const Slot& slot) { return !slot.planned(); }));
}

SizeClasses classes_of(std::span<const Lifetime> rows) {
  SizeClasses classes;
  for (const Lifetime& row : rows) classes.add(row.size);
  return classes;
}

// The rows with the largest sizes, largest first.
std::vector<const Lifetime*> largest_of(std::span<const Lifetime> rows) {
  std::vector<const Lifetime*> largest;
  for (const Lifetime& row : rows) largest.push_back(&row);
  std::stable_sort(largest.begin(), largest.end(),
                   [](const Lifetime* a, const Lifetime* b) { return a->size > b->size; });
  largest.resize(std::min<std::size_t>(largest.size(), 10));
  return largest;
}

}  // namespace

Json plan_to_json(const Plan& plan) {
  std::size_t unplanned = 0;
  Json sequences = Json::array();
  for (const Sequence& sequence : plan.sequences) {
    const std::size_t pool = unplanned_of(sequence);
    unplanned += pool;
    sequences.push_back({{"lane", sequence.lane},
                         {"lane_key", plan.lane_keys.at(sequence.lane)},
                         {"parent", sequence.parent < 0 ? Json(nullptr) : Json(sequence.parent)},
                         {"fork", sequence.fork},
                         {"period", sequence.period},
                         {"slots", sequence.slots.size()},
                         {"unplanned", pool},
                         {"marks", sequence.marks.size()}});
  }
  const SizeClasses classes = classes_of(plan);
  return {{"kind", "plan"},
          {"slots", plan.slot_count()},
          {"unplanned", unplanned},
          {"arena_bytes", plan.arena_bytes},
          {"lower_bound_bytes", plan.lower_bound},
          {"gap", gap_of(plan.arena_bytes, plan.lower_bound)},
          {"step_bytes", classes.total()},
          {"alignment", plan.alignment},
          {"engine", plan.engine},
          {"seed", plan.seed},
          {"seconds", plan.plan_seconds},
          {"fingerprint", fmt::format("{:016x}", fingerprint(plan))},
          {"torch_version", plan.program.torch_version},
          {"device", plan.program.device_name},
          {"device_bytes", plan.program.device_bytes},
          {"world_size", plan.program.world_size},
          {"rank", plan.program.rank},
          {"tag", plan.program.tag},
          {"lanes", plan.lane_keys.size()},
          {"edges", plan.edges.size()},
          {"sequences", sequences},
          {"size_classes", classes.to_json()}};
}

std::string plan_to_text(const Plan& plan, const std::string& path) {
  const SizeClasses classes = classes_of(plan);
  std::string text = fmt::format("{}: plan of {} a step on {}\n", path,
                                 format_number_of(plan.slot_count(), "request"),
                                 format_number_of(plan.lane_keys.size(), "lane"));
  text += fmt::format("  arena        {}\n", format_exactly(plan.arena_bytes));
  text += fmt::format("  lower bound  {}\n", format_exactly(plan.lower_bound));
  text += fmt::format("  gap          {}{}\n",
                      format_percent(gap_of(plan.arena_bytes, plan.lower_bound)),
                      plan.arena_bytes == plan.lower_bound ? ", optimal" : "");
  if (plan.arena_bytes > 0) {
    text += fmt::format(
        "  a step uses  {}: each byte of the arena {:.1f} times\n", format_bytes(classes.total()),
        static_cast<double>(classes.total()) / static_cast<double>(plan.arena_bytes));
  }
  text += fmt::format("  made by      {}, seed {}, in {:.3f} s\n", plan.engine, plan.seed,
                      plan.plan_seconds);
  text +=
      fmt::format("  for          torch {}, device {}{}{}\n",
                  plan.program.torch_version.empty() ? "unknown" : plan.program.torch_version,
                  plan.program.device_name.empty() ? "unknown" : plan.program.device_name,
                  plan.program.tag.empty() ? "" : ", tag " + plan.program.tag,
                  plan.program.world_size > 1
                      ? fmt::format(", rank {} of {}", plan.program.rank, plan.program.world_size)
                      : "");
  text += fmt::format("  alignment    {}\n", format_bytes(plan.alignment));
  text += fmt::format("  fingerprint  {:016x}\n", fingerprint(plan));

  text += "\nSlots by size\n" + classes.to_text("slots");
  text += "\nLanes and branches\n";
  Table table(
      {{"lane"}, {"path", Table::Align::kLeft}, {"slots"}, {"in the pool"}, {"ticks"}, {"marks"}});
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const Sequence& sequence = plan.sequences[i];
    table.add({format_count(plan.lane_keys.at(sequence.lane)),
               sequence.parent < 0
                   ? fmt::format("{}", i)
                   : fmt::format("{} leaves {} before tick {}", i, sequence.parent, sequence.fork),
               format_count(sequence.slots.size()), format_count(unplanned_of(sequence)),
               format_count(sequence.period), format_count(sequence.marks.size())});
  }
  text += table.to_string();
  if (!plan.edges.empty()) {
    text += fmt::format("  {} between lanes let them share bytes\n",
                        format_number_of(plan.edges.size(), "event edge"));
  }
  return text;
}

Json lifetimes_to_json(std::span<const Lifetime> rows) {
  const SizeClasses classes = classes_of(rows);
  Json largest = Json::array();
  for (const Lifetime* row : largest_of(rows)) {
    largest.push_back(
        {{"id", row->id}, {"bytes", row->size}, {"lower", row->lower}, {"upper", row->upper}});
  }
  return {{"kind", "lifetimes"},
          {"buffers", rows.size()},
          {"total_bytes", classes.total()},
          {"lower_bound_bytes", lower_bound(make_problem(rows, 1))},
          {"size_classes", classes.to_json()},
          {"largest", largest}};
}

std::string lifetimes_to_text(std::span<const Lifetime> rows, const std::string& path) {
  const SizeClasses classes = classes_of(rows);
  std::string text =
      fmt::format("{}: lifetimes of {}\n", path, format_number_of(rows.size(), "buffer"));
  text += fmt::format("  together     {}\n", format_exactly(classes.total()));
  text += fmt::format("  lower bound  {}, the most that is alive at one time\n",
                      format_exactly(lower_bound(make_problem(rows, 1))));
  if (rows.empty()) return text;
  text += "\nBuffers by size\n" + classes.to_text("buffers");
  text += "\nThe largest\n";
  Table table({{"bytes"}, {"id", Table::Align::kLeft}, {"lower"}, {"upper"}});
  for (const Lifetime* row : largest_of(rows))
    table.add(
        {format_bytes(row->size), row->id, format_count(row->lower), format_count(row->upper)});
  return text + table.to_string();
}

}  // namespace berth::cli
