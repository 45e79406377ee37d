#pragma once

#include <algorithm>
#include <cstdlib>

namespace berth::test {

// Whether loops leave nothing out: TEST_THOROUGH is set, as `tests/run --all` does.
inline bool is_thorough() { return std::getenv("TEST_THOROUGH") != nullptr; }

// How far a loop over the n-th call that fails goes on: one by one at first, then the more the
// later.
template <typename Number>
Number stride(Number n) {
  return is_thorough() ? Number{1} : std::max<Number>(1, n / 40);
}

}  // namespace berth::test
