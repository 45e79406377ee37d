#include "csrc/core/check.h"
#include "csrc/place/oracle/integer_program.h"
#include "csrc/schedule/order/bit_rows.h"
#include "csrc/schedule/order/olla_engine.h"

#include <berth/schedule_ilp.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace berth {
namespace schedule {
namespace {

using place::IntegerProgram;
using Column = IntegerProgram::Column;

constexpr double kMaxUnits = 0x1p20;  // times the solver's tolerance: below one unit
constexpr double kTolerance = 1e-3;   // of a bound in units
constexpr Column kNone = -1;

// Values with one maker and the same readers, as one.
struct Group {
  Node maker = kNoNode;
  std::vector<Node> readers;
  Bytes bytes = 0;
};

std::vector<Group> groups_of(const OrderProblem& problem) {
  std::map<std::pair<Node, std::vector<Node>>, Bytes> sums;
  for (const OrderProblem::ValueOf& value : problem.values)
    if (!value.readers.empty() && value.bytes != 0)
      sums[{value.maker, value.readers}] += value.bytes;
  BERTH_CHECK(sums.size() <= OllaEngine::kMaxValues, kUsage,
              "the engine olla takes at most {} values that differ in maker or readers, not {}",
              OllaEngine::kMaxValues, sums.size());
  std::vector<Group> groups;
  for (auto& [key, bytes] : sums) groups.push_back({key.first, key.second, bytes});
  return groups;
}

// The order of operators as OLLA's equations (1) to (5) and (10) to (14), for time steps that run
// one operator each.
//
//   C[v,t]  operator v runs at step t: its results are created, all at once (5)
//   P[e,t]  value e is preserved at step t
//
//   (1)  P + C <= 1                        (2)  P[e,t] <= P[e,t-1] + C[e,t-1]
//   (3)  each operator at one step, each step one operator
//   (4)  C[v,t] <= P[f,t] for each f that v reads
//   (10) C only from the number of v's ancestors to what its descendants leave
//   (11) P only from after the maker's first step to the readers' last
//   (12) P fixed between the maker's last step and the first that a reader can have
//   (13) what is created and preserved at a step is at most the peak    (14) which is minimal
//
// An edge without bytes needs no P: C[v,t] <= sum of C[u,s] for s < t. Sizes are in units of what
// divides them all, or rounded down to so many that the solver's tolerance is below one unit: what
// is bounded then is bounded all the same, and an order has its peak counted in bytes.
class Model {
 public:
  Model(const OrderProblem& problem, const Order& start)
      : problem_(problem), groups_(groups_of(problem)), steps_(problem.nodes.size()) {
    set_unit();
    find_windows();
    Bytes least = 0;
    for (Node v = 0; v < steps_; ++v) {
      Bytes own = problem_.nodes[v].made;
      for (const Value value : problem_.nodes[v].reads) own += problem_.values[value].bytes;
      least = std::max(least, own);
    }
    const Bytes most = peak_of(problem_, start) - problem_.constant;
    least_ = units(least);
    limit_ = std::ceil(static_cast<double>(most) / static_cast<double>(unit_));
    peak_ = program_.add_column(1, least_, limit_);
    add_columns();
    add_order();
    add_values();
    add_peaks();
  }

  [[nodiscard]] const IntegerProgram& program() const noexcept { return program_; }

  // An order as values of the columns.
  [[nodiscard]] std::vector<double> values_of(const Order& order) const {
    std::vector<double> values(program_.columns());
    std::vector<std::size_t> at(steps_);
    for (std::size_t t = 0; t < steps_; ++t) at[order[t]] = t;
    for (Node v = 0; v < steps_; ++v) values[index(created_[v][at[v]])] = 1;
    std::vector<double> live(steps_);
    for (Node v = 0; v < steps_; ++v) live[at[v]] += units(problem_.nodes[v].made);
    for (std::size_t e = 0; e < groups_.size(); ++e) {
      std::size_t last = 0;
      for (const Node reader : groups_[e].readers) last = std::max(last, at[reader]);
      const std::size_t first = groups_[e].maker == kNoNode ? 0 : at[groups_[e].maker] + 1;
      for (std::size_t t = first; t <= last; ++t) {
        values[index(preserved_[e][t])] = 1;
        live[t] += units(groups_[e].bytes);
      }
    }
    values[index(peak_)] = *std::max_element(live.begin(), live.end());
    return values;
  }

