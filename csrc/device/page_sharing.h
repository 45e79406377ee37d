#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"

#include <cstddef>
#include <vector>

namespace berth {

// How those who hold pages of one device let each other have the ones that lie free. Both are
// called under the lock that covers all who share them.

// Whose free pages go for good: a pool.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Moves up to `count` free pages behind the addresses from `to` on, or, where the device cannot
  // do that, gives them back to it. Work on `lane` may use them: pages that other lanes used only
  // where `others`, and then it waits for them. Returns how many.
  [[nodiscard]] virtual std::size_t move_pages(void* to, std::size_t count, LaneKey lane,
                                               bool others) noexcept = 0;
  // Gives free memory back to the device. Returns bytes.
  virtual Bytes trim() noexcept = 0;
};

// Whose free bytes are lent, and come back: an arena. Addresses are bytes from 0.
class PageLender {
 public:
  virtual ~PageLender() = default;
  // Appends stretches of whole pages that have memory, that nobody uses now and that it does not
  // need soon, in address order; where `pressed` also those that it does. Throws std::bad_alloc.
  virtual void offer(bool pressed, std::vector<ByteRange>* free) = 0;
  // Lends free bytes for work on `lane`, which waits for earlier users; false, and nothing changed,
  // where it cannot. Nobody gets them before take_back().
  [[nodiscard]] virtual bool lend(LaneKey lane, ByteRange bytes) noexcept = 0;
  virtual void take_back(Bytes first) noexcept = 0;
};

}  // namespace berth
