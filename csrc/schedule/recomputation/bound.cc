#include "csrc/schedule/recomputation/bound.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace berth::schedule {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostInside = std::size_t{1} << 22;  // of all lists of what is counted
constexpr std::size_t kMostLinks = std::size_t{1} << 21;   // reads times stages that are priced

// What a value must be in a stage. `kNeedBefore`: there at its beginning, or run; `kNeedAfter`: at
// its end, or run.
enum Must : std::uint8_t { kRuns = 1, kNeedBefore = 2, kNeedAfter = 4 };

// One alternative of an operator, and what is counted in its place with it.
struct Option {
  std::vector<std::size_t> wants;  // places in needs_
  std::int64_t bytes = 0;
  std::vector<StageAlternative> alternatives;
};

// What a stage has at one moment, which must not be above the budget: `constant`, what the row
// keeps of the values made below a node, but for `inside`, which the constant has already, and what
// an operator has that runs then.
struct Moment {
  std::size_t row = 0;
  StageNode below = 0;
  std::int64_t constant = 0;
  std::vector<StageValue> inside;
  std::vector<StageValue> half;  // some options count it, some do not: half each
  std::vector<Option> options;   // none: nothing runs
};

// A value that an operator reads, or that must run with it.
struct Link {
  StageValue from = 0, to = 0;
  bool runs_with = false;
};

// A value that some alternatives of a closing operator want, not all.
struct Need {
  StageValue value = 0;
  std::size_t stage = 0;
};

}  // namespace

class RecomputationBound::Prices {
 public:
  explicit Prices(const StageProblem& problem)
      : problem_(problem),
        values_(problem.values.size()),
        stages_(problem.stages.size()),
        budget_(problem.budget) {
    const std::string wrong = problem.violation();
    BERTH_CHECK(wrong.empty(), kInput, "{}", wrong);
    priced_ = values_ * stages_ <= kMostCells;
    if (priced_) {
      must_.assign(values_ * stages_, 0);
      run_cost_.assign(values_ * stages_, kInfinity);
    }
    find_bytes();
    find_moments();
    if (priced_) {
      find_run_costs();
      find_links();
    }
    const std::size_t all =
        moments_.size() + needs_.size() + (priced_ ? links_.size() * stages_ : 0);
    best_.assign(all, 0.0);
    prices_ = violated_ = direction_ = best_;
    cost_ = StageProblem::kNever;
    if (impossible_) return;
    const double found = solve();
    if (impossible_) return;
    cost_ = as_bound(found);
    best_value_ = found;
    direction_ = violated_;
  }

  void refine(unsigned rounds, std::int64_t target, const std::function<bool()>& stop) {
    if (!priced_ || impossible_) return;
    constexpr unsigned kPatience = 4;  // rounds without a better bound, then steps get shorter
    constexpr double kNewest = 0.04;   // weight of the last round among all that were violated
    for (unsigned k = 0; k < rounds && !stop(); ++k) {
      if (target > 0 && cost_ >= target) return;
      double squares = 0;
      for (std::size_t i = 0; i < direction_.size(); ++i)
        if (best_[i] > 0 || direction_[i] > 0) squares += direction_[i] * direction_[i];
      if (squares < 1e-12) return;  // nothing is violated at these prices: they are best
      const double aim = target > 0 ? std::max(static_cast<double>(target), best_value_ * 1.0005)
                                    : best_value_ * 1.03 + 1;
      // No price changes by more than everything costs, so that sums stay sharp.
      const double step = std::min(agility_ * (aim - best_value_) / squares,
                                   (best_value_ + 1) / std::sqrt(squares));
      for (std::size_t i = 0; i < best_.size(); ++i)
        prices_[i] = std::max(0.0, best_[i] + step * direction_[i]);
      ++rounds_;
      const double found = solve();
      if (impossible_) return;
      cost_ = std::max(cost_, as_bound(found));
      double agrees = 0;
      for (std::size_t i = 0; i < direction_.size(); ++i) {
        agrees += violated_[i] * direction_[i];
        direction_[i] += kNewest * (violated_[i] - direction_[i]);
      }
      if (found > best_value_) {
        best_value_ = found;
        best_.swap(prices_);
        if (agrees > 0) agility_ = std::min(agility_ * 1.1, 4.0);
        failed_ = 0;
      } else if (++failed_ >= kPatience) {
        failed_ = 0;
        agility_ = std::max(agility_ * 0.66, 1e-4);
      }
    }
  }

