#include "csrc/place/bounds.h"
#include "csrc/place/conflicts.h"
#include "csrc/place/portfolio.h"
#include "csrc/place/problem.h"

#include <berth/place.h>

namespace berth {

Placement place(const Problem& problem, const PlaceOptions& options) {
  packing::check_options(problem, options);
  const packing::Conflicts conflicts(problem);
  return packing::Portfolio(conflicts, options).run();
}

Bytes lower_bound(const Problem& problem) { return packing::max_load(packing::Conflicts(problem)); }

const std::vector<std::string>& place_engines() {
  static const std::vector<std::string> kEngines = {"auto",  "first_fit", "dive",
                                                    "exact", "ilp",       "ilp_pyramid"};
  return kEngines;
}

}  // namespace berth
