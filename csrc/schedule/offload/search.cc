#include "csrc/schedule/offload/search.h"

#include "csrc/schedule/offload/uses.h"

#include <algorithm>
#include <cmath>

namespace berth::schedule::offload {
namespace {

constexpr std::size_t kTriedAll = 128;  // values: of more, the promising are tried
constexpr std::uint64_t kUndoRounds = 4;

}  // namespace

Search::Search(const Problem& problem, const Machine& machine, Bytes least_bytes)
    : problem_(problem),
      machine_(machine),
      triggers_(problem, machine),
      timeline_(problem, machine),
      plan_(keep_all(problem)),
      may_offload_(problem.values.size(), false),
      may_recompute_(problem.values.size(), false) {
  std::vector<std::uint64_t> start(problem.operators.size() + 1, 0);
  for (std::size_t op = 0; op < problem.operators.size(); ++op)
    start[op + 1] = start[op] + problem.operators[op].ns;
  base_ns_ = start.back();
  for (Value v = 0; v < problem.values.size(); ++v) {
    const Problem::ValueOf& value = problem.values[v];
    const Index use = first_use_after(problem, v);
    may_recompute_[v] = may(problem, v, Fate::kRecompute);
    if (use != kNobody && may(problem, v, Fate::kOffload) && value.bytes >= least_bytes) {
      Index last = value.maker == kNobody ? 0 : value.maker;
      for (const Index reader : value.readers)
        if (reader < problem.border) last = reader;
      const double copies = static_cast<double>(copy_ns(value.bytes, machine.out.alone)) +
                            static_cast<double>(copy_ns(value.bytes, machine.in.alone));
      may_offload_[v] = static_cast<double>(start[use] - start[last]) >= 1.1 * copies;
    }
    // Without a use after the border it is wanted where others are recomputed of it.
    if (may_offload_[v] || may_recompute_[v]) movable_.push_back(v);
  }
}

bool Search::allows(Value v, Fate fate, const Ways& ways) const {
  if (fate == Fate::kOffload) return ways.offload && may_offload_[v];
  return fate == Fate::kKeep || (ways.recompute && may_recompute_[v]);
}

Draft Search::all_kept() const {
  return {std::vector<Fate>(problem_.values.size(), Fate::kKeep),
          std::vector<std::int32_t>(problem_.values.size(), 0)};
}

Draft Search::least_kept(const Ways& ways) const {
  Draft draft = all_kept();
  for (const Value v : movable_)
    for (const Fate fate : {Fate::kOffload, Fate::kRecompute})
      if (allows(v, fate, ways)) draft.fate[v] = fate;
  return draft;
}

OffloadPlan Search::plan_of(const Draft& draft) {
  for (Value v = 0; v < draft.fate.size(); ++v) plan_.choices[v].fate = draft.fate[v];
  triggers_.set(plan_, draft.lead);
  return plan_;
}

Score Search::price(const Draft& draft) {
  for (Value v = 0; v < draft.fate.size(); ++v) plan_.choices[v].fate = draft.fate[v];
  triggers_.set(plan_, draft.lead);
  const Outcome outcome = timeline_.play(plan_);
  ++simulations_;
  Score score{outcome.excess, 0, outcome.ns};
  if (outcome.excess != 0)
    for (const RunTime& run : timeline_.runs())
      if (run.live > machine_.budget)
        score.excess_sum += static_cast<double>(run.live - machine_.budget);
  return score;
}

// By what the last play says: how many operators above the budget run while the value is idle.
std::vector<Search::Candidate> Search::promising(const Draft& draft, const Ways& ways) const {
  const Execution& execution = timeline_.execution();
  const std::vector<RunTime>& runs = timeline_.runs();
  std::vector<Index> over(runs.size() + 1, 0);
  for (std::size_t k = 0; k < runs.size(); ++k)
    over[k + 1] = over[k] + (runs[k].live > machine_.budget ? 1 : 0);
  std::vector<Candidate> all;
  for (const Value v : movable_) {
    if (draft.fate[v] != Fate::kKeep || execution.first_after[v] == kNobody) continue;
    const Problem::ValueOf& value = problem_.values[v];
    const Index first = execution.last_before[v] + 1;
    const double removed = static_cast<double>(over[execution.first_after[v]] - over[first]) *
                           static_cast<double>(value.bytes);
    if (removed <= 0) continue;
    if (allows(v, Fate::kOffload, ways))
      all.push_back(
          {v, Fate::kOffload,
           0.05 * static_cast<double>(copy_ns(value.bytes, machine_.out.alone)) / removed});
    if (allows(v, Fate::kRecompute, ways))
      all.push_back({v, Fate::kRecompute,
                     static_cast<double>(problem_.operators[value.maker].ns + 1) / removed});
  }
  return all;
}

Score Search::greedy(Draft& draft, const Ways& ways, bool by_sum, const SearchLimits& limits) {
  const std::uint64_t since = simulations_;
  const double least_ns = 1 + 1e-6 * static_cast<double>(base_ns_);
  const bool all = movable_.size() <= kTriedAll;
  const std::size_t batch = all ? 1 : movable_.size() / 64;
  const auto by_rank = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank     ? a.rank < b.rank
           : a.value != b.value ? a.value < b.value
                                : a.fate < b.fate;
  };
  Score score = price(draft);
  while (!score.fits() && !ended(limits, since)) {
    std::vector<Candidate> tried = promising(draft, ways);
    if (!all && tried.size() > 2 * batch + 16) {
      std::nth_element(tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(2 * batch + 16),
                       tried.end(), by_rank);
      tried.resize(2 * batch + 16);
    }
    const auto is_useless = [&](Candidate& one) {
      if (ended(limits, since)) return true;
      draft.fate[one.value] = one.fate;
      const Score with = price(draft);
      draft.fate[one.value] = Fate::kKeep;
      const double removed =
          by_sum ? score.excess_sum - with.excess_sum
                 : std::min(static_cast<double>(score.excess) - static_cast<double>(with.excess),
                            static_cast<double>(problem_.values[one.value].bytes));
      const double added = static_cast<double>(with.ns) - static_cast<double>(score.ns);
      one.rank = (std::max(added, 0.0) + least_ns) / std::max(removed, 1e-3);
      return removed <= 0;
    };
    tried.erase(std::remove_if(tried.begin(), tried.end(), is_useless), tried.end());
    if (tried.empty()) break;
    std::sort(tried.begin(), tried.end(), by_rank);
    std::size_t taken = 0;
    for (const Candidate& one : tried) {
      if (draft.fate[one.value] != Fate::kKeep) continue;  // the other way out of it was better
      draft.fate[one.value] = one.fate;
      if (++taken == batch) break;
    }
    score = price(draft);
  }
  return score;
}

