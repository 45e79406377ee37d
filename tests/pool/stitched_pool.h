// A pool on a simulated device, whose blocks are made of pages at several addresses.
#pragma once

#include "csrc/device/page_store.h"
#include "csrc/pool/pool.h"
#include "tests/catch.h"
#include "tests/support/lone_pool.h"
#include "tests/support/simulated_device.h"

#include <vector>

namespace berth::test {

inline constexpr Bytes kPage = Bytes{64} << 10;

struct StitchedPool {
  explicit StitchedPool(Bytes memory = 256 * kPage, Bytes limit = 0, bool handles = false)
      : device({.total_bytes = memory, .page_bytes = kPage, .handles = handles}) {
    store.set_limit(limit);
  }
  SimulatedDevice device;
  PageStore store{device};
  LonePool pool{store, {.growth_bytes = kPage}};

  PoolBlock* allocate(Bytes size, LaneKey lane = 1) {
    PoolBlock* const block = pool.allocate(size, lane, Mobility::kTemporary);
    if (block != nullptr) device.hand_out(lane, block->pointer, block->size);
    CHECK(pool.is_valid() == "");
    return block;
  }
  void free(PoolBlock* block) {
    device.touch(block->lane, block->pointer, block->size);
    pool.free(block);
    CHECK(pool.is_valid() == "");
  }
  // Every second one of so many blocks of a size, which stay; between them are holes.
  std::vector<PoolBlock*> leave_holes(int count, Bytes size, LaneKey lane = 1) {
    std::vector<PoolBlock*> blocks, kept;
    for (int i = 0; i < count; ++i) blocks.push_back(allocate(size, lane));
    for (int i = 0; i < count; ++i) {
      if (i % 2 == 0)
        kept.push_back(blocks[static_cast<std::size_t>(i)]);
      else
        free(blocks[static_cast<std::size_t>(i)]);
    }
    return kept;
  }
  void run(LaneKey lane) {
    DeviceEvent event = 0;
    REQUIRE(device.record(lane, &event).ok());
    REQUIRE(device.synchronize(event).ok());
    device.destroy(event);
  }
};

}  // namespace berth::test
