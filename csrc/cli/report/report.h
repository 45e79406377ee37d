#pragma once

#include "csrc/cli/core/lifetimes.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/summaries/picture.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/plan/plan.h"
#include "csrc/replay/layout.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace berth::cli {

// What the page of `show --html` shows: blocks over time, where one or several allocators put them,
// and how a run's requests were served. Plain data; report_page.h writes it.
//
// Time is counted in ticks of a view, [0, period); bytes are rounded as the allocator rounds. A
// name is an index into `names`, 0 for not known.
struct Report {
  struct Block {
    std::uint64_t birth = 0, end = 0;  // beyond the period it goes on at the view's beginning
    Bytes bytes = 0, requested = 0;
    std::uint32_t module = 0, op = 0, phase = 0, role = 0, lane = 0;
  };
  // Where one allocator put the blocks. `missing` says why there is no picture, and then there are
  // no addresses.
  struct Layout {
    std::string label, note, missing;
    std::vector<std::uint64_t> addresses;   // one a block, from 0; replay::Layout::kNowhere
    std::vector<Bytes> breaks;              // where unused addresses were left out
    Bytes span = 0;                         // of the axis
    Bytes arena = 0;                        // of its plan, 0: none
    std::vector<Bytes> reserved;            // one a tick, or none
    Bytes reserved_peak = 0;                // between ticks, too; 0: not known
    std::vector<replay::Outcome> outcomes;  // one a block, or none
  };
  struct View {
    std::string label;                 // of several: "lane 0"
    std::string time, unit;            // of the axis; of one tick: "requests of the run", "request"
    std::string op_word = "operator";  // what Block::op names
    std::uint64_t first = 0;           // what the first tick is called
    std::uint64_t period = 0;
    Bytes bound = 0;                   // no layout needs less; 0: not known
    std::vector<Block> blocks;         // by birth
    std::vector<std::uint64_t> marks;  // ticks at which a step ends
    std::vector<Layout> layouts;
    std::vector<Bytes> recorded;  // one a tick: what was reserved in the run itself, or none
  };
  struct Fact {
    std::string what, value, more;
  };

  std::string title, about;
  std::vector<Fact> facts;
  std::vector<std::string> names = {""};
  std::vector<View> views;
  std::optional<Json> statistics;  // of StatsSummary

  // The number of a name, added where it is new.
  std::uint32_t name(std::string_view text);

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

// More blocks than these are not written: of a run those around its peak, of the paths of a plan
// the first ones, and the page says so.
inline constexpr std::size_t kMostReportBlocks = 500'000;

// The slots of a plan, a view for each path.
[[nodiscard]] Report report_of(const Plan& plan, const std::string& name);

// A run, as berth serves it (learning in place, or by `plan`) and as PyTorch's caching allocator
// does, with how its requests were served. Throws as replay::through_berth() does.
[[nodiscard]] Report report_of(const Trace& trace, const std::optional<Plan>& plan,
                               const std::string& name);

// Buffers of a placement problem, placed.
[[nodiscard]] Report report_of(std::span<const Lifetime> rows, const std::string& name);

// A legal schedule, over the operators that it runs.
[[nodiscard]] Report report_of(const graph::Schedule& schedule, const graph::Graph& graph,
                               const graph::CopyRates& rates, const std::string& name);

// How the requests of a run were served, without the run.
[[nodiscard]] Report report_of_statistics(Json statistics, const std::string& name);

// The layouts of a report's first view side by side, to the same scale.
[[nodiscard]] Picture picture_of(const Report& report);

// Moves the used addresses of a layout together: [0, span), breaks where something was left out.
// Gaps of less than a hundredth of what is used stay. O(n log n).
void pack_addresses(Report::Layout& layout, std::span<const Report::Block> blocks);

}  // namespace berth::cli
