#include "csrc/trace/lifetime_ends.h"

#include <algorithm>
#include <tuple>

namespace berth {

std::vector<LifetimeEnd> sorted_ends(std::span<const Lifetime> rows) {
  std::vector<LifetimeEnd> ends;
  ends.reserve(2 * rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ends.push_back({rows[i].lower, true, i});
    ends.push_back({rows[i].upper, false, i});
  }
  std::sort(ends.begin(), ends.end(), [](const LifetimeEnd& a, const LifetimeEnd& b) {
    return std::tie(a.time, a.birth, a.row) < std::tie(b.time, b.birth, b.row);
  });
  return ends;
}

}  // namespace berth
