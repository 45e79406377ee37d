#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <algorithm>
#include <optional>
#include <vector>

// A second account of what a stage takes, by each of the three rules, written from their
// definitions: every sum is made anew from the sets. Slow: O(operators squared) a stage.
namespace berth::test {

using Kept = std::vector<bool>;  // by value

struct StageAccount {
  bool fits = true;  // else cost and peak are not looked at: no rule says which way is taken then
  std::int64_t cost = 0, peak = 0;
};

class StageAccounts {
 public:
  explicit StageAccounts(const schedule::StageProblem& problem) : problem_(problem) {}

  StageAccount operator()(std::size_t t, std::size_t alternative, const Kept& before,
                          const Kept& after) {
    t_ = t;
    before_ = before;
    after_ = after;
    account_ = {};
    closing_.assign(problem_.values.size(), false);
    const auto& alternatives = problem_.stages[t].alternatives;
    if (!alternatives.empty())
      for (const auto v : alternatives[alternative].reads) closing_[v] = true;
    find_runs();
    switch (problem_.rules) {
      case schedule::StageRules::kExact:
        exact();
        break;
      case schedule::StageRules::kCheckmate:
        checkmate();
        break;
      case schedule::StageRules::kMonet:
        monet();
        break;
    }
    if (problem_.rules != schedule::StageRules::kCheckmate && !alternatives.empty())
      run(alternatives[alternative].all, problem_.stages[t].closing + closing_bytes());
    return account_;
  }

 private:
  using Alternatives = std::vector<schedule::StageAlternative>;

  template <class Holds>
  [[nodiscard]] std::int64_t bytes_where(const Holds& holds) const {
    std::int64_t bytes = 0;
    for (std::size_t v = 0; v < problem_.values.size(); ++v)
      if (holds(v)) bytes += problem_.values[v].bytes;
    return bytes;
  }
  [[nodiscard]] bool reads(std::size_t node, std::size_t v) const {
    return std::ranges::count(problem_.nodes[node].reads, v) > 0;
  }
  // Whether something that runs at or behind a node reads it.
  [[nodiscard]] bool read_from(std::size_t node, std::size_t v) const {
    for (std::size_t n = node; n < problem_.nodes.size(); ++n)
      if (runs_[n] && reads(n, v)) return true;
    return false;
  }

  void find_runs() {
    const bool monet = problem_.rules == schedule::StageRules::kMonet;
    runs_.assign(problem_.nodes.size(), false);
    for (const auto n : problem_.stages[t_].must_run) runs_[n] = true;
    for (std::size_t v = 0; v < problem_.values.size(); ++v)
      if ((after_[v] && !before_[v]) || (closing_[v] && !after_[v] && (monet || !before_[v])))
        runs_[problem_.values[v].maker] = true;
    for (bool more = true; more;) {
      const std::vector<bool> old = runs_;
      for (std::size_t n = 0; n < problem_.nodes.size(); ++n) {
        if (!runs_[n]) continue;
        if (problem_.nodes[n].with_previous) runs_[n - 1] = true;
        for (const auto v : problem_.nodes[n].reads)
          if (!before_[v]) runs_[problem_.values[v].maker] = true;
      }
      more = runs_ != old;
    }
  }

  [[nodiscard]] const Alternatives& plain(std::size_t node) const {
    const auto& one = problem_.nodes[node];
    if (one.always_in_place) return one.in_place;
    return t_ > 0 && !one.again.empty() ? one.again : one.first;
  }
  [[nodiscard]] std::optional<schedule::StageAlternative> fastest(const Alternatives& alternatives,
                                                                  std::int64_t base) const {
    std::optional<schedule::StageAlternative> found;
    for (const auto& one : alternatives) {
      if (base + one.workspace > problem_.budget) continue;
      if (!found || one.cost < found->cost ||
          (one.cost == found->cost && one.workspace < found->workspace))
        found = one;
    }
    return found;
  }
  void hold(std::int64_t bytes) {
    account_.peak = std::max(account_.peak, bytes);
    if (bytes > problem_.budget) account_.fits = false;
  }
  void run(const Alternatives& alternatives, std::int64_t base) {
    const auto alternative = fastest(alternatives, base);
    if (!alternative) {
      account_.fits = false;
      return;
    }
    account_.cost += alternative->cost;
    hold(base + alternative->workspace);
  }

  // Buffers by name: one that is kept from before, one that the stage makes. Of two of one value
  // the second ends with its maker.
  void exact() {
    const auto& stage = problem_.stages[t_];
    hold(stage.fixed + bytes_where([&](std::size_t v) {
           return before_[v] && (after_[v] || closing_[v] || read_from(0, v));
         }));
    for (std::size_t n = 0; n < problem_.nodes.size(); ++n) {
      if (!runs_[n]) continue;
      const auto& node = problem_.nodes[n];
      const auto wanted = [&](std::size_t v) {
        return after_[v] || closing_[v] || read_from(n, v);
      };
      const std::int64_t base =
          stage.fixed + bytes_where([&](std::size_t v) { return before_[v] && wanted(v); }) +
          bytes_where([&](std::size_t v) {
            const std::size_t maker = problem_.values[v].maker;
            return runs_[maker] && (maker == n || (maker < n && !before_[v] && wanted(v)));
          });
      Alternatives alternatives = plain(n);
      if (node.over && !node.always_in_place && !after_[*node.over] && !closing_[*node.over] &&
          !read_from(n + 1, *node.over))
        alternatives.insert(alternatives.end(), node.in_place.begin(), node.in_place.end());
      run_node(n, alternatives, base);
    }
  }