  // The order of a solution; empty where rounding made it none.
  [[nodiscard]] Order order_of(std::span<const double> values) const {
    Order order(steps_, kNoNode);
    for (Node v = 0; v < steps_; ++v)
      for (std::size_t t = 0; t < steps_; ++t)
        if (created_[v][t] != kNone && values[index(created_[v][t])] > 0.5) order[t] = v;
    return problem_.violation(order).empty() ? order : Order{};
  }

  // What the solver's bound proves, constant included.
  [[nodiscard]] Bytes proven(double bound) const {
    const double whole = std::ceil(std::clamp(bound, least_, limit_) - kTolerance);
    return problem_.constant + static_cast<Bytes>(std::max(whole, 0.0)) * unit_;
  }

 private:
  using Entries = std::vector<std::pair<Column, double>>;

  [[nodiscard]] static std::size_t index(Column column) { return static_cast<std::size_t>(column); }
  // Rounded down, where the unit does not divide them.
  [[nodiscard]] double units(Bytes bytes) const { return static_cast<double>(bytes / unit_); }

  void set_unit() {
    Bytes common = 0, sum = 0;
    const auto add = [&](Bytes bytes) {
      common = std::gcd(common, bytes);
      sum += bytes;
    };
    for (const OrderProblem::NodeOf& node : problem_.nodes) add(node.made);
    for (const Group& group : groups_) add(group.bytes);
    const auto coarsest = static_cast<Bytes>(static_cast<double>(sum) / kMaxUnits) + 1;
    unit_ = std::max<Bytes>(common, 1);
    if (unit_ < coarsest) unit_ = coarsest;
  }

  // Reachability, then (10).
  void find_windows() {
    BitRows ancestors(steps_);
    for (const Node v : problem_.first_order())
      for (const Node u : problem_.nodes[v].before) {
        ancestors.add(v, u);
        ancestors.add_row(v, u);
      }
    first_.assign(steps_, 0);
    last_.assign(steps_, steps_ - 1);
    for (Node v = 0; v < steps_; ++v)
      for (Node u = 0; u < steps_; ++u)
        if (ancestors.has(v, u)) {
          ++first_[v];
          --last_[u];
        }
  }

  void add_columns() {
    created_.assign(steps_, std::vector<Column>(steps_, kNone));
    for (Node v = 0; v < steps_; ++v)
      for (std::size_t t = first_[v]; t <= last_[v]; ++t)
        created_[v][t] = program_.add_column(0, 0, 1);
    preserved_.assign(groups_.size(), std::vector<Column>(steps_, kNone));
    for (std::size_t e = 0; e < groups_.size(); ++e) {
      const Group& group = groups_[e];
      std::size_t latest = 0, needed = 0;
      for (const Node reader : group.readers) {
        latest = std::max(latest, last_[reader]);
        needed = std::max(needed, first_[reader]);
      }
      const bool made = group.maker != kNoNode;
      for (std::size_t t = made ? first_[group.maker] + 1 : 0; t <= latest; ++t) {
        const bool fixed = t <= needed && (!made || t > last_[group.maker]);  // (12)
        preserved_[e][t] = program_.add_column(0, fixed ? 1 : 0, 1);
      }
    }
  }

  // (3), and edges without bytes.
  void add_order() {
    Entries entries;
    for (Node v = 0; v < steps_; ++v) {
      entries.clear();
      for (std::size_t t = first_[v]; t <= last_[v]; ++t) entries.emplace_back(created_[v][t], 1);
      program_.add_row(1, 1, entries);
    }
    for (std::size_t t = 0; t < steps_; ++t) {
      entries.clear();
      for (Node v = 0; v < steps_; ++v)
        if (created_[v][t] != kNone) entries.emplace_back(created_[v][t], 1);
      program_.add_row(1, 1, entries);
    }
    std::vector<std::vector<Node>> carried(steps_);  // makers of what a node reads
    for (const Group& group : groups_)
      for (const Node reader : group.readers) carried[reader].push_back(group.maker);
    for (Node v = 0; v < steps_; ++v)
      for (const Node u : problem_.nodes[v].before)
        if (std::find(carried[v].begin(), carried[v].end(), u) == carried[v].end()) add_edge(u, v);
  }

