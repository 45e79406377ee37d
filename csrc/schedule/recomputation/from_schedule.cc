#include "csrc/schedule/recomputation/from_schedule.h"

#include <algorithm>
#include <map>

namespace berth::schedule {
namespace {

using graph::OperatorId;
using graph::ScheduleStep;

constexpr std::size_t kNoStep = ~std::size_t{0};

// What a buffer holds from one write to the next, and the last step that reads it.
struct Content {
  StageValue value = 0;
  std::size_t born = 0, last_read = kNoStep;
};

class Reader {
 public:
  Reader(const graph::Graph& graph, const StageGraph& stages, const graph::Schedule& schedule)
      : graph_(graph), stages_(stages), schedule_(schedule), plan_(stages.problem) {
    for (StageValue value = 0; value < stages.values.size(); ++value)
      number_[stages.values[value]] = value;
  }

  Recomputation run() {
    find_contents();
    keep();
    return std::move(plan_);
  }

 private:
  void find_contents() {
    std::vector<std::size_t> now(schedule_.buffers.size(), kNoStep);  // into contents_
    const auto hold = [&](graph::BufferId buffer, graph::ValueId id, std::size_t step) {
      const auto found = number_.find(id);
      now[buffer] = found == number_.end() ? kNoStep : contents_.size();
      if (found != number_.end()) contents_.push_back({found->second, step, kNoStep});
    };
    for (graph::BufferId b = 0; b < schedule_.buffers.size(); ++b)
      if (graph_.storages[schedule_.buffers[b].storage].kind == graph::StorageClass::kInput)
        hold(b, {schedule_.buffers[b].storage, 0}, 0);
    std::vector<bool> ran(graph_.operators.size(), false);
    ends_.assign(stages_.problem.stages.size(), 0);
    std::vector<std::uint32_t> stage_of(graph_.operators.size());
    for (std::size_t p = 0; p < stages_.order.size(); ++p)
      stage_of[stages_.order[p]] = stages_.stage[p];
    for (std::size_t k = 0; k < schedule_.steps.size(); ++k) {
      const ScheduleStep& step = schedule_.steps[k];
      if (step.kind != ScheduleStep::Kind::kRun) continue;
      const graph::Alternative& taken = graph_.operators[step.op].alternatives[step.alternative];
      for (const graph::BufferId buffer : step.reads)
        if (now[buffer] != kNoStep) contents_[now[buffer]].last_read = k;
      for (std::size_t w = 0; w < taken.writes.size(); ++w)
        hold(step.writes[w], taken.writes[w], k);
      if (ran[step.op]) continue;
      ran[step.op] = true;
      const std::size_t stage = stage_of[step.op];
      ends_[stage] = k;
      take_alternative(stage, step.alternative);
    }
    // Where what only changes residents comes later in the stages than in the schedule.
    for (std::size_t t = 1; t < ends_.size(); ++t) ends_[t] = std::max(ends_[t], ends_[t - 1]);
  }

  void take_alternative(std::size_t stage, std::uint32_t alternative) {
    const auto& alternatives = stages_.problem.stages[stage].alternatives;
    for (std::size_t a = 0; a < alternatives.size(); ++a)
      for (const StageAlternative& taken : alternatives[a].all)
        if (taken.tag == alternative) plan_.alternatives[stage] = static_cast<std::uint8_t>(a);
  }

  // The last stage in which an operator that runs first takes each value from outside: some come
  // later there than in the schedule, and it can be made by nobody.
  [[nodiscard]] std::vector<std::size_t> lasting_inputs() const {
    std::vector<std::size_t> last(stages_.values.size(), 0);
    for (std::size_t p = 0; p < stages_.order.size(); ++p)
      for (const graph::Read& read :
           graph_.operators[stages_.order[p]].alternatives.front().reads) {
        const auto found = number_.find(read.value);
        if (found != number_.end() && read.value.version == 0)
          last[found->second] = stages_.stage[p];
      }
    return last;
  }

  void keep() {
    const std::vector<std::size_t> lasting = lasting_inputs();
    for (const Content& one : contents_) {
      if (!stages_.problem.values[one.value].keepable) continue;
      const auto first = std::lower_bound(ends_.begin(), ends_.end(), one.born);
      // Behind the last stage nothing is kept, whatever is recomputed there.
      for (auto end = first; end + 1 < ends_.end(); ++end) {
        const auto stage = static_cast<std::size_t>(end - ends_.begin());
        const bool read = one.last_read != kNoStep && *end < one.last_read;
        if (!read && stage >= lasting[one.value]) break;
        plan_.kept.add(stage + 1, one.value);
      }
    }
  }

  const graph::Graph& graph_;
  const StageGraph& stages_;
  const graph::Schedule& schedule_;
  std::map<graph::ValueId, StageValue> number_;
  std::vector<Content> contents_;
  std::vector<std::size_t> ends_;  // by stage: the step of the first run that ends it
  Recomputation plan_;
};

}  // namespace

Recomputation recomputation_of(const graph::Graph& graph, const StageGraph& stages,
                               const graph::Schedule& schedule) {
  return Reader(graph, stages, schedule).run();
}

}  // namespace berth::schedule
