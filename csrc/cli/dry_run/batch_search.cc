#include "csrc/cli/dry_run/batch_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace berth::cli {
namespace {

// A line through two small batches is a guess: never more than so many times what was seen.
constexpr std::uint64_t kMostGrowth = 64;
// Where the need is the same over so large a part of the batches it does not depend on them.
constexpr std::uint64_t kFlatOver = 256;
// Two tries are near each other within this part of them.
constexpr std::uint64_t kNear = 64;
// What programs want multiples of, as a rule at least: cores, GPUs, micro-batches.
constexpr std::uint64_t kLeastMultiple = 8;

struct Point {
  double batch = 0, need = 0;
};

// Where the line through both is at `limit`; nothing where it does not rise.
std::optional<double> where(const Point& a, const Point& b, double limit) {
  const double slope = (b.need - a.need) / (b.batch - a.batch);
  if (!(slope > 0)) return std::nullopt;
  return a.batch + (limit - a.need) / slope;
}

}  // namespace

BatchSearch::BatchSearch(const Options& options, Measure measure)
    : options_(options), measure_(std::move(measure)) {
  options_.first = std::clamp<std::uint64_t>(options_.first, 1, kMostBatch);
  multiple_ = std::uint64_t{1} << std::countr_zero(options_.first);
  if (!options_.first_needs) return;
  courses_.resize(options_.first_needs->size());
  known_[options_.first] = options_.first_needs;
  for (std::size_t i = 0; i < courses_.size(); ++i) judge(i, options_.first, false);
}

bool BatchSearch::ran() const noexcept {
  return std::ranges::any_of(known_, [](const auto& one) { return one.second.has_value(); });
}

BatchSearch::Ends BatchSearch::ends_of(std::size_t allocator) const {
  Ends ends;
  for (const auto& [batch, needs] : known_) {
    if (needs && *(*needs)[allocator] <= options_.limit)
      ends = {batch, 0};  // a smaller one may not, where allocators round
    else if (ends.too_large == 0)
      ends.too_large = batch;
  }
  return ends;
}

// Within `share` of what fits; 0: exactly.
bool BatchSearch::is_close(std::size_t allocator, std::uint64_t share) const {
  const Ends ends = ends_of(allocator);
  if (ends.too_large == 0) return ends.fits > kMostBatch - step_;
  const std::uint64_t apart = ends.too_large - ends.fits;
  if (try_multiple(ends)) return false;
  return apart <= step_ || (share != 0 && apart <= ends.fits / share);
}

bool BatchSearch::is_flat(std::size_t allocator) const {
  std::optional<std::uint64_t> least, most;
  std::optional<Bytes> need;
  for (const auto& [batch, needs] : known_) {
    if (!needs) return false;
    const Bytes here = *(*needs)[allocator];
    if (need.value_or(here) != here) return false;
    need = here;
    least = std::min(least.value_or(batch), batch);
    most = std::max(most.value_or(batch), batch);
  }
  return least && *most / *least >= kFlatOver;
}

