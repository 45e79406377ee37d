#pragma once

#include <cstdint>

namespace berth {

// A size, an offset or an alignment, in bytes.
using Bytes = std::uint64_t;

// The largest size that berth accepts anywhere. Sums of two legal sizes never wrap.
inline constexpr Bytes kMaxBytes = Bytes{1} << 62;

}  // namespace berth
