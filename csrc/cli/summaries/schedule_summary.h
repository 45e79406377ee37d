#pragma once

#include "csrc/cli/core/output.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"

#include <optional>
#include <string>
#include <vector>

namespace berth::cli {

// What `show` and `verify` say of a schedule. Peaks and times are the referee's wherever the graph
// is there; alone, a schedule has its planner's word.
class ScheduleSummary {
 public:
  explicit ScheduleSummary(const graph::Schedule& schedule);
  // The same with what the graph tells. The schedule and the graph outlive this.
  ScheduleSummary(const graph::Schedule& schedule, const graph::Graph& graph,
                  const graph::CopyRates& rates);

  // The first thing that is wrong with the schedule; empty where nothing is, or the graph is not
  // there.
  [[nodiscard]] const std::string& violation() const noexcept { return after_.violation; }
  [[nodiscard]] Json to_json() const;
  // Of a legal schedule.
  [[nodiscard]] std::string to_text(const std::string& path) const;
  // An SVG: live bytes while each operator runs, as given and under the schedule.
  [[nodiscard]] std::string to_svg(const std::string& name) const;

 private:
  struct Holder {  // a buffer that is alive at the peak
    graph::BufferId buffer = 0;
    Bytes bytes = 0;
    std::string maker;
  };
  struct Again {  // an operator that runs more than once
    graph::OperatorId op = 0;
    std::uint64_t times = 0, ns = 0;  // after the first
  };
  struct Copied {  // a buffer that goes to the host
    graph::BufferId buffer = 0;
    Bytes bytes = 0;  // all ways out
    std::string maker;
  };

  struct Chosen {  // a run by another alternative than recorded
    graph::OperatorId op = 0;
    std::uint32_t alternative = 0;
    std::string algorithm;
  };

  void walk();
  [[nodiscard]] bool has_before() const noexcept { return before_.violation.empty(); }

  const graph::Schedule& schedule_;
  const graph::Graph* graph_ = nullptr;
  graph::Verdict after_, before_;                // of the schedule, of the step as recorded
  std::optional<double> fragmentation_;          // of the arena, where all lies in it
  std::vector<Bytes> live_before_, live_after_;  // by run
  std::string peak_operator_;  // that runs at the peak; empty where a reload reaches it
  Bytes peak_workspace_ = 0;
  std::vector<Holder> largest_;  // at the peak, ten, largest first; no residents
  std::vector<Again> again_;     // by time, longest first
  std::vector<Copied> copied_;   // largest first
  std::vector<Chosen> chosen_;   // in the order of the runs
};

}  // namespace berth::cli
