#include "csrc/papers/published.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/graph/json.h"
#include "csrc/papers/importers/monet_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace berth::schedule {
namespace {

using graph::Json;
using graph::member;
using graph::whole;

constexpr Bytes kMaxFileBytes = Bytes{64} << 20;

std::int64_t kib(Bytes bytes) { return static_cast<std::int64_t>((bytes + 1023) / 1024); }

class PublishedReader {
 public:
  PublishedReader(const Json& file, const Json& table)
      : checkmate_(member(file, "name", "the file").get<std::string>().starts_with("checkmate")),
        table_(graph::read_monet_table(file, table)) {}

  StageProblem read() {
    problem_.unit_bytes = 1024;
    problem_.unit_ns = 10'000;
    problem_.rules = checkmate_ ? StageRules::kCheckmate : StageRules::kMonet;
    const std::size_t nodes = table_.nodes.size(), loss = table_.loss;
    const std::size_t values = checkmate_ ? nodes : loss + 1;
    for (std::size_t k = 0; k < values; ++k) add_node(k);
    if (checkmate_) {
      // All parameters and their gradients, as published.
      const std::int64_t fixed = kib(table_.nodes.back().fixed_bytes);
      for (std::size_t k = 0; k < values; ++k)
        problem_.stages.push_back({.fixed = fixed,
                                   .closing = 0,
                                   .must_run = {static_cast<StageNode>(k)},
                                   .alternatives = {}});
    } else {
      find_local();
      problem_.stages.push_back({.fixed = kib(table_.nodes[loss - 1].fixed_bytes),
                                 .closing = 0,
                                 .must_run = {static_cast<StageNode>(loss)},
                                 .alternatives = {}});
      for (std::size_t k = loss + 1; k < nodes; ++k) add_stage(k);
    }
    return std::move(problem_);
  }

 private:
  // Those that can be had; of them `only` one, where that is said.
  std::vector<StageAlternative> alternatives(std::size_t k,
                                             const std::vector<graph::MonetAlternative>& all,
                                             std::optional<std::size_t> only) const {
    std::vector<StageAlternative> found;
    for (std::size_t m = 0; m < all.size(); ++m) {
      if (only && m != *only) continue;
      const double time = all[m].ms * 100;
      if (time < 0) continue;
      const auto cost = static_cast<std::int64_t>(
          checkmate_ ? std::nearbyint(time) : std::ceil(std::round(time * 1e7) / 1e7));
      const auto workspace =
          checkmate_ ? 0 : static_cast<std::int64_t>(std::ceil(all[m].workspace_mib * 1024));
      found.push_back({cost, workspace});
    }
    BERTH_CHECK(!found.empty(), kInput, "node {} cannot be run", k);
    return found;
  }

  void add_node(std::size_t k) {
    const graph::MonetNode& node = table_.nodes[k];
    const std::optional<std::size_t> only =
        node.algorithms && !checkmate_ ? std::nullopt : std::optional<std::size_t>(0);
    StageProblem::NodeOf one;
    one.makes = {static_cast<StageValue>(k)};
    const std::set<StageValue> reads(node.reads[0].begin(), node.reads[0].end());
    one.reads.assign(reads.begin(), reads.end());
    one.first = alternatives(k, node.alternatives, only);
    if (!checkmate_ && !node.again.empty()) one.again = alternatives(k, node.again, only);
    if (!checkmate_ && node.over) {
      one.over = static_cast<StageValue>(*node.over);
      one.in_place = alternatives(k, node.in_place, only);
    }
    one.with_previous = !checkmate_ && node.parent;
    if (one.with_previous)
      BERTH_CHECK(*node.parent + 1 == k, kInput, "node {} does not stand behind its parent", k);
    one.local_bytes = kib(node.local_bytes);
    problem_.values.push_back({kib(node.out_bytes), static_cast<StageNode>(k)});
    problem_.nodes.push_back(std::move(one));
  }

  // Beside a node stands what it reads, and what was made before it for a later one.
  void find_local() {
    std::vector<std::size_t> last(problem_.values.size(), 0);
    for (std::size_t k = 0; k < problem_.nodes.size(); ++k)
      for (const StageValue read : problem_.nodes[k].reads) last[read] = k;
    for (std::size_t k = 0; k < problem_.nodes.size(); ++k) {
      StageProblem::NodeOf& node = problem_.nodes[k];
      std::int64_t bytes = 0;
      for (StageValue value = 0; value < k; ++value) {
        const bool reads = std::binary_search(node.reads.begin(), node.reads.end(), value);
        if (!reads && last[value] <= k) continue;
        node.local.push_back(value);
        bytes += problem_.values[value].bytes;
      }
      BERTH_CHECK(bytes == node.local_bytes, kInput,
                  "{} KiB stand beside node {}, its file says {}", bytes, k, node.local_bytes);
    }
  }

