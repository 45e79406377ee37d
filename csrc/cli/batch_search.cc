#include "csrc/cli/batch_search.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace berth::cli {
namespace {

using Known = BatchSearch::Known;

// The limit lies between them: the largest that fits, the next that does not; 0: none.
struct Ends {
  std::uint64_t fits = 0, too_large = 0;
};

Ends ends_of(const Known& known, Bytes limit) {
  Ends ends;
  for (const auto& [batch, need] : known) {
    if (need && *need <= limit)
      ends = {batch, 0};  // a smaller one may not, where allocators round
    else if (ends.too_large == 0)
      ends.too_large = batch;
  }
  return ends;
}

// Where the line through two measures meets the limit: those on both sides of it, or the two that
// are nearest on one.
std::optional<double> crossing(const Known& known, Bytes limit, const Ends& ends) {
  std::vector<std::pair<double, double>> points;
  const auto add = [&](const auto& place) {
    if (place.second)
      points.emplace_back(static_cast<double>(place.first), static_cast<double>(*place.second));
  };
  if (ends.fits != 0) add(*known.find(ends.fits));
  if (ends.too_large != 0) add(*known.find(ends.too_large));
  // Below what fits from above, above what does not from below.
  const auto below = known.lower_bound(ends.fits);
  for (auto place = below; place != known.begin() && points.size() < 2;) add(*--place);
  for (auto place = known.upper_bound(ends.too_large);
       ends.too_large != 0 && place != known.end() && points.size() < 2; ++place)
    add(*place);
  if (points.size() < 2) return std::nullopt;
  const double slope = (points[1].second - points[0].second) / (points[1].first - points[0].first);
  if (slope <= 0) return std::nullopt;
  return points[0].first + (static_cast<double>(limit) - points[0].second) / slope;
}

std::uint64_t within(double batch, std::uint64_t least, std::uint64_t most) {
  const double at = std::clamp(batch, static_cast<double>(least), static_cast<double>(most));
  return std::clamp(static_cast<std::uint64_t>(at), least, most);
}

// `reach`: how far a try may be from an end that the line says is near. Requires: there is a batch
// between the ends.
std::uint64_t next_try(const Known& known, Bytes limit, const Ends& ends, bool last_fits,
                       std::uint64_t reach) {
  const std::uint64_t least = ends.fits + 1;
  // Never more than eight times what was seen: a line through two small ones is a guess.
  const std::uint64_t most =
      ends.too_large != 0
          ? ends.too_large - 1
          : std::min(BatchSearch::kMostBatch, std::max<std::uint64_t>(ends.fits, 1) * 8);
  const auto guess = crossing(known, limit, ends);
  if (!guess)
    return ends.too_large == 0 ? std::min(most, least * 2 - 1) : least + (most - least) / 2;
  const std::uint64_t at = within(*guess, least, most);
  if (ends.fits != 0 && ends.too_large != 0 && most - least < 2 * reach)
    return least + (most - least) / 2;
  if (last_fits) return std::clamp(std::max(at, ends.fits + reach), least, most);
  return std::clamp(std::min(at, ends.too_large - std::min(reach, ends.too_large)), least, most);
}

}  // namespace

BatchSearch::Answer BatchSearch::find(std::uint64_t first, Bytes limit, Until until, Known& known,
                                      unsigned& tries, const Measure& measure) {
  Ends ends = ends_of(known, limit);
  const auto close = [&] {
    if (ends.too_large == 0) return ends.fits >= kMostBatch;
    const std::uint64_t apart = ends.too_large - ends.fits;
    return apart <= 1 || (until == Until::kHundredth && apart <= ends.fits / 100);
  };
  std::uint64_t next = std::max<std::uint64_t>(first, 1), reach = 1;
  if (!close() && known.contains(next))
    next = next_try(known, limit, ends, ends.too_large == 0, reach);
  while (!close() && tries > 0) {
    --tries;
    const std::optional<Bytes> need = known[next] = measure(next);
    ends = ends_of(known, limit);
    if (close()) break;
    next = next_try(known, limit, ends, need && *need <= limit, reach);
    if (known.size() > 2) reach *= 2;
  }
  Answer answer;
  answer.largest = ends.fits;
  answer.exact = ends.too_large != 0 && ends.fits + 1 >= ends.too_large;
  if (ends.too_large != 0)
    (known.at(ends.too_large) ? answer.smallest_too_large : answer.refused) = ends.too_large;
  return answer;
}

}  // namespace berth::cli
