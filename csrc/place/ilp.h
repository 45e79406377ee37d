#pragma once

#include "csrc/place/conflicts.h"
#include "csrc/place/first_fit.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace berth::packing {

// The engines of an integer program: placement as OLLA states it (Steiner et al. 2022, equations 6
// to 8 and 15), solved by HiGHS.
//
//   A_i + s_i <= A_j + M (1 - x_ij)      x_ij = 1: i lies below j, for each pair that conflicts
//   A_j + s_j <= A_i + M x_ij
//   A_i + s_i <= P                       minimise P
enum class IlpForm {
  // M and P's limit are the best mark known, P's other limit the bound; identical buffers stand in
  // one order. Starts from the best known placement, the pyramid's among them. Exact.
  kTight,
  // As published: M is the sum of all sizes, nothing is known at the start, and the pyramid's
  // addresses are fixed, which can cut off the optimum. So it proves nothing.
  kPyramid,
};

struct IlpSettings {
  IlpForm form = IlpForm::kTight;
  std::uint64_t seed = 0;
  std::uint64_t nodes = 0;   // of the search tree, 0: no limit
  double seconds = 0;        // that are left
  Bytes bound = 0;           // known: no placement is lower
  const Packing* best = {};  // known; kTight only
};

struct IlpEvents {
  std::function<void(Packing)> found;     // a legal placement, perhaps better than the last
  std::function<bool(Bytes bound)> stop;  // asked often: no placement is lower than `bound`; stop?
};

struct IlpResult {
  Bytes bound = 0;          // no placement is lower; 0: nothing is proven
  std::uint64_t nodes = 0;  // visited
};

// Sizes, offsets and alignments are in units of what divides them all. What the solver finds is its
// order of buffers only: they are placed anew by first fit in it, which puts none higher, so that
// no rounding of the solver's makes a placement illegal. Its bound is taken where numbers
// are so small (2^20 units) that its tolerances cannot reach one unit.
//
// Throws Error(kUsage) where HiGHS is missing, where more than kMaxPairs pairs conflict, and for
// sizes beyond 2^49 units. Finding the pairs is O(n^2).
[[nodiscard]] IlpResult solve_ilp(const Conflicts& conflicts, FirstFit& first_fit,
                                  const IlpSettings& settings, const IlpEvents& events);

inline constexpr std::size_t kMaxPairs = 1'000'000;

// The longest lifetime, on it the longest that lies within it, and so on: none can share bytes, and
// they are what is alive longest. In the order from offset 0 up; pinned buffers are left out, and
// but for one lane without branches it is empty.
[[nodiscard]] std::vector<Index> pyramid(const Conflicts& conflicts);

// The order of first fit that builds on it: the pyramid, then the others by size.
[[nodiscard]] std::vector<Index> pyramid_order(const Conflicts& conflicts,
                                               const FirstFit& first_fit);

}  // namespace berth::packing
