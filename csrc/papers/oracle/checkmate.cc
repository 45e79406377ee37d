#include "csrc/core/check.h"
#include "csrc/papers/checkmate_engine.h"
#include "csrc/place/oracle/integer_program.h"
#include "csrc/schedule/recomputation/made_once.h"

#include <berth/schedule_ilp.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace berth {
namespace schedule {
namespace {

using place::IntegerProgram;
using Column = IntegerProgram::Column;
using Entries = std::vector<std::pair<Column, double>>;

constexpr Column kNoColumn = -1;
constexpr double kBudgetUnits = 1000, kCostUnits = 1000;
constexpr double kDust = 1e-5;         // of a unit: what solvers take for nothing
constexpr double kAlwaysKept = 0.005;  // of the budget
constexpr double kKept = 0.5;          // of a value
constexpr std::array<double, 4> kAllowances = {0.1, 0, 0.2, 0.3};

// Consecutive stages behind the forward part as one.
struct Block {
  std::size_t first = 0, last = 0;
  std::int64_t running = 0, closing = 0;  // bytes that are there whatever is kept
  std::vector<bool> wanted;               // by a closing operator, by value
};

class Relaxation {
 public:
  explicit Relaxation(const StageProblem& problem, std::size_t most_cells)
      : problem_(problem),
        values_(problem.values.size()),
        nodes_(problem.nodes.size()),
        unit_(static_cast<double>(std::max<std::int64_t>(problem.budget, 1)) / kBudgetUnits) {
    make_blocks(most_cells);
    find_uses();
    find_always_kept();
  }

  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_.size(); }

  [[nodiscard]] IntegerProgram program(double allowance) {
    IntegerProgram program;
    const double budget = kBudgetUnits * (1 - allowance);
    add_columns(program);
    add_needs(program);
    add_forward_memory(program, budget);
    for (std::size_t b = 0; b < blocks_.size(); ++b) add_memory(program, b, budget);
    return program;
  }

  [[nodiscard]] Recomputation round(std::span<const double> solution) const {
    Recomputation plan(problem_);
    std::vector<bool> after(values_, false);
    for (std::size_t b = blocks_.size(); b-- > 0;) {
      std::vector<bool> before(values_, false);
      for (StageValue v = 0; v < values_; ++v)
        before[v] = is_always_kept(b, v) ||
                    (kept_[b][v] != kNoColumn && solution[index(kept_[b][v])] > kKept);
      keep_made_once(problem_, blocks_[b].first, blocks_[b].last, before, after, plan);
      after = std::move(before);
    }
    return plan;
  }

 private:
  [[nodiscard]] static std::size_t index(Column column) { return static_cast<std::size_t>(column); }
  [[nodiscard]] double units(std::int64_t bytes) const {
    const double found = static_cast<double>(bytes) / unit_;
    return found > -kDust && found < kDust ? 0 : found;
  }
  [[nodiscard]] bool is_always_kept(std::size_t b, StageValue v) const {
    return always_[v] && b < useful_[v];
  }
  [[nodiscard]] StageNode maker(StageValue v) const { return problem_.values[v].maker; }

  // As many reading stages in each.
  void make_blocks(std::size_t most_cells) {
    const std::size_t stages = problem_.stages.size();
    std::size_t reading = 0;
    const auto reads = [&](std::size_t t) {
      const auto& alternatives = problem_.stages[t].alternatives;
      return !alternatives.empty() && !alternatives.front().reads.empty();
    };
    for (std::size_t t = 1; t < stages; ++t) reading += reads(t) ? 1 : 0;
    const std::size_t most =
        std::max<std::size_t>(most_cells / std::max<std::size_t>(values_ + nodes_, 1), 2);
    const std::size_t share = std::max<std::size_t>((reading + most - 1) / most, 1);
    std::size_t in_block = 0;
    for (std::size_t t = 1; t < stages; ++t) {
      if (reads(t)) ++in_block;
      if (blocks_.empty() || in_block > share) {
        if (!blocks_.empty()) in_block = 1;
        blocks_.push_back({t, t, 0, 0, std::vector<bool>(values_, false)});
      }
      Block& block = blocks_.back();
      const StageProblem::StageOf& stage = problem_.stages[t];
      block.last = t;
      block.running = std::max(block.running, stage.fixed);
      block.closing = std::max(block.closing, stage.fixed);
      if (stage.alternatives.empty()) continue;
      const auto& alternatives = stage.alternatives.front().all;
      const StageAlternative& smallest =
          *std::ranges::min_element(alternatives, {}, &StageAlternative::workspace);
      block.closing = std::max(block.closing, stage.closing + smallest.workspace);
      for (const StageValue v : stage.alternatives.front().reads) block.wanted[v] = true;
    }
  }