  // Jain et al. 2020, (1) to (5): stage t runs operator t; U is what is kept, plus what was made,
  // less what was freed.
  void checkmate() {
    const auto& stage = problem_.stages[t_];
    hold(stage.fixed + bytes_where([&](std::size_t v) { return before_[v]; }));
    for (std::size_t n = 0; n < problem_.nodes.size(); ++n) {
      if (!runs_[n]) continue;
      hold(stage.fixed + bytes_where([&](std::size_t v) { return before_[v] && !freed(v, n); }) +
           bytes_where([&](std::size_t v) {
             const std::size_t maker = problem_.values[v].maker;
             return runs_[maker] && maker <= n && (before_[v] || !freed(v, n));
           }));
      std::int64_t least = problem_.nodes[n].first.front().cost;
      for (const auto& alternative : problem_.nodes[n].first)
        least = std::min(least, alternative.cost);
      account_.cost +=
          problem_.nodes[n].only_once && n != t_ ? schedule::StageProblem::kNever : least;
    }
  }
  // By an operator before `node` that is the last in the stage to read it.
  [[nodiscard]] bool freed(std::size_t v, std::size_t node) const {
    if (after_[v] || read_from(node, v)) return false;
    for (std::size_t n = 0; n < node; ++n)
      if (runs_[n] && reads(n, v)) return true;
    return false;
  }

  // Shah et al. 2021: operators and results have the same numbers. D is `closing_`.
  void monet() {
    const auto& stage = problem_.stages[t_];
    const auto beside = [&](std::size_t j) {
      return stage.fixed + bytes_where([&](std::size_t v) { return v > j && before_[v]; }) +
             bytes_where([&](std::size_t v) { return v < j && closing_[v] && !after_[v]; });
    };
    const auto base_of = [&](std::size_t j) {
      const auto& node = problem_.nodes[j];
      return beside(j) + problem_.values[j].bytes + node.local_bytes +
             bytes_where([&](std::size_t v) {
               return v < j && after_[v] && std::ranges::count(node.local, v) == 0;
             });
    };
    hold(stage.fixed);
    for (std::size_t j = 0; j < problem_.nodes.size(); ++j) {
      hold(beside(j) + (before_[j] ? problem_.values[j].bytes : 0) +
           bytes_where([&](std::size_t v) { return v < j && after_[v]; }));
      if (!runs_[j] || problem_.nodes[j].with_previous) continue;
      const auto& node = problem_.nodes[j];
      const bool may = node.over && !after_[*node.over] && !closing_[*node.over];
      const bool joint =
          j + 1 < runs_.size() && runs_[j + 1] && problem_.nodes[j + 1].with_previous;
      if (!joint) {
        Alternatives alternatives = plain(j);
        if (may)
          alternatives.insert(alternatives.end(), node.in_place.begin(), node.in_place.end());
        run_node(j, alternatives, base_of(j));
        continue;
      }
      // Both of them in place, or neither.
      const std::int64_t base = base_of(j), next_base = base_of(j + 1);
      const auto cost_of = [&](const Alternatives& mine,
                               const Alternatives& its) -> std::optional<std::int64_t> {
        const auto a = fastest(mine, base), b = fastest(its, next_base);
        if (!a || !b) return std::nullopt;
        return a->cost + b->cost;
      };
      const auto as_plain = cost_of(plain(j), plain(j + 1));
      const auto in_place =
          may ? cost_of(node.in_place, problem_.nodes[j + 1].in_place) : std::nullopt;
      const bool takes = in_place && (!as_plain || *in_place < *as_plain);
      run_node(j, takes ? node.in_place : plain(j), base);
      run_node(j + 1, takes ? problem_.nodes[j + 1].in_place : plain(j + 1), next_base);
    }
  }

  void run_node(std::size_t node, const Alternatives& alternatives, std::int64_t base) {
    const std::int64_t before = account_.cost;
    run(alternatives, base);
    if (problem_.nodes[node].only_once && t_ > 0)
      account_.cost = before + schedule::StageProblem::kNever;
  }

  // What is there when the closing operator runs.
  [[nodiscard]] std::int64_t closing_bytes() const {
    return bytes_where([&](std::size_t v) { return after_[v] || closing_[v]; });
  }

  const schedule::StageProblem& problem_;
  std::size_t t_ = 0;
  Kept before_, after_, closing_;
  std::vector<bool> runs_;
  StageAccount account_;
};

}  // namespace berth::test
