#include "csrc/schedule/offload/offload_plan.h"

#include "csrc/core/check.h"

namespace berth::schedule::offload {

OffloadPlan keep_all(const Problem& problem) {
  OffloadPlan plan;
  plan.choices.resize(problem.values.size());
  return plan;
}

bool may(const Problem& problem, Value v, Fate fate) {
  if (fate == Fate::kKeep) return true;
  const Problem::ValueOf& value = problem.values[v];
  if (!value.movable || value.bytes == 0) return false;
  const bool made_before = value.maker != kNobody && value.maker < problem.border;
  if (fate == Fate::kRecompute)
    return made_before && problem.operators[value.maker].recomputable && value.written == kNobody;
  return made_before ||
         (value.maker == kNobody && !value.readers.empty() && value.readers[0] < problem.border);
}

void Execution::emit(const Problem& problem, Index op, bool again) {
  const Index run = static_cast<Index>(runs.size());
  runs.push_back({op, again});
  if (!again) run_of[op] = run;
  std::vector<Index>& side = op < problem.border && !again ? last_before : first_after;
  const bool before = &side == &last_before;
  for (const Value v : problem.operators[op].reads) {
    if (before || side[v] == kNobody) side[v] = run;
    last_use[v] = run;
  }
  for (const Value v : problem.operators[op].makes) {
    if (!again) {
      if (before) last_before[v] = run;
      last_use[v] = run;
    } else if (fate[v] == Fate::kRecompute) {
      recomputed_at[v] = run;
      last_use[v] = run;
    }
  }
}

void Execution::expand(const Problem& problem, const OffloadPlan& plan) {
  BERTH_CHECK(plan.choices.size() == problem.values.size(), kUsage,
              "a plan of {} values for a step of {}", plan.choices.size(), problem.values.size());
  runs.clear();
  run_of.assign(problem.operators.size(), kNobody);
  for (std::vector<Index>* places : {&last_before, &first_after, &last_use, &recomputed_at})
    places->assign(problem.values.size(), kNobody);
  fate.resize(problem.values.size());
  for (Value v = 0; v < fate.size(); ++v) {
    fate[v] = plan.choices[v].fate;
    BERTH_CHECK(fate[v] == Fate::kKeep || may(problem, v, fate[v]), kUsage,
                "value {} of {} bytes may not be {}", v, problem.values[v].bytes,
                fate[v] == Fate::kOffload ? "offloaded" : "recomputed");
  }
  for (Index op = 0; op < problem.border; ++op) emit(problem, op, false);
  for (Index op = problem.border; op < problem.operators.size(); ++op) {
    stack_.assign(1, {op, 0});
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      const std::vector<Value>& reads = problem.operators[top.op].reads;
      Index wanted = kNobody;
      while (wanted == kNobody && top.next_read < reads.size()) {
        const Value v = reads[top.next_read++];
        if (fate[v] == Fate::kRecompute && recomputed_at[v] == kNobody)
          wanted = problem.values[v].maker;
      }
      if (wanted != kNobody) {
        stack_.push_back({wanted, 0});
        continue;
      }
      emit(problem, top.op, stack_.size() > 1);
      stack_.pop_back();
    }
  }
  for (Value v = 0; v < fate.size(); ++v)
    if (first_after[v] == kNobody) fate[v] = Fate::kKeep;
}

}  // namespace berth::schedule::offload
