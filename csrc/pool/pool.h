#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/device.h"
#include "csrc/device/lane_events.h"
#include "csrc/device/page_sharing.h"
#include "csrc/device/stretch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace berth {

// How long a block stays, as far as can be told when it is asked for.
enum class Mobility : std::uint8_t {
  kMovable,    // freed within the next request or two: lowest fit from the low end
  kTemporary,  // outlives its neighbours: highest fit from the high end
  kResident,   // outlives steps: an area of its own
};

// A block that the pool handed out. The pool owns it; it is valid until its free. `requested` is
// set to the size asked for; it, `id`, `born` and `tag` are the caller's.
struct PoolBlock {
  void* pointer = nullptr;
  Bytes size =
      0;  // rounded up to the pool's alignment; in segments with a rest that nobody could use
  Bytes requested = 0;
  LaneKey lane = 0;
  Mobility mobility = Mobility::kTemporary;
  std::uint64_t id = 0;
  std::uint64_t born = 0;  // MobilityClassifier::now()
  std::uint32_t tag = 0;
};

struct PoolOptions {
  // Of blocks, and the unit that sizes are rounded up to; a power of two.
  Bytes alignment = 64;
  // Address range of the two ends, and of the residents' area, where the device maps pages. 0:
  // twice the device's memory, less where the system has no addresses for that.
  Bytes range_bytes = 0;
  // The range is committed, and given back by trim(), in multiples of this; rounded up to pages. By
  // single pages after grow_by_pages().
  Bytes growth_bytes = Bytes{2} << 20;
  // Residents' area grows in multiples of this, or of growth_bytes where less is left.
  Bytes resident_growth_bytes = Bytes{32} << 20;
  // Where the device maps no pages: the segment that blocks share which are smaller than half of it
  // and larger than half a growth. 0: as large as each of them.
  Bytes segment_bytes = 0;
  // The same once the pool holds twice as much: fewer segments have edges that no block fits. 0: as
  // before.
  Bytes large_segment_bytes = 0;
  // Whether a block leaves the rest of its hole to others. Else it takes the whole of it.
  bool splits = true;
  // Whether `more` may be asked for for the sake of a request of `asked` bytes, while pages of the
  // lender would serve it: else those that it needs later go first. Must not throw or call the
  // pool.
  std::function<bool(Bytes more, Bytes asked)> may_grow = {};
  // Hears of each block that waited, when its bytes become a hole. Must not throw or call the pool.
  std::function<void(const PoolBlock&)> completed = {};
  // Hears that bytes which are behind both addresses are in use at `to` from now on: those of a
  // stitched block while it is one (`lasts` is false), and pages that move away. Before that they
  // are in use where they were committed. Must not throw or call the pool.
  std::function<void(void* to, void* from, Bytes size, bool lasts)> moved = {};
};

struct PoolStats {
  Bytes live = 0;  // handed out, rounded
  Bytes live_peak = 0;
  Bytes reserved = 0;  // committed
  Bytes reserved_peak = 0;
  Bytes waiting = 0;                        // freed, and pinned or waiting for lanes
  Bytes largest_low = 0, largest_high = 0;  // largest hole at each end
  std::uint64_t blocks = 0;
  std::uint64_t holes = 0;
  std::uint64_t allocations[3] = {0, 0, 0};  // by Mobility
  std::uint64_t stitched = 0;                // blocks, and
  std::uint64_t stitches_made = 0;           // those for which the device was called
};

// The fallback behind the plan: one address range with a low and a high end, and an area for
// residents. Sizes are bytes.
//
// Movable blocks take the lowest hole that fits from the low end, temporary ones the highest from
// the high end, residents the smallest of their area; the gap between the ends closes last. A block
// enters another end's holes only where the pool would have to grow otherwise, and grows the end
// that needs fewer new pages. Committed pages stay committed until trim(), so that the steady state
// takes no page faults. On a device that maps no pages each growth is a segment of its own. Blocks
// take the smallest hole there; small ones, up to 1 MiB, and others have segments of their own
// whatever their mobility, and enter another end's only where memory is out. A hole stays its
// lane's there, and a large block takes a rest of up to 1 MiB: all as PyTorch's caching allocator
// does.
//
// Where a page may be behind several addresses (DeviceProperties::aliases), the pool grows only by
// what is missing in all holes that the lane may take: the block is *stitched* of whole pages of
// several holes, at addresses where they follow each other (stitches.h). Freed, its pieces are
// holes again. Where memory is scarce it also begins and ends within pages that others use.
//
// On an asynchronous device a hole belongs to the lane of the block that was freed; pages that no
// lane has used since they were committed or the device was synchronised belong to nobody. A lane
// takes its own holes and nobody's; before an allocation fails, another lane's, after an event
// recorded on that lane, unless one of the two is being captured. Neighbouring holes coalesce where
// one lane may take both. On a synchronous device all holes are nobody's.
//
// Owns its ranges and blocks; the device and the events outlive it. Not thread-safe: the runtime's
// lock covers it, which a device that maps no pages may let go of in reserve() and release(). May
// be called while a lane is captured, trim() apart. allocate and free are O(log holes) and call
// neither malloc nor the device in the steady state; find is O(1).
class Pool : public PageSource {
 public:
  // Throws Error(kSystem) where no range can be reserved.
  Pool(Device& device, LaneEvents& events, const PoolOptions& options);
  ~Pool() override;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Hands out a block, or null where the device or the limit refuses more memory, the size is 0 or
  // beyond every range, or the host's memory is exhausted (nothing changed then). Polls the events
  // of waiting blocks before it grows.
  [[nodiscard]] PoolBlock* allocate(Bytes size, LaneKey lane, Mobility mobility) noexcept {
    return allocate(size, lane, mobility, Growth::kFree);
  }
  // kDense: a block takes the hole that leaves least in parts of pages, and one made of pieces
  // takes parts before whole pages. kTight: the same, and where every hole would leave much, parts
  // go before holes. kLeast: more than should be held: whatever lies free, of any lane and of the
  // lender, goes into the block before the pool grows, and it grows by what that lacks.
  enum class Growth : std::uint8_t { kFree, kDense, kTight, kLeast };
  [[nodiscard]] PoolBlock* allocate(Bytes size, LaneKey lane, Mobility mobility,
                                    Growth growth) noexcept;

