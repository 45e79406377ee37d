#include "csrc/schedule/recomputation/chen.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace berth::schedule {
namespace {

constexpr int kLevels = 3;
constexpr double kShareOfLevel = 1.0 / 3;
// Labels and masks: below this part of the forward part's bytes, read over more than that part
// of it.
constexpr std::int64_t kSmall = 1000;
constexpr std::size_t kFar = 10;

// A problem as Algorithm 3 sees it, for one choice of alternatives.
class Splitter {
 public:
  Splitter(const StageProblem& problem, std::size_t alternative)
      : problem_(problem),
        values_(problem.values.size()),
        stages_(problem.stages.size()),
        base_(keep_everything(problem)),
        made_(values_, 0),
        used_forward_(values_, 0),
        wanted_first_(values_, 0),
        wanted_last_(values_, 0) {
    find_turn();
    for (std::size_t t = 0; t < stages_; ++t) {
      const auto& alternatives = problem.stages[t].alternatives;
      if (alternatives.empty()) continue;
      base_.alternatives[t] =
          static_cast<std::uint8_t>(std::min(alternative, alternatives.size() - 1));
    }
    find_wants();
    find_small();
    find_splits();
    find_dear();
  }

  // What Algorithm 3 reports for a share: bytes of what it keeps, and most bytes between.
  struct Shares {
    std::int64_t kept = 0, between = 0;
  };
  [[nodiscard]] Shares shares(double share) const {
    Shares found;
    std::int64_t gathered = 0;
    for (const StageValue value : forward_) {
      gathered += problem_.values[value].bytes;
      if (!splits_[value] || static_cast<double>(gathered) <= share) continue;
      found.kept += problem_.values[value].bytes;
      found.between = std::max(found.between, gathered);
      gathered = 0;
    }
    return found;
  }

  [[nodiscard]] Recomputation plan(double share, int levels, bool keep_dear) const {
    Recomputation plan = base_;
    for (const StageValue value : forward_)
      for (std::size_t row = used_forward_[value] + 1; row < stages_; ++row)
        if (plan.kept.has(row, value)) plan.kept.flip(row, value);
    cover(plan, {0, forward_.size(), std::nullopt, turn_}, share, levels);
    for (const StageValue value : forward_)
      if (small_[value]) keep(plan, value, turn_, wanted_at_all(value));
    if (keep_dear)
      for (const StageValue value : forward_)
        if (dear_[value]) keep(plan, value, turn_, last_row(value));
    return plan;
  }

  [[nodiscard]] std::int64_t least() const {
    std::int64_t bytes = all();
    for (const StageValue value : forward_)
      bytes = std::min(bytes, std::max<std::int64_t>(problem_.values[value].bytes, 1));
    return bytes;
  }
  [[nodiscard]] std::int64_t all() const {
    std::int64_t bytes = 1;
    for (const StageValue value : forward_) bytes += problem_.values[value].bytes;
    return bytes;
  }

 private:
  // Values of the forward part [first, last), behind one that is kept, made in stage `from`.
  struct Segment {
    std::size_t first, last;
    std::optional<StageValue> start;
    std::size_t from;
  };

  [[nodiscard]] bool own_stages() const { return problem_.rules == StageRules::kCheckmate; }

  // The stage after which nothing of the forward part runs for the first time.
  void find_turn() {
    if (own_stages()) {
      std::int64_t most = -1;
      for (std::size_t row = 1; row < stages_; ++row) {
        std::int64_t bytes = 0;
        for_each_bit(base_.kept.row(row),
                     [&](std::size_t value) { bytes += problem_.values[value].bytes; });
        if (bytes > most) {
          most = bytes;
          turn_ = row - 1;
        }
      }
      for (std::size_t t = 0; t < stages_; ++t)
        for (const StageNode n : problem_.stages[t].must_run)
          for (const StageValue value : problem_.nodes[n].makes) made_[value] = t;
    }
    for (StageValue value = 0; value < values_; ++value)
      if (made_[value] <= turn_) forward_.push_back(value);
    std::stable_sort(forward_.begin(), forward_.end(), [&](StageValue a, StageValue b) {
      return problem_.values[a].maker < problem_.values[b].maker;
    });
  }

