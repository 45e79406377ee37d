#pragma once

#include "csrc/standin/stream.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace berth::standin {

// Memory of cudaMallocAsync. A freed block is kept, by size, and serves its own stream at once and
// others when the free has run. What is kept beyond the release threshold goes back at a later
// free.
struct Pool {
  struct KeptBlock {
    std::uintptr_t begin = 0;
    std::size_t size = 0;
    std::uint64_t stream = 0;  // that freed it
    bool free_has_run = false;
    VectorClock clock;  // what the free comes after
  };

  int device = 0;
  std::size_t release_threshold = 0;
  std::size_t reserved = 0, reserved_high = 0;
  std::size_t used = 0, used_high = 0;
  std::uint64_t reuse_flags[3] = {1, 1, 1};
  std::multimap<std::size_t, std::shared_ptr<KeptBlock>> kept;
};

}  // namespace berth::standin