  void add_stage(std::size_t k) {
    const graph::MonetNode& node = table_.nodes[k];
    StageProblem::StageOf stage;
    const std::int64_t local = kib(node.local_bytes);
    stage.fixed = local + kib(table_.nodes[k - 1].fixed_bytes);
    stage.closing = local + kib(node.fixed_bytes) + kib(node.out_bytes);
    for (std::size_t a = 0; a < node.reads.size(); ++a) {
      std::set<StageValue> reads;
      for (const std::size_t read : node.reads[a])
        if (read <= table_.loss) reads.insert(static_cast<StageValue>(read));
      stage.alternatives.push_back(
          {{reads.begin(), reads.end()},
           alternatives(k, node.alternatives, node.algorithms ? std::nullopt : std::optional(a))});
    }
    problem_.stages.push_back(std::move(stage));
  }

  const bool checkmate_;
  const graph::MonetTable table_;
  StageProblem problem_;
};

PublishedPlan read_plan(const StageProblem& problem, const std::string& budget, const Json& json) {
  PublishedPlan found{std::stod(budget),
                      static_cast<std::int64_t>(whole(member(json, "runtime_expected", "a plan"),
                                                      std::uint64_t{1} << 40, "its cost")),
                      Recomputation(problem)};
  const std::size_t stages = problem.stages.size();
  for (const auto& [name, intervals] : member(json, "stored", "a plan").items()) {
    const std::uint64_t value = std::stoull(name);
    BERTH_CHECK(value < problem.values.size(), kInput, "a plan keeps node {}, there are {}", value,
                problem.values.size());
    for (const Json& interval : intervals) {
      BERTH_CHECK(interval.is_array() && interval.size() == 2, kInput, "a plan keeps node {} never",
                  value);
      const std::uint64_t first = whole(interval[0], stages, "a stage"),
                          last = whole(interval[1], stages - 1, "a stage");
      for (std::uint64_t row = first; row <= last; ++row) found.plan.kept.add(row, value);
    }
  }
  if (json.contains("bwd_impl") && problem.rules == StageRules::kMonet)
    for (std::size_t t = 1; t < std::min(stages, json["bwd_impl"].size()); ++t) {
      const auto alternative = whole(json["bwd_impl"][t], 63, "an alternative");
      BERTH_CHECK(alternative < problem.stages[t].alternatives.size(), kInput,
                  "a plan takes alternative {} in stage {}", alternative, t);
      found.plan.alternatives[t] = static_cast<std::uint8_t>(alternative);
    }
  return found;
}

}  // namespace

std::int64_t published_budget(double gb) {
  return static_cast<std::int64_t>(std::floor(gb * 1024 * 1024));
}

std::vector<PublishedGraph> read_published(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path, kMaxFileBytes);
  try {
    const auto* const text = reinterpret_cast<const char*>(bytes.data());
    const Json file = Json::parse(text, text + bytes.size());
    const Json& tables = member(file, "cost_variants", "the file");
    const Json& plans = member(file, "published_plans", "the file");
    BERTH_CHECK(tables.is_array() && !tables.empty(), kInput, "it has no table of costs");
    std::map<std::size_t, PublishedGraph> graphs;
    const auto graph_of = [&](std::size_t table) -> PublishedGraph& {
      BERTH_CHECK(table < tables.size(), kInput, "a plan names table {}, there are {}", table,
                  tables.size());
      const auto [found, added] = graphs.try_emplace(table);
      if (added) {
        found->second.name = member(file, "name", "the file").get<std::string>();
        found->second.problem = PublishedReader(file, tables[table]).read();
        const std::string wrong = found->second.problem.violation();
        BERTH_CHECK(wrong.empty(), kInput, "{}", wrong);
      }
      return found->second;
    };
    for (const auto& [budget, plan] : plans.items()) {
      PublishedGraph& graph = graph_of(
          plan.contains("cost_variant") ? whole(plan["cost_variant"], 64, "cost_variant") : 0);
      graph.plans.push_back(read_plan(graph.problem, budget, plan));
    }
    if (graphs.empty()) (void)graph_of(0);
    std::vector<PublishedGraph> found;
    for (auto& [table, graph] : graphs) found.push_back(std::move(graph));
    return found;
  } catch (const Error& error) {
    throw Error(ErrorKind::kInput, fmt::format("'{}': {}", path, error.what()));
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kInput,
                fmt::format("'{}' is no graph of MONeT's: {}", path, error.what()));
  }
}

}  // namespace berth::schedule