  // When the backward part first and last wants each value: stages, 0 for never.
  void find_wants() {
    const auto want = [&](StageValue value, std::size_t t) {
      if (t <= turn_) {
        used_forward_[value] = t;
        return;
      }
      if (wanted_first_[value] == 0) wanted_first_[value] = t;
      wanted_last_[value] = t;
      last_wanted_ = std::max(last_wanted_, t);
    };
    for (std::size_t t = 0; t < stages_; ++t) {
      const StageProblem::StageOf& stage = problem_.stages[t];
      for (const StageNode n : stage.must_run)
        for (const StageValue value : problem_.nodes[n].reads) want(value, t);
      if (stage.alternatives.empty()) continue;
      for (const StageValue value : stage.alternatives[base_.alternatives[t]].reads) want(value, t);
    }
  }

  void find_small() {
    std::int64_t bytes = 0;
    for (const StageValue value : forward_) bytes += problem_.values[value].bytes;
    std::vector<StageNode> reader(values_, 0);  // the last
    for (StageNode n = 0; n < problem_.nodes.size(); ++n)
      for (const StageValue value : problem_.nodes[n].reads) reader[value] = n;
    small_.assign(values_, false);
    for (const StageValue value : forward_)
      small_[value] = problem_.values[value].keepable &&
                      problem_.values[value].bytes < bytes / kSmall &&
                      reader[value] > problem_.values[value].maker + problem_.nodes.size() / kFar;
  }
  // The row that must still have a value that is kept: where it is not read itself, one that is
  // made of it may be wanted as late as any.
  [[nodiscard]] std::size_t wanted_at_all(StageValue value) const {
    return std::max(last_row(value), last_wanted_);
  }

  void find_splits() {
    const std::size_t nodes = problem_.nodes.size();
    // A further result goes where the one before it is.
    std::vector<std::size_t> place(nodes);
    for (std::size_t n = 0; n < nodes; ++n)
      place[n] = problem_.nodes[n].with_previous ? place[n - 1] : n;
    // How far what was made up to here is read.
    std::vector<std::size_t> furthest(nodes, 0);
    for (std::size_t n = 0; n < nodes; ++n) {
      if (!is_forward(n)) continue;
      for (const StageValue value : problem_.nodes[n].reads) {
        if (small_[value]) continue;
        std::size_t& far = furthest[place[problem_.values[value].maker]];
        far = std::max(far, place[n]);
      }
    }
    splits_.assign(values_, false);
    std::size_t far = 0;
    for (std::size_t n = 0; n < nodes; ++n) {
      const auto& makes = problem_.nodes[n].makes;
      if (far <= n && is_forward(n) && !problem_.nodes[n].with_previous && furthest[n] > n &&
          makes.size() == 1 && problem_.values[makes[0]].keepable)
        splits_[makes[0]] = true;
      far = std::max(far, furthest[n]);
    }
  }
  [[nodiscard]] bool is_forward(std::size_t n) const {
    const auto& makes = problem_.nodes[n].makes;
    return makes.empty() ? !own_stages() : made_[makes[0]] <= turn_;
  }

  void find_dear() {
    const auto cost_of = [&](StageValue value) {
      const StageProblem::NodeOf& node = problem_.nodes[problem_.values[value].maker];
      std::int64_t least = StageProblem::kNever;
      for (const auto* alternatives :
           {node.again.empty() ? &node.first : &node.again, &node.in_place})
        for (const StageAlternative& alternative : *alternatives)
          least = std::min(least, alternative.cost);
      return static_cast<double>(least);
    };
    double cost = 0, bytes = 1;
    for (const StageValue value : forward_) {
      cost += cost_of(value);
      bytes += static_cast<double>(problem_.values[value].bytes);
    }
    dear_.assign(values_, false);
    for (const StageValue value : forward_)
      dear_[value] =
          cost_of(value) * bytes > cost * static_cast<double>(problem_.values[value].bytes);
  }

  // The row that must still have a value for its last use; 0: none.
  [[nodiscard]] std::size_t last_row(StageValue value) const {
    if (wanted_last_[value] == 0) return 0;
    return wanted_last_[value] + (problem_.rules == StageRules::kMonet ? 1 : 0);
  }