  [[nodiscard]] std::int64_t cost() const noexcept { return cost_; }
  [[nodiscard]] bool impossible() const noexcept { return impossible_; }
  [[nodiscard]] unsigned rounds() const noexcept { return rounds_; }

 private:
  [[nodiscard]] std::size_t cell(StageValue value, std::size_t t) const {
    return value * stages_ + t;
  }
  [[nodiscard]] double bytes_of(StageValue value) const {
    return static_cast<double>(problem_.values[value].bytes);
  }

  // All that an operator may take, in stage t.
  [[nodiscard]] std::vector<StageAlternative> alternatives_of(StageNode n, std::size_t t) const {
    const StageProblem::NodeOf& node = problem_.nodes[n];
    const bool checkmate = problem_.rules == StageRules::kCheckmate;
    const bool again = (checkmate ? t > n : t > 0) && !node.again.empty();
    std::vector<StageAlternative> all;
    if (!node.always_in_place) all = again ? node.again : node.first;
    if (node.always_in_place || !checkmate)
      all.insert(all.end(), node.in_place.begin(), node.in_place.end());
    if (checkmate)
      for (StageAlternative& alternative : all) alternative.workspace = 0;
    return all;
  }

  // Those that fit, from which none is both faster and smaller than another.
  static std::vector<StageAlternative> fitting(const std::vector<StageAlternative>& alternatives,
                                               std::int64_t slack) {
    std::vector<StageAlternative> sorted = alternatives, kept;
    std::sort(sorted.begin(), sorted.end(),
              [](const StageAlternative& a, const StageAlternative& b) {
                return a.cost != b.cost ? a.cost < b.cost : a.workspace < b.workspace;
              });
    for (const StageAlternative& alternative : sorted)
      if (alternative.workspace <= slack &&
          (kept.empty() || alternative.workspace < kept.back().workspace))
        kept.push_back(alternative);
    return kept;
  }

  // What an operator has at least, beside what is fixed: its reads and its results.
  void find_bytes() {
    for (StageNode n = 0; n < problem_.nodes.size(); ++n) {
      const StageProblem::NodeOf& node = problem_.nodes[n];
      std::int64_t bytes = 0;
      for (const StageValue value : node.makes) bytes += problem_.values[value].bytes;
      if (problem_.rules == StageRules::kMonet) {
        bytes += node.local_bytes;
        for (const StageValue value : node.local)
          if (value >= n) bytes -= problem_.values[value].bytes;
      } else {
        for (const StageValue value : unique(node.reads)) bytes += problem_.values[value].bytes;
      }
      standing_.push_back(bytes);
    }
  }