  // Up to which block each value is of use, recomputed or kept: one behind the last.
  void find_uses() {
    useful_.assign(values_, 0);
    runs_until_.assign(nodes_, 0);
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      for (StageValue v = 0; v < values_; ++v)
        if (blocks_[b].wanted[v]) useful_[v] = b + 1;
    for (StageNode n = static_cast<StageNode>(nodes_); n-- > 0;) {
      const StageProblem::NodeOf& node = problem_.nodes[n];
      if (node.only_once) continue;
      std::size_t until = 0;
      for (const StageValue v : node.makes) until = std::max(until, useful_[v]);
      while (until > 0 && blocks_[until - 1].first > node.last_stage) --until;
      runs_until_[n] = until;
      for (const StageValue v : node.reads) useful_[v] = std::max(useful_[v], until);
    }
  }

  void find_always_kept() {
    always_.assign(values_, false);
    std::vector<StageValue> order(values_);
    std::iota(order.begin(), order.end(), StageValue{0});
    std::ranges::stable_sort(order, {}, [this](StageValue v) { return problem_.values[v].bytes; });
    double left = kAlwaysKept * static_cast<double>(problem_.budget);
    for (const StageValue v : order) {
      left -= static_cast<double>(problem_.values[v].bytes);
      if (left < 0) break;
      always_[v] = problem_.values[v].keepable;
    }
  }

  [[nodiscard]] std::int64_t cost(StageNode n) const { return alternative(n).cost; }
  [[nodiscard]] const StageAlternative& alternative(StageNode n) const {
    const StageProblem::NodeOf& node = problem_.nodes[n];
    const auto& alternatives = !node.again.empty()   ? node.again
                               : !node.first.empty() ? node.first
                                                     : node.in_place;
    return *std::ranges::min_element(alternatives, {}, &StageAlternative::cost);
  }

  void add_columns(IntegerProgram& program) {
    double all = 1;
    for (StageNode n = 0; n < nodes_; ++n) all += static_cast<double>(cost(n));
    kept_.assign(blocks_.size() + 1, std::vector<Column>(values_, kNoColumn));
    runs_.assign(blocks_.size(), std::vector<Column>(nodes_, kNoColumn));
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      for (StageValue v = 0; v < values_; ++v)
        if (problem_.values[v].keepable && b < useful_[v])
          kept_[b][v] = program.add_column(0, always_[v] ? 1 : 0, 1);
      for (StageNode n = 0; n < nodes_; ++n)
        if (b < runs_until_[n])
          runs_[b][n] = program.add_column(kCostUnits * static_cast<double>(cost(n)) / all, 0, 1);
    }
  }

