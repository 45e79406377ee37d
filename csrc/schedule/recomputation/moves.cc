#include "csrc/schedule/recomputation/search.h"

#include <algorithm>

namespace berth::schedule {

MoveMaker::MoveMaker(const StageModel& model, const WorkingPlan& plan, std::mt19937_64& random,
                     std::vector<StageValue> held)
    : model_(model),
      problem_(model.problem()),
      plan_(plan),
      random_(random),
      held_(std::move(held)),
      stages_(static_cast<std::uint32_t>(problem_.stages.size())),
      neighbours_(problem_.values.size()) {
  for (std::uint32_t t = 0; t < stages_; ++t)
    if (problem_.stages[t].alternatives.size() > 1) choosing_.push_back(t);
  for (const StageProblem::NodeOf& node : problem_.nodes)
    for (const StageValue read : node.reads)
      for (const StageValue made : node.makes) {
        neighbours_[read].push_back(made);
        neighbours_[made].push_back(read);
      }
}

std::uint32_t MoveMaker::hot_stage() {
  auto stage = static_cast<std::uint32_t>(below(stages_));
  if (plan_.excess() == 0 || below(2) == 0) return stage;
  const std::uint64_t tries = 2 + below(3);
  for (std::uint64_t k = 0; k < tries; ++k) {
    const auto other = static_cast<std::uint32_t>(below(stages_));
    if (plan_.excess(other) > plan_.excess(stage)) stage = other;
  }
  return stage;
}

RowFlip MoveMaker::gap_around(StageValue value, std::uint32_t row) const {
  const BitTable& kept = plan_.plan().kept;
  std::uint32_t first = row, last = row;
  while (first > 1 && kept.has(first - 1, value) && !plan_.uses(first - 1, value)) --first;
  while (last + 1 < stages_ && kept.has(last + 1, value) && !plan_.uses(last, value)) ++last;
  // Kept behind its last stage for that alone.
  if (model_.needs_after() && last + 1 < stages_ && kept.has(last + 1, value) &&
      (last + 2 >= stages_ || !kept.has(last + 2, value)) && plan_.closes_with(last, value) &&
      !plan_.uses(last + 1, value))
    ++last;
  return {value, first, last, false};
}

RowFlip MoveMaker::since_last(StageValue value, std::uint32_t t) const {
  const BitTable& kept = plan_.plan().kept;
  const StageNode maker = problem_.values[value].maker;
  std::uint32_t first = t;
  while (first > 1 && !kept.has(first - 1, value) && !has(plan_.runs(first - 1), maker)) --first;
  const bool behind = model_.needs_after() && plan_.closes_with(t, value);
  return {value, first, behind ? t + 1 : t, true};
}

void MoveMaker::add(RecomputationMove& move, RowFlip flip) const {
  if (flip.first > flip.last || flip.first >= stages_) return;
  if (flip.first <= 1 && std::ranges::count(held_, flip.value) > 0) {
    if (flip.last <= 1) return;
    flip.first = 2;
  }
  for (const RowFlip& other : move.flips)
    if (other.value == flip.value) return;
  move.flips.push_back(flip);
}

std::optional<RowFlip> MoveMaker::kept_gap() {
  const std::uint32_t t = hot_stage();
  const std::uint32_t row = t == 0 || (t + 1 < stages_ && below(2) == 0) ? t + 1 : t;
  if (row >= stages_) return std::nullopt;
  const ConstWords words = plan_.plan().kept.row(row);
  if (words.empty()) return std::nullopt;
  // The next one that is set from a random place on.
  const std::size_t start = below(problem_.values.size());
  for (std::size_t k = 0; k <= words.size(); ++k) {
    const std::size_t w = (start / 64 + k) % words.size();
    std::uint64_t left = words[w];
    if (k == 0) left &= ~std::uint64_t{0} << (start % 64);
    if (left == 0) continue;
    return gap_around(
        static_cast<StageValue>(w * 64 + static_cast<std::size_t>(std::countr_zero(left))), row);
  }
  return std::nullopt;
}

std::optional<std::pair<StageValue, std::uint32_t>> MoveMaker::recomputation() {
  if (stages_ < 2 || problem_.nodes.empty()) return std::nullopt;
  for (int tries = 0; tries < 8; ++tries) {
    const auto t = static_cast<std::uint32_t>(1 + below(stages_ - 1));
    const ConstWords runs = plan_.runs(t);
    const std::size_t start = below(problem_.nodes.size());
    for (std::size_t k = 0; k <= runs.size(); ++k) {
      const std::size_t w = (start / 64 + k) % runs.size();
      std::uint64_t left = runs[w];
      if (k == 0) left &= ~std::uint64_t{0} << (start % 64);
      for (; left != 0; left &= left - 1) {
        const std::size_t node = w * 64 + static_cast<std::size_t>(std::countr_zero(left));
        const auto& due = problem_.stages[t].must_run;
        if (std::find(due.begin(), due.end(), node) != due.end()) continue;
        const auto& makes = problem_.nodes[node].makes;
        if (makes.empty()) continue;
        return std::pair(makes[below(makes.size())], t);
      }
    }
  }
  return std::nullopt;
}

void MoveMaker::drop(RecomputationMove& move) {
  if (const auto gap = kept_gap()) add(move, *gap);
}

void MoveMaker::keep(RecomputationMove& move) {
  if (const auto again = recomputation()) add(move, since_last(again->first, again->second));
}

void MoveMaker::exchange(RecomputationMove& move) {
  const auto again = recomputation();
  if (!again) return;
  const RowFlip kept = since_last(again->first, again->second);
  add(move, kept);
  const auto row = static_cast<std::uint32_t>(kept.first + below(kept.last - kept.first + 1));
  if (row >= stages_) return;
  const ConstWords words = plan_.plan().kept.row(row);
  const std::size_t start = below(problem_.values.size());
  for (std::size_t k = 0; k <= words.size(); ++k) {
    const std::size_t w = (start / 64 + k) % words.size();
    std::uint64_t left = words[w];
    if (k == 0) left &= ~std::uint64_t{0} << (start % 64);
    if (left == 0) continue;
    const auto value =
        static_cast<StageValue>(w * 64 + static_cast<std::size_t>(std::countr_zero(left)));
    add(move, gap_around(value, row));
    return;
  }
}

void MoveMaker::neighbour(RecomputationMove& move) {
  const auto gap = kept_gap();
  if (!gap) return;
  const std::vector<StageValue>& near = neighbours_[gap->value];
  StageValue other = 0;
  if (near.empty() || below(3) == 0) {
    const std::uint64_t values = problem_.values.size();
    other = static_cast<StageValue>((gap->value + values + below(9) - 4) % values);
  } else {
    other = near[below(near.size())];
  }
  if (other == gap->value) return;
  add(move, *gap);
  RowFlip moved{other, gap->first, gap->last, true};
  if (below(2) == 0) moved.first += static_cast<std::uint32_t>(below(gap->last - gap->first + 1));
  add(move, moved);
}

void MoveMaker::sub_range(RecomputationMove& move) {
  auto gap = kept_gap();
  if (!gap) return;
  const std::uint32_t length = gap->last - gap->first + 1;
  switch (below(3)) {
    case 0:
      gap->last = gap->first + static_cast<std::uint32_t>(below(length));
      break;
    case 1:
      gap->first += static_cast<std::uint32_t>(below(length));
      break;
    default: {
      if (below(2) == 0) gap->value = static_cast<StageValue>(below(problem_.values.size()));
      gap->first += static_cast<std::uint32_t>(below(length));
      gap->last = gap->first + (1U << below(8)) - 1;
      gap->keep = below(2) == 0;
      break;
    }
  }
  add(move, *gap);
}

void MoveMaker::alternative(RecomputationMove& move) {
  if (choosing_.empty()) return earlier(move);
  const std::uint32_t t = choosing_[below(choosing_.size())];
  const auto& alternatives = problem_.stages[t].alternatives;
  const std::uint8_t now = plan_.plan().alternatives[t];
  const auto next =
      static_cast<std::uint8_t>((now + 1 + below(alternatives.size() - 1)) % alternatives.size());
  move.stage = t;
  move.alternative = next;
  const auto lacks = [](const auto& list, StageValue value) {
    return !std::binary_search(list.begin(), list.end(), value);
  };
  const bool moves_interval = below(4) != 0;
  const std::uint32_t row = model_.needs_after() && t + 1 < stages_ ? t + 1 : t;
  std::uint32_t first = 0, last = 0;
  for (const StageValue old : alternatives[now].reads) {
    if (!lacks(alternatives[next].reads, old) || !plan_.plan().kept.has(row, old)) continue;
    if (!moves_interval) continue;
    const BitTable& kept = plan_.plan().kept;
    RowFlip gap{old, row, row, false};
    while (gap.first > 1 && kept.has(gap.first - 1, old) &&
           !(gap.first - 1 != t && plan_.uses(gap.first - 1, old)))
      --gap.first;
    if (row + 1 < stages_ && kept.has(row + 1, old)) continue;  // it is needed later, too
    add(move, gap);
    first = gap.first;
    last = gap.last;
  }
  for (const StageValue value : alternatives[next].reads) {
    if (!lacks(alternatives[now].reads, value)) continue;
    RowFlip kept = since_last(value, t);
    kept.last = row;
    if (first != 0) kept = {value, first, last, true};
    add(move, kept);
  }
}

// What is recomputed in a stage is made some stages before it and kept.
void MoveMaker::earlier(RecomputationMove& move) {
  const auto again = recomputation();
  if (!again) return;
  RowFlip kept = since_last(again->first, again->second);
  const auto by = static_cast<std::uint32_t>(below(16));
  kept.first = std::max(kept.first, again->second > by ? again->second - by : 1);
  add(move, kept);
}

void MoveMaker::make(RecomputationMove& move) {
  move.clear();
  // Up to which of a hundred draws each move is made; where there are alternatives to choose from,
  // choosing is a fifth of them.
  struct Shares {
    std::uint64_t drop, keep, exchange, neighbour, sub_range;
  };
  constexpr Shares kKeeping = {28, 50, 66, 82, 92}, kChoosing = {26, 46, 60, 74, 80};
  const Shares& shares = choosing_.empty() ? kKeeping : kChoosing;
  const std::uint64_t draw = below(100);
  if (draw < shares.drop)
    drop(move);
  else if (draw < shares.keep)
    keep(move);
  else if (draw < shares.exchange)
    exchange(move);
  else if (draw < shares.neighbour)
    neighbour(move);
  else if (draw < shares.sub_range)
    sub_range(move);
  else
    alternative(move);
}

}  // namespace berth::schedule
