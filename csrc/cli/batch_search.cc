#include "csrc/cli/batch_search.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace berth::cli {
namespace {

using Known = std::map<std::uint64_t, std::optional<Bytes>>;

// Where the line through the two measures nearest to the limit meets it.
std::optional<double> crossing(const Known& known, Bytes limit, std::uint64_t fits,
                               std::uint64_t too_large) {
  std::vector<std::pair<double, double>> points;
  const auto add = [&](auto place) {
    if (place->second)
      points.emplace_back(static_cast<double>(place->first), static_cast<double>(*place->second));
  };
  // The two on both sides, or the two largest that fit, or the two smallest that do not.
  if (fits != 0) add(known.find(fits));
  if (too_large != 0 && known.contains(too_large)) add(known.find(too_large));
  for (auto place = known.begin(); place != known.end() && points.size() < 2; ++place)
    if (place->first != fits && place->first != too_large) add(place);
  if (points.size() < 2 || points[0].second == points[1].second) return std::nullopt;
  const double slope = (points[1].second - points[0].second) / (points[1].first - points[0].first);
  if (slope <= 0) return std::nullopt;
  return points[0].first + (static_cast<double>(limit) - points[0].second) / slope;
}

}  // namespace

BatchSearch::Answer BatchSearch::find(std::uint64_t first, Bytes limit, Known& known,
                                      unsigned& tries, const Measure& measure) {
  std::uint64_t fits = 0, too_large = 0;  // the largest that does, the next that does not; 0: none
  const auto place = [&] {
    fits = too_large = 0;
    for (const auto& [batch, need] : known) {
      if (need && *need <= limit) {
        fits = batch;
        too_large = 0;  // a smaller one may not, where allocators round
      } else if (too_large == 0) {
        too_large = batch;
      }
    }
  };
  place();
  std::uint64_t next = std::max<std::uint64_t>(first, 1);
  unsigned between = 0;  // tries with both ends known
  while (true) {
    if (!known.contains(next)) {
      if (tries == 0) break;
      --tries;
      known[next] = measure(next);
      place();
    }
    if (too_large != 0 && fits + 1 >= too_large) break;
    if (fits >= kMostBatch) break;
    const auto guess = crossing(known, limit, fits, too_large);
    const std::uint64_t least = fits + 1;
    // Never more than eight times what was seen: a line through two small ones is a guess.
    const std::uint64_t most = too_large != 0 ? too_large - 1 : fits * 8;
    // Halves now and then, where the need is no straight line.
    if (guess && (too_large == 0 || ++between % 3 != 0)) {
      // The line's own batch first; once that fits, the next one, which should not.
      const auto at = static_cast<std::uint64_t>(
          std::clamp(*guess, static_cast<double>(least), static_cast<double>(most)));
      next = std::clamp(at, least, most);
    } else if (too_large == 0) {
      next = fits * 2;
    } else {
      next = least + (most - least) / 2;
    }
  }
  Answer answer;
  answer.largest = fits;
  answer.exact = too_large != 0 && fits + 1 >= too_large;
  if (too_large != 0)
    (known.at(too_large) ? answer.smallest_too_large : answer.refused) = too_large;
  return answer;
}

}  // namespace berth::cli
