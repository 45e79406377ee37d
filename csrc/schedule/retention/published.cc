#include "csrc/schedule/retention/published.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/graph/json.h"

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
constexpr std::uint64_t kMostNodes = StageProblem::kMostNodes;

std::int64_t kib(const Json& bytes, const std::string& whose) {
  return static_cast<std::int64_t>((whole(bytes, std::uint64_t{1} << 50, whose) + 1023) / 1024);
}

double number(const Json& value, const std::string& whose) {
  BERTH_CHECK(value.is_number() && std::abs(value.get<double>()) < 1e12, kInput, "{} is no number",
              whose);
  return value.get<double>();
}

class Reader {
 public:
  Reader(const Json& file, const Json& table) : file_(file), table_(table) {
    checkmate_ = member(file, "name", "the file").get<std::string>().starts_with("checkmate");
    loss_ = whole(member(file, "loss_id", "the file"), kMostNodes, "loss_id");
    BERTH_CHECK(table.is_array() && table.size() <= kMostNodes && loss_ + 1 < table.size(), kInput,
                "a table of {} nodes with the loss at {}", table.size(), loss_);
  }

  StageProblem read() {
    problem_.unit_bytes = 1024;
    problem_.unit_ns = 10'000;
    problem_.rules = checkmate_ ? StageRules::kCheckmate : StageRules::kMonet;
    const std::size_t values = checkmate_ ? table_.size() : loss_ + 1;
    for (std::size_t k = 0; k < values; ++k) add_node(k);
    if (checkmate_) {
      // All parameters and their gradients, as published.
      const std::int64_t fixed =
          kib(member(table_.back(), "fixed_bytes", "the last node"), "its fixed bytes");
      for (std::size_t k = 0; k < values; ++k)
        problem_.stages.push_back({.fixed = fixed,
                                   .closing = 0,
                                   .must_run = {static_cast<StageNode>(k)},
                                   .alternatives = {}});
    } else {
      find_local();
      problem_.stages.push_back(
          {.fixed =
               kib(member(table_[loss_ - 1], "fixed_bytes", "the last node"), "its fixed bytes"),
           .closing = 0,
           .must_run = {static_cast<StageNode>(loss_)},
           .alternatives = {}});
      for (std::size_t k = loss_ + 1; k < table_.size(); ++k) add_stage(k);
    }
    return std::move(problem_);
  }

 private:
  // Costs that are negative are of methods that there are not.
  std::vector<StageMethod> methods(const Json& node, const char* ms, const char* ws,
                                   std::optional<std::size_t> only,
                                   const std::string& whose) const {
    std::vector<StageMethod> found;
    const Json& times = member(node, ms, whose);
    const Json& sizes = member(node, ws, whose);
    BERTH_CHECK(times.is_array() && sizes.is_array() && times.size() == sizes.size() &&
                    times.size() <= 64 && (!only || *only < times.size()),
                kInput, "{} has {} times and {} workspaces", whose, times.size(), sizes.size());
    for (std::size_t k = 0; k < times.size(); ++k) {
      if (only && k != *only) continue;
      const double time = number(times[k], whose) * 100;
      if (time < 0) continue;
      const auto cost = static_cast<std::int64_t>(
          checkmate_ ? std::nearbyint(time) : std::ceil(std::round(time * 1e7) / 1e7));
      const auto workspace =
          checkmate_ ? 0 : static_cast<std::int64_t>(std::ceil(number(sizes[k], whose) * 1024));
      found.push_back({cost, workspace});
    }
    BERTH_CHECK(!found.empty(), kInput, "{} cannot be run", whose);
    return found;
  }

  void add_node(std::size_t k) {
    const Json& node = table_[k];
    const std::string whose = fmt::format("node {}", k);
    const bool algorithms = node.contains("conv") && !checkmate_;
    const std::optional<std::size_t> only =
        algorithms ? std::nullopt : std::optional<std::size_t>(0);
    StageProblem::NodeOf one;
    one.makes = {static_cast<StageValue>(k)};
    const Json& lists = member(node, "deps", whose);
    BERTH_CHECK(lists.is_array() && !lists.empty() && lists[0].is_array(), kInput,
                "{} has no list of what it reads", whose);
    std::set<StageValue> reads;
    for (const Json& read : lists[0])
      reads.insert(static_cast<StageValue>(whole(read, k == 0 ? 0 : k - 1, whose)));
    one.reads.assign(reads.begin(), reads.end());
    one.first = methods(node, "ms", "ws_mb", only, whose);
    if (!checkmate_ && node.contains("re_ms"))
      one.again = methods(node, "re_ms", "re_ws_mb", only, whose);
    if (!checkmate_ && node.contains("inplace_over")) {
      one.over = static_cast<StageValue>(whole(node["inplace_over"], k, whose));
      one.in_place = methods(node, "ip_ms", "ip_ws_mb", only, whose);
    }
    one.with_previous = !checkmate_ && node.contains("parent");
    if (one.with_previous)
      BERTH_CHECK(whole(node["parent"], kMostNodes, whose) + 1 == k, kInput,
                  "{} does not stand behind its parent", whose);
    one.local_bytes = kib(member(node, "local_bytes", whose), whose);
    problem_.values.push_back(
        {kib(member(node, "out_bytes", whose), whose), static_cast<StageNode>(k)});
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
    const Json& node = table_[k];
    const std::string whose = fmt::format("node {}", k);
    StageProblem::StageOf stage;
    const std::int64_t local = kib(member(node, "local_bytes", whose), whose);
    stage.fixed = local + kib(member(table_[k - 1], "fixed_bytes", whose), whose);
    stage.closing = local + kib(member(node, "fixed_bytes", whose), whose) +
                    kib(member(node, "out_bytes", whose), whose);
    const Json& lists = member(node, "deps", whose);
    BERTH_CHECK(lists.is_array() && !lists.empty() && lists.size() <= 64, kInput,
                "{} has no list of what it reads", whose);
    for (std::size_t a = 0; a < lists.size(); ++a) {
      std::set<StageValue> reads;
      BERTH_CHECK(lists[a].is_array(), kInput, "{} has no list of what it reads", whose);
      for (const Json& read : lists[a]) {
        const auto value = static_cast<StageValue>(whole(read, k - 1, whose));
        if (value <= loss_) reads.insert(value);
      }
      const bool algorithms = node.contains("conv");
      stage.alternatives.push_back(
          {{reads.begin(), reads.end()},
           methods(node, "ms", "ws_mb", algorithms ? std::nullopt : std::optional(a), whose)});
    }
    problem_.stages.push_back(std::move(stage));
  }

  const Json& file_;
  const Json& table_;
  bool checkmate_ = false;
  std::size_t loss_ = 0;
  StageProblem problem_;
};

PublishedPlan read_plan(const StageProblem& problem, const std::string& budget, const Json& json) {
  PublishedPlan found{std::stod(budget),
                      static_cast<std::int64_t>(whole(member(json, "runtime_expected", "a plan"),
                                                      std::uint64_t{1} << 40, "its cost")),
                      Retention(problem)};
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
        found->second.problem = Reader(file, tables[table]).read();
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
