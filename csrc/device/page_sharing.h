#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth {

// How those who hold pages of one device let each other have the ones that lie free. Both are
// called under the lock that covers all who share them.

// Whose free pages go for good: a pool.
class PageSource {
 public:
  virtual ~PageSource() = default;
  // Moves free pages behind the addresses from `to` on, or, where the device cannot do that, gives
  // them back to it: up to `count`, or as many more as whole handles take, `room` at most. Work on
  // `lane` may use them: pages that other lanes used only where `others`, and then it waits for
  // them. Returns how many.
  [[nodiscard]] virtual std::size_t move_pages(void* to, std::size_t count, std::size_t room,
                                               LaneKey lane, bool others) noexcept = 0;
  // Gives free memory back to the device. Returns bytes.
  virtual Bytes trim() noexcept = 0;
  // Whether the device may be asked for `more` for the sake of a request of `asked` bytes: else the
  // source would rather serve that from what it has.
  [[nodiscard]] virtual bool may_grow(Bytes more, Bytes asked) noexcept = 0;
  // Pages that lie at these addresses of somebody else's go back to the device, which is done with
  // all work: whatever addresses of the source they are still behind are unmapped, or the memory
  // would stay. False where the device refuses.
  [[nodiscard]] virtual bool let_go_of(ByteRange pages) noexcept = 0;
};

// Whose free bytes are lent, and come back: an arena. Addresses are bytes from 0.
class PageLender {
 public:
  virtual ~PageLender() = default;
  // Which bytes it can spare, by when it may need them; each has those before it, too.
  enum class Spare : std::uint8_t {
    kThisStep,  // that nothing needs before the step is over; in a step as planned: nothing at all
    kLong,      // in the next quarter of the step
    kSoon,      // with the next requests; in a step more or less as planned: as kLong
    kNow,       // now; in a step more or less as planned: as kLong
    kAny,       // now, whatever is planned
  };
  // Appends stretches of bytes that have memory and that nobody uses now, in address order. Where
  // one begins or ends within a page, somebody uses the rest of it. Throws std::bad_alloc.
  virtual void offer(Spare spare, std::vector<ByteRange>* free) = 0;
  // Lends free bytes for work on `lane`, which waits for earlier users; false, and nothing changed,
  // where it cannot. Nobody gets them before take_back().
  [[nodiscard]] virtual bool lend(LaneKey lane, ByteRange bytes) noexcept = 0;
  virtual void take_back(Bytes first) noexcept = 0;
};

}  // namespace berth
