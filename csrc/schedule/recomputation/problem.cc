#include "csrc/schedule/recomputation/problem.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <functional>

namespace berth::schedule {
namespace {

void check_alternatives(const std::vector<StageAlternative>& alternatives,
                        const std::string& whose) {
  for (const StageAlternative& alternative : alternatives) {
    BERTH_CHECK(alternative.cost >= 0 && alternative.cost < StageProblem::kNever, kInput,
                "{} costs {}, 0 to {} are legal", whose, alternative.cost,
                StageProblem::kNever - 1);
    BERTH_CHECK(alternative.workspace > -StageProblem::kMostBytes &&
                    alternative.workspace < StageProblem::kMostBytes,
                kInput, "{} has a workspace of {}", whose, alternative.workspace);
  }
}

void check_bytes(std::int64_t bytes, const std::string& whose) {
  BERTH_CHECK(bytes >= 0 && bytes < StageProblem::kMostBytes, kInput,
              "{} has {} bytes, 0 to {} are legal", whose, bytes, StageProblem::kMostBytes - 1);
}

void check_distinct(std::vector<StageValue> list, const std::string& whose, const char* does) {
  std::ranges::sort(list);
  const auto twice = std::ranges::adjacent_find(list);
  BERTH_CHECK(twice == list.end(), kInput, "{} {} result {} twice", whose, does, *twice);
}

// What MONeT's rules take for granted: one result an operator, of its number.
void check_monet(const StageProblem& problem) {
  BERTH_CHECK(problem.values.size() == problem.nodes.size(), kInput,
              "{} operators have {} results, by MONeT's rules each has one", problem.nodes.size(),
              problem.values.size());
  for (StageNode n = 0; n < problem.nodes.size(); ++n) {
    const StageProblem::NodeOf& node = problem.nodes[n];
    BERTH_CHECK(node.makes == std::vector<StageValue>{n}, kInput,
                "operator {} does not make result {}, as by MONeT's rules it does", n, n);
    std::int64_t bytes = 0;
    for (const StageValue v : node.local) bytes += problem.values[v].bytes;
    BERTH_CHECK(std::ranges::is_sorted(node.local) && bytes == node.local_bytes, kInput,
                "beside operator {} stand results with {} bytes, ascending, not {}", n, bytes,
                node.local_bytes);
    if (!node.with_previous) continue;
    const StageProblem::NodeOf& previous = problem.nodes[n - 1];
    BERTH_CHECK(!previous.with_previous, kInput,
                "operator {} runs with the one before it, which does so itself", n);
    BERTH_CHECK(!previous.over || !node.in_place.empty(), kInput,
                "operator {} has no alternative in place, the one before it has", n);
  }
}

void check(const StageProblem& problem) {
  const std::size_t nodes = problem.nodes.size(), values = problem.values.size(),
                    stages = problem.stages.size();
  BERTH_CHECK(stages >= 1, kInput, "{} operators in 0 stages", nodes);
  BERTH_CHECK(nodes <= StageProblem::kMostNodes, kInput, "it has {} operators, the most is {}",
              nodes, StageProblem::kMostNodes);
  BERTH_CHECK(stages <= StageProblem::kMostStages, kInput, "it has {} stages, the most is {}",
              stages, StageProblem::kMostStages);
  BERTH_CHECK(std::max(nodes, values) * stages <= StageProblem::kMostCells, kInput,
              "its {} results and {} stages are too many: their product is at most {}", values,
              stages, StageProblem::kMostCells);
  std::vector<StageNode> maker(values, StageProblem::kMostNodes);
  for (StageNode n = 0; n < nodes; ++n) {
    const StageProblem::NodeOf& node = problem.nodes[n];
    const std::string whose = fmt::format("operator {}", n);
    BERTH_CHECK(!node.first.empty() || node.always_in_place, kInput, "{} has no alternative",
                whose);
    BERTH_CHECK(!node.always_in_place || (node.over && !node.in_place.empty()), kInput,
                "{} runs in place of nothing", whose);
    BERTH_CHECK(!node.with_previous || n > 0, kInput,
                "{} runs with the one before it: there is none", whose);
    BERTH_CHECK(!node.over || !node.in_place.empty(), kInput,
                "{} takes over a result and has no alternative to do so", whose);
    // mutant: kept-twice-read
    check_distinct(node.reads, whose, "reads");
    check_distinct(node.makes, whose, "makes");
    check_distinct(node.local, whose, "stands beside");
    check_alternatives(node.first, whose);
    check_alternatives(node.again, whose);
    check_alternatives(node.in_place, whose);
    check_bytes(node.local_bytes, whose);
    for (const StageValue v : node.makes) {
      BERTH_CHECK(v < values && problem.values[v].maker == n, kInput,
                  "{} makes result {}, which is another's or none", whose, v);
      maker[v] = n;
    }
    BERTH_CHECK(std::adjacent_find(node.reads.begin(), node.reads.end(), std::greater_equal<>()) ==
                    node.reads.end(),
                kInput, "what {} reads is not sorted, or named twice", whose);
    for (const StageValue v : node.reads)
      BERTH_CHECK(v < values && problem.values[v].maker < n, kInput,
                  "{} reads result {}, which is not made before it", whose, v);
    for (const StageValue v : node.local)
      BERTH_CHECK(v < values, kInput, "{} stands beside result {}, there are {}", whose, v, values);
    BERTH_CHECK(!node.over || std::count(node.reads.begin(), node.reads.end(), *node.over) > 0 ||
                    node.with_previous,
                kInput, "{} takes over a result that it does not read", whose);
  }
  std::int64_t all = 0;
  for (StageValue v = 0; v < values; ++v) {
    check_bytes(problem.values[v].bytes, fmt::format("result {}", v));
    all += problem.values[v].bytes;
    check_bytes(all, fmt::format("all results to {} together", v));
    BERTH_CHECK(maker[v] < nodes, kInput, "result {} is made by no operator", v);
  }
  for (std::size_t t = 0; t < stages; ++t) {
    const StageProblem::StageOf& stage = problem.stages[t];
    const std::string whose = fmt::format("stage {}", t);
    check_bytes(stage.fixed, whose);
    check_bytes(stage.closing, whose);
    for (const StageNode n : stage.must_run)
      BERTH_CHECK(n < nodes, kInput, "{} runs operator {}, there are {}", whose, n, nodes);
    BERTH_CHECK(std::is_sorted(stage.must_run.begin(), stage.must_run.end()), kInput,
                "what {} must run is not sorted", whose);
    for (const StageProblem::AlternativesOf& one : stage.alternatives) {
      check_alternatives(one.all, whose);
      BERTH_CHECK(!one.all.empty(), kInput, "{} has an alternative that cannot run", whose);
      for (const StageValue v : one.reads)
        BERTH_CHECK(v < values, kInput, "{} reads result {}, there are {}", whose, v, values);
      BERTH_CHECK(std::is_sorted(one.reads.begin(), one.reads.end()), kInput,
                  "what {} reads is not sorted", whose);
      check_distinct(one.reads, whose, "reads");
    }
    BERTH_CHECK(problem.rules != StageRules::kCheckmate || stage.alternatives.empty(), kInput,
                "{} has a closing operator, by Checkmate's rules none has", whose);
    BERTH_CHECK(stage.alternatives.size() <= 64, kInput, "{} has {} alternatives, the most is 64",
                whose, stage.alternatives.size());
  }
  if (problem.rules == StageRules::kMonet) check_monet(problem);
}

}  // namespace

std::string StageProblem::violation() const {
  try {
    check(*this);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace berth::schedule