Score Search::undo(Draft& draft, const SearchLimits& limits) {
  const std::uint64_t since = simulations_;
  Score score = price(draft);
  bool changed = true;
  for (std::uint64_t round = 0; changed && round < kUndoRounds; ++round) {
    changed = false;
    // Those that cost most for their bytes first.
    std::vector<Candidate> taken;
    for (const Value v : movable_) {
      if (draft.fate[v] == Fate::kKeep) continue;
      const double ns =
          draft.fate[v] == Fate::kRecompute
              ? static_cast<double>(problem_.operators[problem_.values[v].maker].ns)
              : 0.1 * static_cast<double>(copy_ns(problem_.values[v].bytes, machine_.out.alone));
      taken.push_back({v, draft.fate[v], -ns / static_cast<double>(problem_.values[v].bytes)});
    }
    std::stable_sort(taken.begin(), taken.end(),
                     [](const Candidate& a, const Candidate& b) { return a.rank < b.rank; });
    for (const Candidate& one : taken) {
      if (ended(limits, since)) return score;
      draft.fate[one.value] = Fate::kKeep;
      const Score without = price(draft);
      if (score.better_than(without) || (!score.fits() && without.excess > score.excess)) {
        draft.fate[one.value] = one.fate;
      } else {
        score = without;
        changed = true;
      }
    }
  }
  return score;
}

