#pragma once

#include "csrc/place/fits/first_fit.h"
#include "csrc/place/problem/conflicts.h"
#include "csrc/place/problem/packing.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

// The door to the engines of an integer program, which are a library of their own (csrc/place/
// oracle): who links that calls use_ilp(), and nobody else carries the solver.
namespace berth::place {

// Placement as OLLA states it (Steiner et al. 2022, equations 6 to 8 and 15).
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
// no rounding of the solver's makes a placement illegal. Its bound is taken where numbers are so
// small (2^20 units) that its tolerances cannot reach one unit.
struct IlpEngine {
  // More pairs of buffers alive together are refused.
  static constexpr std::size_t kMaxPairs = 1'000'000;

  // Why it cannot be asked here: what is missing and how to get it. Nothing where it can.
  const std::optional<std::string>& (*unavailable)();
  // Throws Error(kUsage) where it is unavailable, where more than kMaxPairs pairs conflict, and for
  // sizes beyond 2^49 units. Finding the pairs is O(n^2).
  IlpResult (*solve)(const Conflicts& conflicts, FirstFit& first_fit, const IlpSettings& settings,
                     const IlpEvents& events);
};

// From now on the integer program's engines are this, which stays for ever. Any thread, any number
// of times.
void set_ilp_engine(const IlpEngine& engine) noexcept;

// The one that was set, else one whose unavailable() says how to get it.
[[nodiscard]] const IlpEngine& ilp_engine() noexcept;

}  // namespace berth::place