  static std::vector<StageValue> unique(std::vector<StageValue> values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  // What runs in a stage whatever the plan: in the first, with all that it reads.
  [[nodiscard]] std::vector<std::uint8_t> forced_runs(std::size_t t) const {
    std::vector<std::uint8_t> forced(problem_.nodes.size(), 0);
    for (const StageNode n : problem_.stages[t].must_run) forced[n] = 1;
    for (StageNode n = static_cast<StageNode>(forced.size()); n-- > 0;) {
      if (forced[n] == 0) continue;
      if (problem_.nodes[n].with_previous) forced[n - 1] = 1;
      if (t > 0) continue;
      for (const StageValue value : problem_.nodes[n].reads)
        forced[problem_.values[value].maker] = 1;
    }
    return forced;
  }

  void find_moments() {
    const bool exact = problem_.rules == StageRules::kExact;
    for (std::size_t t = 0; t < stages_; ++t) {
      const StageProblem::StageOf& stage = problem_.stages[t];
      // Here the beginning counts all that is kept, with kExact only what is wanted yet.
      if (t > 0 && !exact && stage.fixed <= budget_) {
        Moment moment;
        moment.row = t;
        moment.below = static_cast<StageNode>(problem_.nodes.size());
        moment.constant = stage.fixed;
        moments_.push_back(std::move(moment));
      }
      add_forced(t);
      add_closing(t);
    }
  }

  void add_forced(std::size_t t) {
    const std::vector<std::uint8_t> forced = forced_runs(t);
    const bool monet = problem_.rules == StageRules::kMonet;
    std::vector<StageNode> last(values_, 0);  // reader that must run
    for (StageNode n = 0; n < forced.size(); ++n)
      if (forced[n] != 0)
        for (const StageValue value : problem_.nodes[n].reads) last[value] = n;
    std::vector<StageValue> alive;  // made before, read by what must run here or later
    for (StageNode n = 0; n < forced.size(); ++n) {
      if (forced[n] == 0) continue;
      const StageProblem::NodeOf& node = problem_.nodes[n];
      Moment moment;
      moment.row = t + 1;
      moment.below = n;
      moment.constant = problem_.stages[t].fixed;
      if (monet) {
        moment.constant += standing_[n];
        for (const StageValue value : node.local)
          if (value < n) moment.inside.push_back(value);
      } else {
        if (t == 0) {
          std::erase_if(alive, [&](StageValue value) { return last[value] < n; });
          moment.inside = alive;
        } else {
          moment.inside = unique(node.reads);
        }
        for (const StageValue value : moment.inside)
          moment.constant += problem_.values[value].bytes;
        for (const StageValue value : node.makes) {
          moment.constant += problem_.values[value].bytes;
          if (last[value] > n) alive.push_back(value);
        }
      }
      const bool never =
          node.only_once && t > 0 && (problem_.rules == StageRules::kMonet || !due(t, n));
      Option option;
      if (!never) option.alternatives = fitting(alternatives_of(n, t), budget_ - moment.constant);
      if (option.alternatives.empty()) impossible_ = true;
      moment.options.push_back(std::move(option));
      add(std::move(moment));
      if (!priced_) continue;
      for (const StageValue value : node.makes) must_[cell(value, t)] |= kRuns;
      for (const StageValue value : node.reads) must_[cell(value, t)] |= kNeedBefore;
    }
  }

  [[nodiscard]] bool due(std::size_t t, StageNode n) const {
    const auto& list = problem_.stages[t].must_run;
    return std::find(list.begin(), list.end(), n) != list.end();
  }

  // An operator's cost counts in any case; where lists get too long, nothing is counted beside it.
  void add(Moment moment) {
    if (inside_ + moment.inside.size() > kMostInside) {
      moment.inside.clear();
      moment.below = 0;
    }
    inside_ += moment.inside.size();
    moments_.push_back(std::move(moment));
  }

  void add_closing(std::size_t t) {
    const StageProblem::StageOf& stage = problem_.stages[t];
    if (stage.alternatives.empty()) return;
    const bool monet = problem_.rules == StageRules::kMonet;
    const std::uint8_t kind = monet ? kNeedAfter : kNeedBefore;
    std::vector<std::uint32_t> wanted(values_, 0);  // by so many alternatives
    std::vector<const StageProblem::AlternativesOf*> possible;
    std::vector<std::vector<StageAlternative>> alternatives;
    const bool checkmate =
        problem_.rules == StageRules::kCheckmate;  // it closes stages for nothing
    for (const StageProblem::AlternativesOf& one : stage.alternatives) {
      std::int64_t bytes = stage.closing;
      for (const StageValue value : one.reads) bytes += problem_.values[value].bytes;
      std::vector<StageAlternative> fit =
          checkmate ? std::vector<StageAlternative>{{0, 0}} : fitting(one.all, budget_ - bytes);
      if (fit.empty()) continue;
      possible.push_back(&one);
      alternatives.push_back(std::move(fit));
      for (const StageValue value : one.reads) ++wanted[value];
    }
    if (possible.empty()) {
      impossible_ = true;
      return;
    }
    Moment moment;
    moment.row = t + 1;
    moment.below = checkmate ? 0 : static_cast<StageNode>(problem_.nodes.size());
    moment.constant = checkmate ? 0 : stage.closing;
    std::vector<std::size_t> need_of(values_, 0);
    for (StageValue value = 0; value < values_; ++value) {
      if (wanted[value] == 0) continue;
      if (wanted[value] == possible.size()) {
        if (priced_) must_[cell(value, t)] |= kind;
        moment.inside.push_back(value);
        if (!checkmate) moment.constant += problem_.values[value].bytes;
      } else {
        moment.half.push_back(value);
        need_of[value] = needs_.size();
        needs_.push_back({value, t});
      }
    }
    for (std::size_t a = 0; a < possible.size(); ++a) {
      Option option;
      option.alternatives = std::move(alternatives[a]);
      for (const StageValue value : possible[a]->reads) {
        if (wanted[value] == possible.size()) continue;
        option.wants.push_back(need_of[value]);
        if (!checkmate) option.bytes += problem_.values[value].bytes;
      }
      moment.options.push_back(std::move(option));
    }
    add(std::move(moment));
  }

  // What making a value costs, at least: its share of the fastest alternative that fits alone.
  void find_run_costs() {
    for (StageNode n = 0; n < problem_.nodes.size(); ++n) {
      const StageProblem::NodeOf& node = problem_.nodes[n];
      if (node.makes.empty()) continue;
      for (std::size_t t = 0; t < stages_; ++t) {
        double cost = 0;
        if ((must_[cell(node.makes[0], t)] & kRuns) == 0) {
          const bool checkmate = problem_.rules == StageRules::kCheckmate;
          if (node.only_once && (checkmate || t > 0)) continue;
          const std::int64_t slack = budget_ - problem_.stages[t].fixed - standing_[n];
          cost = kInfinity;
          for (const StageAlternative& alternative : alternatives_of(n, t))
            if (alternative.workspace <= slack)
              cost = std::min(cost, static_cast<double>(alternative.cost));
          // mutant: kept-bound
          cost /= static_cast<double>(node.makes.size());
        }
        for (const StageValue value : node.makes) run_cost_[cell(value, t)] = cost;
      }
    }
  }

  void find_links() {
    for (StageNode n = 0; n < problem_.nodes.size(); ++n) {
      const StageProblem::NodeOf& node = problem_.nodes[n];
      for (const StageValue to : node.makes) {
        for (const StageValue from : unique(node.reads)) links_.push_back({from, to, false});
        if (node.with_previous)
          for (const StageValue from : problem_.nodes[n - 1].makes)
            links_.push_back({from, to, true});
      }
    }
    if (links_.size() * stages_ > kMostLinks) links_.clear();
  }

  [[nodiscard]] double relative(double bytes) const {
    return bytes / static_cast<double>(std::max<std::int64_t>(budget_, 1));
  }

  // The least cost at prices_, with what is violated there.
  double solve() {
    double total = 0;
    magnitude_ = std::accumulate(prices_.begin(), prices_.end(), 0.0);
    const std::size_t first_need = moments_.size(), first_link = first_need + needs_.size();
    if (priced_) {
      charge_.assign(values_ * stages_, 0.0);
      reward_before_.assign(values_ * stages_, 0.0);
      reward_after_.assign(values_ * stages_, 0.0);
      cost_of_run_ = run_cost_;
      price_rows();
      const bool monet = problem_.rules == StageRules::kMonet;
      for (std::size_t k = 0; k < needs_.size(); ++k)
        (monet ? reward_after_ : reward_before_)[cell(needs_[k].value, needs_[k].stage)] +=
            prices_[first_need + k];
      for (std::size_t e = 0; e < links_.size(); ++e)
        price_link(e, &prices_[first_link + e * stages_]);
      kept_.assign(values_ * (stages_ + 1), 0);
      ran_.assign(values_ * stages_, 0);
      for (StageValue value = 0; value < values_; ++value) total += best_way(value);
      if (!(total < kInfinity)) {
        impossible_ = true;
        return total;
      }
      for (std::size_t e = 0; e < links_.size(); ++e)
        violate_link(e, &violated_[first_link + e * stages_]);
      for (std::size_t k = 0; k < needs_.size(); ++k) {
        const auto [value, t] = needs_[k];
        const bool there =
            kept_[value * (stages_ + 1) + t + (monet ? 1 : 0)] != 0 || ran_[cell(value, t)] != 0;
        violated_[first_need + k] = there ? -1.0 : 0.0;
      }
      count_rows();
    }
    for (std::size_t m = 0; m < moments_.size(); ++m) total += best_option(m);
    return total;
  }

  // Adds the prices of a row's moments to the values that it keeps.
  void price_rows() {
    std::vector<double> below(problem_.nodes.size() + 1);
    for (std::size_t first = 0; first < moments_.size();) {
      std::size_t last = first;
      const std::size_t row = moments_[first].row;
      std::fill(below.begin(), below.end(), 0.0);
      bool any = false;
      for (; last < moments_.size() && moments_[last].row == row; ++last) {
        below[moments_[last].below] += prices_[last];
        any = any || prices_[last] > 0;
      }
      if (any && row < stages_) {
        for (std::size_t n = below.size() - 1; n-- > 0;) below[n] += below[n + 1];
        for (StageValue value = 0; value < values_; ++value)
          charge_[cell(value, row)] +=
              relative(bytes_of(value)) * below[problem_.values[value].maker + 1];
        for (std::size_t m = first; m < last; ++m) {
          if (!(prices_[m] > 0)) continue;
          for (const StageValue value : moments_[m].inside)
            if (problem_.values[value].maker < moments_[m].below)
              charge_[cell(value, row)] -= relative(bytes_of(value)) * prices_[m];
          for (const StageValue value : moments_[m].half)
            if (problem_.values[value].maker < moments_[m].below)
              charge_[cell(value, row)] -= 0.5 * relative(bytes_of(value)) * prices_[m];
        }
      }
      first = last;
    }
  }

  // What moments have of the kept values, into violated_.
  void count_rows() {
    std::vector<double> below(problem_.nodes.size() + 1);
    for (std::size_t first = 0; first < moments_.size();) {
      const std::size_t row = moments_[first].row;
      std::fill(below.begin(), below.end(), 0.0);
      for (StageValue value = 0; value < values_; ++value)
        if (kept_[value * (stages_ + 1) + row] != 0)
          below[problem_.values[value].maker + 1] += bytes_of(value);
      for (std::size_t n = 1; n < below.size(); ++n) below[n] += below[n - 1];
      for (; first < moments_.size() && moments_[first].row == row; ++first) {
        const Moment& moment = moments_[first];
        double bytes = below[moment.below];
        for (const StageValue value : moment.inside)
          if (problem_.values[value].maker < moment.below &&
              kept_[value * (stages_ + 1) + row] != 0)
            bytes -= bytes_of(value);
        for (const StageValue value : moment.half)
          if (problem_.values[value].maker < moment.below &&
              kept_[value * (stages_ + 1) + row] != 0)
            bytes -= 0.5 * bytes_of(value);
        violated_[first] = relative(bytes);
      }
    }
  }

  void price_link(std::size_t e, const double* price) {
    const Link& link = links_[e];
    for (std::size_t t = 0; t < stages_; ++t) {
      if (!(price[t] > 0)) continue;
      cost_of_run_[cell(link.to, t)] += price[t];
      if (link.runs_with)
        cost_of_run_[cell(link.from, t)] -= price[t];
      else
        reward_before_[cell(link.from, t)] += price[t];
    }
  }

  void violate_link(std::size_t e, double* violated) const {
    const Link& link = links_[e];
    const std::uint8_t* const runs = &ran_[cell(link.to, 0)];
    const std::uint8_t* const made = &ran_[cell(link.from, 0)];
    const std::uint8_t* const kept = &kept_[link.from * (stages_ + 1)];
    for (std::size_t t = 0; t < stages_; ++t) {
      const bool there = made[t] != 0 || (!link.runs_with && kept[t] != 0);
      violated[t] = (runs[t] != 0 ? 1.0 : 0.0) - (there ? 1.0 : 0.0);
    }
  }

  // The cheapest way of one value through the stages: from the last one back, kept when it begins
  // or not.
  double best_way(StageValue value) {
    way_.resize(stages_);
    const bool keepable = problem_.values[value].keepable;
    double with = kInfinity, without = 0;  // from the next stage on
    for (std::size_t t = stages_; t-- > 0;) {
      const std::size_t at = cell(value, t);
      const std::uint8_t must = must_[at];
      const double charge = t + 1 < stages_ && keepable ? charge_[at + 1] : 0;
      const double before = reward_before_[at], after = reward_after_[at];
      const bool keeps_made = keepable && charge + with < without;
      const double made =
          cost_of_run_[at] - before - after + (keeps_made ? charge + with : without);
      Way& way = way_[t];
      way = {keeps_made, false, false, false};
      double kept = kInfinity;
      if ((must & kRuns) == 0) {
        const double stays = charge + with - after;
        const bool goes = (must & kNeedAfter) == 0 && without <= stays;
        kept = (goes ? without : stays) - before;
        way.keeps = !goes;
      }
      if (made < kept) {
        kept = made;
        way.made_with = true;
      }
      const bool may_lack = (must & (kRuns | kNeedBefore | kNeedAfter)) == 0;
      double lacks = without;
      if (!may_lack || made < without) {
        lacks = made;
        way.made_without = true;
      }
      with = keepable && t > 0 ? kept : kInfinity;
      without = lacks;
    }
    bool there = false;
    std::uint8_t* const kept = &kept_[value * (stages_ + 1)];
    if (!(without < kInfinity)) return without;
    for (std::size_t t = 0; t < stages_; ++t) {
      const Way& way = way_[t];
      const bool runs = there ? way.made_with : way.made_without;
      ran_[cell(value, t)] = runs ? 1 : 0;
      there = runs ? way.keeps_made : there && way.keeps;
      kept[t + 1] = there ? 1 : 0;
    }
    return without;
  }

  // The cheapest alternative of what runs at a moment.
  double best_option(std::size_t m) {
    const Moment& moment = moments_[m];
    const double price = prices_[m];
    double over = static_cast<double>(moment.constant - budget_), found = 0;
    if (!moment.options.empty()) {
      found = kInfinity;
      const Option* chosen = nullptr;
      double bytes = 0;
      for (const Option& option : moment.options) {
        double wants = 0;
        for (const std::size_t need : option.wants) wants += prices_[moments_.size() + need];
        for (const StageAlternative& alternative : option.alternatives) {
          const double has =
              0.5 * static_cast<double>(option.bytes) + static_cast<double>(alternative.workspace);
          const double cost = static_cast<double>(alternative.cost) + wants + price * relative(has);
          if (cost >= found) continue;
          found = cost;
          chosen = &option;
          bytes = has;
        }
      }
      for (const std::size_t need : chosen->wants) violated_[moments_.size() + need] += 1;
      over += bytes;
    }
    magnitude_ += std::abs(found);
    violated_[m] = (priced_ ? violated_[m] : 0.0) + relative(over);
    return found + price * relative(static_cast<double>(moment.constant - budget_));
  }

  // Costs are whole, so a bound is, too; less what sums of doubles may be wrong by.
  [[nodiscard]] std::int64_t as_bound(double value) const {
    const double wrong = 1e-10 * (magnitude_ + std::abs(value)) + 1e-6;
    return static_cast<std::int64_t>(
        std::ceil(std::clamp(value - wrong, 0.0, static_cast<double>(StageProblem::kNever))));
  }

  struct Way {
    bool keeps_made, keeps, made_with, made_without;
  };

  const StageProblem& problem_;
  const std::size_t values_, stages_;
  const std::int64_t budget_;
  bool priced_ = false, impossible_ = false;
  std::vector<std::int64_t> standing_;  // by node
  std::vector<Moment> moments_;         // by stage; of one row, those that follow each other
  std::vector<Need> needs_;
  std::vector<Link> links_;
  std::size_t inside_ = 0;
  // By value and stage.
  std::vector<std::uint8_t> must_;
  std::vector<double> run_cost_, cost_of_run_, charge_, reward_before_, reward_after_;
  std::vector<std::uint8_t> kept_, ran_;
  std::vector<Way> way_;
  // Of moments (for the whole budget), needs and links, in this order; links by stage.
  std::vector<double> best_, prices_, violated_, direction_;
  double best_value_ = 0, magnitude_ = 0;
  double agility_ = 1;
  unsigned failed_ = 0, rounds_ = 0;
  std::int64_t cost_ = 0;
};

RecomputationBound::RecomputationBound(const StageProblem& problem)
    : prices_(std::make_unique<Prices>(problem)) {}
RecomputationBound::~RecomputationBound() = default;
void RecomputationBound::refine(unsigned rounds, std::int64_t target,
                                const std::function<bool()>& stop) {
  prices_->refine(rounds, target, stop);
}
std::int64_t RecomputationBound::cost() const noexcept { return prices_->cost(); }
bool RecomputationBound::impossible() const noexcept { return prices_->impossible(); }
unsigned RecomputationBound::rounds() const noexcept { return prices_->rounds(); }

}  // namespace berth::schedule