  // From the end of a stage on.
  void keep(Recomputation& plan, StageValue value, std::size_t from, std::size_t last) const {
    if (!problem_.values[value].keepable) return;
    const std::size_t first = from == turn_ ? made_[value] + 1 : from + 1;
    for (std::size_t row = first; row <= std::min(last, stages_ - 1); ++row)
      plan.kept.add(row, value);
  }

  void cover(Recomputation& plan, const Segment& whole, double share, int levels) const {
    if (levels == 0) {
      for (std::size_t k = whole.first; k < whole.last; ++k) {
        const StageValue value = forward_[k];
        // One that is wanted in the stage of its run alone is not kept.
        if (wanted_last_[value] > whole.from) keep(plan, value, whole.from, last_row(value));
      }
      return;
    }
    Segment part{whole.first, whole.first, whole.start, whole.from};
    std::int64_t gathered = 0;
    for (std::size_t k = whole.first; k < whole.last; ++k) {
      const StageValue value = forward_[k];
      gathered += problem_.values[value].bytes;
      if (!splits_[value] || static_cast<double>(gathered) <= share) continue;
      part.last = k;
      enter(plan, part, share, levels);
      if (wanted_last_[value] > whole.from) keep(plan, value, whole.from, last_row(value));
      part = {k + 1, k + 1, value, whole.from};
      gathered = 0;
    }
    part.last = whole.last;
    enter(plan, part, share, levels);
  }

  // Makes a segment again in the first stage that wants some of it; until then it needs its start.
  void enter(Recomputation& plan, Segment part, double share, int levels) const {
    std::size_t first = 0;
    for (std::size_t k = part.first; k < part.last; ++k) {
      const std::size_t wanted = first_after(forward_[k], part.from);
      if (wanted != 0 && (first == 0 || wanted < first)) first = wanted;
    }
    if (first == 0) return;
    if (part.start) keep(plan, *part.start, part.from, first);
    part.from = first;
    cover(plan, part, share * kShareOfLevel, levels - 1);
  }

  // When it is wanted first behind the stage that makes it, or in that stage.
  [[nodiscard]] std::size_t first_after(StageValue value, std::size_t from) const {
    if (wanted_last_[value] == 0 || wanted_last_[value] < from) return 0;
    return std::max(wanted_first_[value], from);
  }

  const StageProblem& problem_;
  const std::size_t values_, stages_;
  Recomputation base_;
  std::size_t turn_ = 0;
  std::vector<StageValue> forward_;                                            // by their makers
  std::vector<std::size_t> made_, used_forward_, wanted_first_, wanted_last_;  // by value, stages
  std::size_t last_wanted_ = 0;              // of all values: a row
  std::vector<bool> splits_, dear_, small_;  // by value
};

}  // namespace

void chen_plans(const StageProblem& problem, std::size_t grid,
                const std::function<void(const Recomputation&)>& visit,
                const std::function<bool()>& stop) {
  std::size_t alternatives = 1;
  for (const StageProblem::StageOf& stage : problem.stages)
    alternatives = std::max(alternatives, stage.alternatives.size());
  for (std::size_t a = 0; a < std::min<std::size_t>(alternatives, 2); ++a) {
    const Splitter splitter(problem, a);
    std::vector<double> shares = {0.0};
    const Splitter::Shares finest = splitter.shares(0);
    shares.push_back(
        std::sqrt(static_cast<double>(finest.kept) * static_cast<double>(finest.between)));
    const auto least = static_cast<double>(splitter.least()),
               all = static_cast<double>(splitter.all());
    for (std::size_t k = 0; k < grid; ++k)
      shares.push_back(least * std::pow(all / least, (static_cast<double>(k) + 0.5) /
                                                         static_cast<double>(grid)));
    std::optional<Recomputation> before;
    for (int levels = 1; levels <= kLevels; ++levels)
      for (const bool keep_dear : {false, true})
        for (const double share : shares) {
          if (stop()) return;
          Recomputation plan = splitter.plan(share, levels, keep_dear);
          if (before && *before == plan) continue;
          visit(plan);
          before = std::move(plan);
        }
  }
}

}  // namespace berth::schedule