  // The live block that starts at `pointer`, or null. O(1).
  [[nodiscard]] PoolBlock* find(const void* pointer) noexcept;

  // Whether the address lies in the pool's ranges, live or not.
  [[nodiscard]] bool contains(const void* pointer) const noexcept;

  // The block is used on `lane` too. Own-lane uses are ignored. Throws std::bad_alloc, and then
  // does not know of the use. O(lanes of the block).
  void record_use(PoolBlock* block, LaneKey lane);

  // Takes a block back: at once, or, where waits() says so, once the lanes that used it, and the
  // one it is freed on where that is another, are done with what they have queued. Needs no host
  // memory.
  void free(PoolBlock* block, std::optional<LaneKey> freeing = std::nullopt) noexcept;
  [[nodiscard]] bool waits(const PoolBlock* block,
                           std::optional<LaneKey> freeing = std::nullopt) const noexcept;

  // A captured graph uses the live block: its bytes are nobody's until unpin() was called as often,
  // whenever it is freed. Throws std::bad_alloc. unpin() is false where no block is pinned there.
  void pin(PoolBlock* block);
  bool unpin(const void* pointer) noexcept;

  // Hands out exactly these bytes, whichever lanes' holes they lie in; null where a block or no
  // page is in the way. The caller vouches that earlier work on them is over or ordered before.
  // Both are multiples of the alignment. O(chunks).
  [[nodiscard]] PoolBlock* allocate_at(void* pointer, Bytes size, LaneKey lane) noexcept;

  // Blocks that all lanes are done with become holes, as far as their events tell. Returns how many
  // bytes came free.
  //
  // What no event can cover (see WaitingChunks) comes free with any synchronisation of the device.
  // Where more than kMostUnproven of it waits, and more than a kUnprovenPart-th of what is
  // committed, this call and the next allocation synchronise for it; after a refusal not before
  // twice as much waits. Never while a graph is captured. An allocation for which the pool would
  // grow does the same where as much lies in holes of lanes that have no events.
  Bytes process_events() noexcept;
  // The same without a wait of the host: the lanes that blocks belong to wait, on the device, for
  // the one that holds up most bytes. Never while a graph is captured.
  Bytes order_waiting() noexcept;
  static constexpr Bytes kMostUnproven = Bytes{64} << 20;
  static constexpr Bytes kUnprovenPart = 16;

  // Gives whole free pages back to the device, in multiples of growth_bytes. Waits for all work of
  // an asynchronous device before. Returns bytes given back; pages whose return failed stay
  // committed.
  Bytes trim() noexcept override;
  // Memory is out: from now on single pages come and go, where the device maps pages. Whether they
  // did not before.
  bool grow_by_pages() noexcept;

  // Whether a block of so many bytes has no room in a hole of either end that the lane may take as
  // it is, while memory is not scarce: the pool would grow, or make it of pieces. O(1).
  [[nodiscard]] bool lacks(Bytes size, LaneKey lane) noexcept;

  // Where the device maps no pages, the bytes of segments without a block: trim() gives them back.
  // 0 elsewhere. O(segments).
  [[nodiscard]] Bytes idle() const noexcept;
  // Lanes that it knows; of many those that have memory.
  [[nodiscard]] std::size_t lanes() const noexcept;

  // Stitched blocks count as bytes of their homes (true) until they count where they live again:
  // see PoolOptions::moved. For who takes memory away from below the pool for a while.
  void count_at_home(bool home) noexcept;

  // See PageSource. O(holes of a page).
  [[nodiscard]] std::size_t move_pages(void* to, std::size_t count, std::size_t room, LaneKey lane,
                                       bool others) noexcept override;
  [[nodiscard]] bool may_grow(Bytes more, Bytes asked) noexcept override;
  [[nodiscard]] bool let_go_of(ByteRange pages) noexcept override;
  // Whose bytes blocks may be stitched of, too; outlives the pool's last call.
  void borrow_from(PageLender* lender) noexcept;

  // Bytes of the pages that live blocks lie on whose id is `last` at most; of stitched blocks their
  // own. O(chunks).
  [[nodiscard]] Bytes pages_of_blocks(std::uint64_t last) const noexcept;
  // Bytes of holes on pages that others use as well. O(holes).
  [[nodiscard]] Bytes parts() const noexcept;
  [[nodiscard]] std::uint64_t blocks() const noexcept;  // live. O(1)

  // What is committed. O(1).
  [[nodiscard]] Bytes reserved() const noexcept;
  // O(lanes that the pool has served).
  [[nodiscard]] PoolStats stats() const noexcept;
  // Calls `visit(block)` for each live block, in no order.
  void for_each_block(const std::function<void(const PoolBlock&)>& visit) const;
  // Calls `visit(stretch)` for each stretch of committed memory, in no order. Throws
  // std::bad_alloc.
  void for_each_stretch(const std::function<void(const Stretch&)>& visit) const;

  // Walks everything; the first broken invariant in one line, empty where all is well. For tests.
  [[nodiscard]] std::string is_valid() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace berth
