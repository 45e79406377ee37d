#pragma once

namespace berth::packing {

// A hole to put a buffer in: the lowest that fits, or the tightest.
enum class Fit { kFirst, kBest };

}  // namespace berth::packing
