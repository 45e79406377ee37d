#include "csrc/place/bounds/bounds.h"
#include "csrc/place/portfolio.h"
#include "csrc/place/problem/conflicts.h"
#include "csrc/place/problem/problem.h"

#include <berth/place.h>

namespace berth {

Placement place_buffers(const Problem& problem, const PlaceOptions& options) {
  place::check_options(problem, options);
  const place::Conflicts conflicts(problem);
  return place::Portfolio(conflicts, options).run();
}

Bytes lower_bound(const Problem& problem) { return place::max_load(place::Conflicts(problem)); }

const std::vector<std::string>& place_engines() {
  static const auto& kEngines = *new const std::vector<std::string>{
      "auto", "first_fit", "dive", "exact", "ilp", "ilp_pyramid"};
  return kEngines;
}

}  // namespace berth
