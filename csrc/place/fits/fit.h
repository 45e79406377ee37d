#pragma once

namespace berth::place {

// A hole to put a buffer in: the lowest that fits, or the tightest.
enum class Fit { kFirst, kBest };

}  // namespace berth::place