  void add_edge(Node earlier, Node later) {
    for (std::size_t t = first_[later]; t <= last_[later]; ++t) {
      Entries entries = {{created_[later][t], 1}};
      for (std::size_t s = first_[earlier]; s < t && s <= last_[earlier]; ++s)
        entries.emplace_back(created_[earlier][s], -1);
      program_.add_row(-IntegerProgram::kInfinity, 0, entries);
    }
  }

  // (1), (2) and (4).
  void add_values() {
    for (std::size_t e = 0; e < groups_.size(); ++e) {
      const Group& group = groups_[e];
      const bool made = group.maker != kNoNode;
      for (std::size_t t = 0; t < steps_; ++t) {
        const Column preserved = preserved_[e][t];
        if (preserved == kNone) continue;
        if (made && created_[group.maker][t] != kNone)
          program_.add_row(0, 1, Entries{{preserved, 1}, {created_[group.maker][t], 1}});
        if (made || t > 0) {
          Entries entries = {{preserved, 1}};
          if (preserved_[e][t - 1] != kNone) entries.emplace_back(preserved_[e][t - 1], -1);
          if (made && created_[group.maker][t - 1] != kNone)
            entries.emplace_back(created_[group.maker][t - 1], -1);
          program_.add_row(-IntegerProgram::kInfinity, 0, entries);
        }
        for (const Node reader : group.readers)
          if (created_[reader][t] != kNone)
            program_.add_row(-IntegerProgram::kInfinity, 0,
                             Entries{{created_[reader][t], 1}, {preserved, -1}});
      }
    }
  }

  // (13).
  void add_peaks() {
    for (std::size_t t = 0; t < steps_; ++t) {
      Entries entries = {{peak_, -1}};
      for (Node v = 0; v < steps_; ++v)
        if (created_[v][t] != kNone && problem_.nodes[v].made >= unit_)
          entries.emplace_back(created_[v][t], units(problem_.nodes[v].made));
      for (std::size_t e = 0; e < groups_.size(); ++e)
        if (preserved_[e][t] != kNone && groups_[e].bytes >= unit_)
          entries.emplace_back(preserved_[e][t], units(groups_[e].bytes));
      program_.add_row(-IntegerProgram::kInfinity, 0, entries);
    }
  }

  const OrderProblem& problem_;
  const std::vector<Group> groups_;
  const std::size_t steps_;
  IntegerProgram program_;
  Bytes unit_ = 1;
  double least_ = 0, limit_ = 0;  // of the peak, in units, without the constant
  Column peak_ = kNone;
  std::vector<std::size_t> first_, last_;                 // steps that an operator can have
  std::vector<std::vector<Column>> created_, preserved_;  // by operator or group, then by step
};

OllaResult solve_order(const OrderProblem& problem, const OllaSettings& settings,
                       const OllaEvents& events) {
  BERTH_CHECK(!place::unavailable_solver(), kUsage, "{}", *place::unavailable_solver());
  BERTH_CHECK(problem.nodes.size() <= OllaEngine::kMaxNodes, kUsage,
              "the engine olla takes at most {} operators, not {}", OllaEngine::kMaxNodes,
              problem.nodes.size());
  const Model model(problem, settings.start);
  place::SolverOptions options;
  options.seconds = std::min(settings.seconds, place::SolverOptions::kForever);
  options.nodes = settings.nodes;
  options.seed = settings.seed;
  options.start = model.values_of(settings.start);
  const auto offer = [&](std::span<const double> values) {
    if (Order order = model.order_of(values); !order.empty()) events.found(std::move(order));
  };
  options.found = offer;
  options.stop = [&](double bound) { return events.stop(model.proven(bound)); };
  const place::SolverResult solved = place::solve(model.program(), options);
  if (!solved.values.empty()) offer(solved.values);
  return {model.proven(solved.bound), solved.nodes};
}

constexpr OllaEngine kOllaEngine{place::unavailable_solver, solve_order};

}  // namespace
}  // namespace schedule

void use_olla() { schedule::set_olla_engine(schedule::kOllaEngine); }

}  // namespace berth