  // Their (1b) and (1c): what a run reads is kept or made, and what is kept was.
  void add_needs(IntegerProgram& program) {
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const auto there = [&](Entries entries, StageValue v, double least) {
        if (kept_[b][v] != kNoColumn) entries.emplace_back(kept_[b][v], 1);
        if (runs_[b][maker(v)] != kNoColumn) entries.emplace_back(runs_[b][maker(v)], 1);
        program.add_row(least, IntegerProgram::kInfinity, entries);
      };
      for (StageValue v = 0; v < values_; ++v) {
        if (blocks_[b].wanted[v]) there({}, v, 1);
        if (kept_[b + 1][v] != kNoColumn) there({{kept_[b + 1][v], -1}}, v, 0);
      }
      for (StageNode n = 0; n < nodes_; ++n) {
        if (runs_[b][n] == kNoColumn) continue;
        for (const StageValue v : problem_.nodes[n].reads) there({{runs_[b][n], -1}}, v, 0);
      }
    }
  }

  // Everything runs once: what is not kept is gone behind its last reader.
  void add_forward_memory(IntegerProgram& program, double budget) {
    std::vector<StageNode> last(values_);
    for (StageValue v = 0; v < values_; ++v) last[v] = maker(v);
    for (StageNode n = 0; n < nodes_; ++n)
      for (const StageValue v : problem_.nodes[n].reads) last[v] = n;
    std::vector<std::vector<StageValue>> ending(nodes_);
    for (StageValue v = 0; v < values_; ++v) ending[last[v]].push_back(v);
    Column before = program.add_column(0, 0, 0);
    for (StageNode n = 0; n < nodes_; ++n) {
      // What is alive before it, with its results; then without what ends with it.
      double made = 0;
      for (const StageValue v : problem_.nodes[n].makes) made += units(problem_.values[v].bytes);
      const double room = budget - units(problem_.stages[0].fixed) - made - units(workspace(n));
      program.add_row(-IntegerProgram::kInfinity, room, {{before, 1}});
      const Column behind = program.add_column(0, 0, IntegerProgram::kInfinity);
      Entries entries = {{behind, 1}, {before, -1}};
      for (const StageValue v : ending[n]) {
        made -= units(problem_.values[v].bytes);
        if (!blocks_.empty() && kept_[0][v] != kNoColumn && units(problem_.values[v].bytes) > 0)
          entries.emplace_back(kept_[0][v], -units(problem_.values[v].bytes));
      }
      program.add_row(made, made, entries);
      before = behind;
    }
  }
  [[nodiscard]] std::int64_t workspace(StageNode n) const { return alternative(n).workspace; }

  // Their (2) to (7): U rises by what is made and falls by what is freed.
  void add_memory(IntegerProgram& program, std::size_t b, double budget) {
    const Block& block = blocks_[b];
    const double running = budget - units(block.running);
    std::vector<std::vector<StageNode>> readers(values_);
    for (StageNode n = 0; n < nodes_; ++n)
      if (runs_[b][n] != kNoColumn)
        for (const StageValue v : problem_.nodes[n].reads) readers[v].push_back(n);
    Column before = program.add_column(0, 0, running);
    Entries entries = {{before, 1}};
    for (StageValue v = 0; v < values_; ++v)
      if (kept_[b][v] != kNoColumn && units(problem_.values[v].bytes) > 0)
        entries.emplace_back(kept_[b][v], -units(problem_.values[v].bytes));
    program.add_row(0, 0, entries);
    for (StageNode n = 0; n < nodes_; ++n) {
      const Column run = runs_[b][n];
      if (run == kNoColumn) continue;
      double made = 0;
      for (const StageValue v : problem_.nodes[n].makes) made += units(problem_.values[v].bytes);
      program.add_row(-IntegerProgram::kInfinity, running,
                      {{before, 1}, {run, made + units(workspace(n))}});
      const Column behind = program.add_column(0, 0, IntegerProgram::kInfinity);
      entries = {{behind, 1}, {before, -1}, {run, -made}};
      const auto free = [&](StageValue v) {
        const double bytes = units(problem_.values[v].bytes);
        if (bytes == 0 || block.wanted[v]) return;
        const Column freed = program.add_column(0, 0, 1);
        entries.emplace_back(freed, bytes);
        // hazards <= kappa (1 - FREE), hazards = (1 - R) + S of the next + R of later readers
        Entries hazards = {{run, -1}};
        double most = 1;
        if (kept_[b + 1][v] != kNoColumn) {
          hazards.emplace_back(kept_[b + 1][v], 1);
          ++most;
        }
        for (const StageNode reader : readers[v])
          if (reader > n) {
            hazards.emplace_back(runs_[b][reader], 1);
            ++most;
          }
        hazards.emplace_back(freed, most);
        program.add_row(-IntegerProgram::kInfinity, most - 1, hazards);
      };
      for (const StageValue v : problem_.nodes[n].reads) free(v);
      for (const StageValue v : problem_.nodes[n].makes) free(v);
      program.add_row(0, 0, entries);
      before = behind;
    }
    program.add_row(-IntegerProgram::kInfinity, budget - units(block.closing), {{before, 1}});
  }

  const StageProblem& problem_;
  const std::size_t values_, nodes_;
  const double unit_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> useful_, runs_until_;  // blocks, by value and by node
  std::vector<bool> always_;                      // by value
  std::vector<std::vector<Column>> kept_, runs_;  // by block, then value or node
};

CheckmateResult checkmate_plans(const StageProblem& problem, const CheckmateOptions& options,
                                const std::function<void(const Recomputation&)>& visit) {
  BERTH_CHECK(!place::unavailable_solver(), kUsage, "{}", *place::unavailable_solver());
  BERTH_CHECK(problem.rules == StageRules::kExact, kUsage,
              "Checkmate's program is made of a problem by the rules kExact alone");
  Relaxation relaxation(problem, options.most_cells);
  CheckmateResult result;
  result.blocks = relaxation.blocks();
  result.stages = problem.stages.size() - 1;
  for (const double allowance : kAllowances) {
    const IntegerProgram program = relaxation.program(allowance);
    result.columns = program.columns();
    result.rows = program.rows();
    ++result.programs;
    place::SolverOptions how;
    how.relaxed = true;
    how.seconds = std::min(options.seconds, place::SolverOptions::kForever);
    const place::SolverResult found = place::solve(program, how);
    if (!found.complete || found.values.empty()) continue;
    ++result.solved;
    visit(relaxation.round(found.values));
  }
  return result;
}

constexpr CheckmateEngine kCheckmateEngine{place::unavailable_solver, checkmate_plans};

}  // namespace
}  // namespace schedule

void use_checkmate() { schedule::set_checkmate_engine(schedule::kCheckmateEngine); }

}  // namespace berth