// One move of annealing; false where it changed nothing.
bool Search::change(Draft& draft, const Ways& ways, std::mt19937_64& random) const {
  const auto any = [&] { return movable_[random() % movable_.size()]; };
  const auto other_fate = [&](Value v) {
    const auto fate =
        static_cast<Fate>((static_cast<unsigned>(draft.fate[v]) + 1 + random() % 2) % 3);
    if (!allows(v, fate, ways)) return false;
    draft.fate[v] = fate;
    // Where there is little room, only a late reload may fit.
    draft.lead[v] = random() % 2 == 0 ? 0 : -static_cast<std::int32_t>(1 << (random() % 4));
    return true;
  };
  const std::uint64_t kind = random() % 100;
  if (kind < 45) return other_fate(any());
  if (kind < 80) {
    // One comes back to the device, another leaves it.
    Value out = any(), back = any();
    for (int tries = 0; tries < 16 && draft.fate[out] != Fate::kKeep; ++tries) out = any();
    for (int tries = 0; tries < 16 && draft.fate[back] == Fate::kKeep; ++tries) back = any();
    if (draft.fate[out] != Fate::kKeep || draft.fate[back] == Fate::kKeep) return false;
    draft.fate[back] = Fate::kKeep;
    return other_fate(out);
  }
  Value v = any();
  for (int tries = 0; tries < 16 && draft.fate[v] != Fate::kOffload; ++tries) v = any();
  if (draft.fate[v] != Fate::kOffload) return false;
  const auto by = static_cast<std::int32_t>(std::int32_t{1} << (random() % 4));
  draft.lead[v] += random() % 2 == 0 ? by : -by;
  const auto most = static_cast<std::int32_t>(problem_.operators.size());
  draft.lead[v] = std::clamp(draft.lead[v], -most, most);
  return true;
}

Score Search::anneal(Draft& draft, const Ways& ways, std::mt19937_64& random,
                     const SearchLimits& limits,
                     const std::function<void(const Draft&, const Score&)>& better) {
  const std::uint64_t since = simulations_;
  Draft current = draft;
  Score score = price(current), best = score;
  const double moves = static_cast<double>(std::max<std::uint64_t>(limits.simulations, 1));
  Draft next;
  std::uint64_t idle = 0;  // moves in a row that changed nothing: there may be none that does
  while (!movable_.empty() && idle < 1000 && !ended(limits, since)) {
    next = current;
    bool changed = change(next, ways, random);
    if (random() % 4 == 0) changed |= change(next, ways, random);
    if (!changed) {
      ++idle;
      continue;
    }
    idle = 0;
    const Score now = price(next);
    // Cooled by simulations, never by the clock.
    const double share = static_cast<double>(simulations_ - since) / moves;
    const double temperature = 1e-3 * std::pow(1e-3, share);
    const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
    const auto worse_by = [&](double a, double b) { return (a - b) / std::max(b, 1.0); };
    bool accept = now.fits() && !score.fits();
    if (now.fits() == score.fits()) {
      const double worse =
          score.fits() ? worse_by(static_cast<double>(now.ns), static_cast<double>(score.ns))
                       : worse_by(now.excess_sum, score.excess_sum);
      accept = worse <= 0 || draw < std::exp(-worse / temperature);
    }
    if (!accept) continue;
    current = next;
    score = now;
    if (!score.better_than(best)) continue;
    best = score;
    draft = current;
    better(draft, best);
    if (best.fits() && best.ns == base_ns_) break;
  }
  return best;
}

}  // namespace berth::schedule::offload