double BatchSearch::openness(std::size_t allocator) const {
  const Ends ends = ends_of(allocator);
  if (ends.fits == 0 || ends.too_large == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(ends.too_large - ends.fits) / static_cast<double>(ends.fits);
}

// Where the line meets the limit.
std::optional<double> BatchSearch::crossing(std::size_t allocator, const Ends& ends) const {
  const auto limit = static_cast<double>(options_.limit);
  std::vector<Point> below, above;  // nearest first
  for (const auto& [batch, needs] : known_) {
    if (!needs) continue;
    const Point point{static_cast<double>(batch), static_cast<double>(*(*needs)[allocator])};
    if (batch <= ends.fits)
      below.insert(below.begin(), point);
    else
      above.push_back(point);
  }
  if (!below.empty() && !above.empty()) return where(below.front(), above.front(), limit);
  const std::vector<Point>& side = below.empty() ? above : below;
  if (side.empty()) return std::nullopt;
  // Pages and segments would tilt a line through two that are close together.
  for (std::size_t i = 1; i < side.size(); ++i) {
    const double nearer = std::min(side[0].batch, side[i].batch);
    const double farther = std::max(side[0].batch, side[i].batch);
    if (farther - nearer >= farther / 4 || i + 1 == side.size())
      return where(side[0], side[i], limit);
  }
  const auto fixed = static_cast<double>(options_.fixed);
  return where({0, std::min(fixed, side[0].need)}, side[0], limit);
}

std::uint64_t BatchSearch::next_try(std::size_t allocator) const {
  const Ends ends = ends_of(allocator);
  const Course& course = courses_[allocator];
  if (const auto multiple = try_multiple(ends)) return *multiple;
  // In units of a step from here on.
  const std::uint64_t fits = ends.fits / step_;
  const std::uint64_t least = fits + 1;
  const std::uint64_t most =
      ends.too_large != 0
          ? (ends.too_large - 1) / step_
          : std::min(kMostBatch / step_, std::max<std::uint64_t>(fits, 1) * kMostGrowth);
  const auto guess = crossing(allocator, ends);
  const bool beyond = guess && ends.too_large != 0 && *guess >= static_cast<double>(ends.too_large);
  std::uint64_t next;
  if (!guess || beyond) {  // beyond: what was refused
    next = ends.too_large == 0 ? std::min(most, least * 8) : least + (most - least) / 2;
  } else if (ends.fits != 0 && ends.too_large != 0 && course.reach > 1 &&
             most - least < 2 * course.reach) {
    next = least + (most - least) / 2;
  } else {
    const double at = std::clamp(*guess / static_cast<double>(step_), static_cast<double>(least),
                                 static_cast<double>(most));
    next = static_cast<std::uint64_t>(at);
    if (course.last_fitted)
      next = std::max(next, fits + course.reach);
    else if (ends.too_large != 0)
      next = std::min(next, most + 1 - std::min(course.reach, most));
    next = std::clamp(next, least, most);
  }
  return next * step_;
}

// What the last run says of one allocator, for which it was made or not.
void BatchSearch::judge(std::size_t allocator, std::uint64_t batch, bool own) {
  Course& course = courses_[allocator];
  const auto& needs = known_.at(batch);
  if (needs && !(*needs)[allocator]) course.known = false;
  if (!course.known) return;
  const Ends ends = ends_of(allocator);
  if (batch != ends.fits && batch != ends.too_large) return;
  const bool fitted = batch == ends.fits;
  const std::uint64_t way = std::max(batch, course.last) - std::min(batch, course.last);
  const bool again =
      own && fitted == course.last_fitted && way <= std::max(course.reach, batch / kNear);
  course.reach = again ? course.reach * 2 : 1;
  course.last_fitted = fitted;
  course.last = batch;
}

std::vector<std::uint64_t> BatchSearch::multiples(const Ends& ends) const {
  if (multiple_ <= step_ || ends.too_large == 0 || known_.at(ends.too_large)) return {};
  const std::uint64_t fine =
      std::max({kLeastMultiple, 2 * step_, std::bit_floor(ends.too_large / 128)});
  if (fine >= multiple_) return {multiple_};
  return {fine, multiple_};
}

std::optional<std::uint64_t> BatchSearch::try_multiple(const Ends& ends) const {
  const auto all = multiples(ends);
  for (const std::uint64_t multiple : all) {
    const std::uint64_t below = ends.too_large / multiple * multiple;
    if (below > ends.fits && below != ends.too_large) return below;
  }
  for (const std::uint64_t multiple : all) {
    if (ends.fits % multiple != 0 || ends.too_large - ends.fits > multiple) continue;
    if (ends.too_large > ends.fits + step_) return ends.fits + step_;
    if (!known_.contains(ends.fits + multiple)) return ends.fits + multiple;
  }
  return std::nullopt;
}

// After each run: a batch that ran above those that were refused.
void BatchSearch::look_for_multiples() {
  std::uint64_t largest = 0;
  for (const auto& [batch, needs] : known_) {
    if (!needs) continue;
    if (batch % std::min(multiple_, kLeastMultiple) != 0) multiple_ = 1;
    largest = batch;
  }
  std::uint64_t step = 1;  // twice the most that divides one of them
  for (const auto& [refused, needs] : known_)
    if (!needs && refused < largest)
      step = std::max(step, std::uint64_t{2} << std::countr_zero(refused));
  if (step == 1 || step > multiple_ || largest % step != 0) return;
  step_ = std::max(step, std::min(multiple_, kLeastMultiple));
  std::erase_if(known_, [&](const auto& one) { return one.first % step_ != 0; });
}

void BatchSearch::run(std::uint64_t batch, std::size_t allocator) {
  ++runs_;
  std::optional<Needs> needs = measure_(batch);
  if (courses_.empty() && needs) courses_.resize(needs->size());
  const bool ran = needs.has_value();
  known_[batch] = std::move(needs);
  if (!ran && !first_refused_) first_refused_ = batch;
  look_for_multiples();
  if (!known_.contains(batch)) return;
  for (std::size_t i = 0; i < courses_.size(); ++i) judge(i, batch, i == allocator);
}

std::vector<std::optional<BatchSearch::Answer>> BatchSearch::find() {
  if (known_.empty()) run(options_.first, 0);
  const auto search = [&](std::uint64_t share, unsigned most_runs) {
    const auto is_open = [&](std::size_t i) {
      return courses_[i].known && !is_close(i, share) && !is_flat(i);
    };
    // One allocator after the other takes the fewest runs. The last ones go where least is known.
    const std::size_t last = std::min<std::size_t>(most_runs, 2 * courses_.size());
    for (std::size_t i = 0; i < courses_.size(); ++i)
      while (is_open(i) && runs_ + last < most_runs) run(next_try(i), i);
    while (runs_ < most_runs) {
      std::optional<std::size_t> next;
      for (std::size_t i = 0; i < courses_.size(); ++i)
        if (is_open(i) && (!next || openness(i) > openness(*next))) next = i;
      if (!next) break;
      run(next_try(*next), *next);
    }
  };
  search(100, options_.most_runs);
  search(0, std::min(options_.few_runs, options_.most_runs));
  std::vector<std::optional<Answer>> answers;
  for (std::size_t i = 0; i < courses_.size(); ++i) {
    if (!courses_[i].known) {
      answers.emplace_back();
      continue;
    }
    const Ends ends = ends_of(i);
    Answer answer;
    answer.largest = ends.fits;
    answer.step = step_;
    answer.exact = ends.too_large != 0 && is_close(i, 0);
    answer.flat = ends.too_large == 0 && is_flat(i);
    if (ends.too_large != 0)
      (known_.at(ends.too_large) ? answer.smallest_too_large : answer.refused) = ends.too_large;
    answers.emplace_back(answer);
  }
  return answers;
}

}  // namespace berth::cli
