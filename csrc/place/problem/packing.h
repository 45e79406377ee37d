#pragma once

#include <berth/bytes.h>

#include <vector>

namespace berth::place {

// Offsets, one a buffer, and where they end.
struct Packing {
  std::vector<Bytes> offsets;
  Bytes high_water_mark = 0;
};

}  // namespace berth::place
