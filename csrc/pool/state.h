#pragma once

#include "csrc/pool/block_table.h"
#include "csrc/pool/chunk.h"
#include "csrc/pool/hole_tree.h"
#include "csrc/pool/pool.h"
#include "csrc/pool/segment.h"
#include "csrc/pool/stitches.h"
#include "csrc/pool/waiting.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace berth {

// What a Pool is made of. Addresses are bytes from 0; `nobody` owns the holes that every lane may
// take.
struct Pool::State {
  using Spare = PageLender::Spare;

  State(Device& the_device, LaneEvents& the_events, const PoolOptions& the_options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // --- pool.cc: holes and blocks
  // What counts as live of a block.
  [[nodiscard]] Bytes live_bytes(const PoolBlock& block) const noexcept {
    return align_up(block.requested, options.alignment);
  }
  PoolBlock* allocate(Bytes asked, LaneKey lane, Mobility mobility, Growth growth) noexcept;
  void record_use(Chunk* block, LaneKey lane);
  [[nodiscard]] bool waits(const Chunk* block, std::optional<LaneKey> freeing) const noexcept {
    // mutant: s1-pool-waits
    return block->pins != 0 ||
           (asynchronous && (!block->points.empty() || (freeing && *freeing != block->lane)));
  }
  void free(Chunk* block, std::optional<LaneKey> freeing) noexcept;
  bool unpin(const void* pointer) noexcept;
  // A freed block waits, unless its lanes are done.
  void wait_for_lanes(Chunk* block) noexcept;
  // What waits no more, of the queues of so many lanes, becomes holes. Returns its bytes.
  Bytes free_ready(std::size_t lanes) noexcept;
  Bytes end_waits(Chunk* block) noexcept;  // a list through `right`
  void end_wait(Chunk* block) noexcept;
  // A block is gone, and nobody waits for its bytes: they are holes.
  void end_use(Chunk* block) noexcept;
  Bytes synchronize_for_unproven() noexcept;
  [[nodiscard]] bool is_captured(LaneKey lane) const noexcept {
    bool capturing = false;
    return !device.capturing(lane, &capturing).ok() || capturing;
  }
  PoolBlock* allocate_at(Bytes first, Bytes size, LaneKey lane) noexcept;
  void hand_out(Chunk* block, Bytes asked, LaneKey lane, LaneHoles* mine) noexcept;
  Bytes process_events() noexcept;
  Bytes order_waiting() noexcept;
  // The same for one request: a look at a few lanes, in turn.
  Bytes process_some_events() noexcept;
  LaneHoles* holes_of(LaneKey lane) noexcept;
  // The hole of this end that `mine` or nobody owns and that the end's rule picks; null: none fits.
  Chunk* find_hole(End end, LaneHoles& mine, Bytes size) noexcept;
  // Of those holes the one after which fewest bytes lie in parts of pages; a stitched block of
  // parts where `tight` and each hole would leave more than kMostAdded-th of a page more of them
  // than there are. O(holes of its size).
  Chunk* find_dense_hole(End end, LaneHoles& mine, Bytes size, bool tight) noexcept;
  static constexpr Bytes kMostAdded = 4;
  // The rest of the ways to a hole, or to a stitched block, in order; `fresh` as grow() says.
  Chunk* find_hole_slowly(End end, LaneHoles& mine, Bytes size, Growth growth,
                          bool* fresh) noexcept;
  // Holes of lanes that are past the epoch in which they came free become nobody's; lanes that have
  // others end an epoch. Looks at kAskedToGrow lanes at most, and not at `mine`. Returns whether
  // any did.
  bool prove_holes(const LaneHoles* mine) noexcept;
  bool disown_until(LaneHoles& holes, std::uint32_t epoch) noexcept;
  // Holes of streams of somebody else's, which may be gone, become nobody's by a synchronisation,
  // where there are many bytes of them. Returns whether any did. O(lanes, and holes of such
  // streams).
  bool prove_foreign_holes(const LaneHoles& mine) noexcept;
  // The device is done with all work: all holes are nobody's.
  void disown_all() noexcept;
  // Lanes without a chunk go, where they are many, but the last one that asked.
  void forget_lanes() noexcept;
  Chunk* take_hole_of_another_lane(End end, LaneHoles& mine, Bytes size) noexcept;
  // Cuts `size` bytes off a hole, at the side that the end's rule says, or out of it near there,
  // where large blocks begin with a page. The block is not in the table yet. Takes two chunks at
  // most.
  Chunk* cut(Chunk* hole, Bytes size) noexcept;
  // Takes [first, last) out of a hole: a chunk in no tree; what is left at the sides stays a hole.
  // Takes two chunks of the slab.
  Chunk* take_out(Chunk* hole, ByteRange bytes, Chunk::Kind kind) noexcept;
  void leave_hole(Chunk* previous, ByteRange bytes, LaneHoles* owner, std::uint32_t epoch,
                  Segment& segment) noexcept;
  // Makes a hole of a chunk that is in its segment's list and in no tree; coalesces. Returns the
  // hole.
  Chunk* add_hole(Chunk* chunk) noexcept;
  // Takes a hole out of its tree and makes it nobody's; add_hole() puts it back.
  void disown(Chunk* hole) noexcept;
  // Whether this is a hole that `mine` may take without an event.
  [[nodiscard]] bool may_take(const Chunk* chunk, const LaneHoles& mine) const noexcept {
    return chunk != nullptr && chunk->kind == Chunk::Kind::kHole &&
           (chunk->owner == &mine || chunk->owner == &nobody);
  }

  // --- pages.cc: committing and giving back
  // Of `size` bytes those that the hole beside which an end grows has.
  [[nodiscard]] Bytes beside_edge(End end, const LaneHoles& mine, Bytes size) noexcept;
  // Bytes that grow_edge() asks the device for.
  [[nodiscard]] Bytes growth_for(End end, const LaneHoles& mine, Bytes size) noexcept;
  [[nodiscard]] bool may_grow(Bytes more, Bytes asked) const {
    return !stitching || !options.may_grow || options.may_grow(more, asked);
  }
  // A hole of at least `size` bytes on new pages, owned by `mine`; null, and nothing changed, where
  // that cannot be. `fresh`: no lane has used any of it.
  Chunk* grow(End end, LaneHoles& mine, Bytes size, bool* fresh) noexcept;
  // Takes `pages` bytes of new pages at least.
  Chunk* grow_returned(End end, LaneHoles& mine, Bytes size, Bytes pages, bool* fresh) noexcept;
  Chunk* grow_edge(End end, LaneHoles& mine, Bytes size, bool* fresh) noexcept;
  // So many bytes of new pages, wherever. False, and nothing changed, where that cannot be.
  [[nodiscard]] bool grow_by(End end, LaneHoles& mine, Bytes pages) noexcept;
  Chunk* grow_segment(End end, LaneHoles& mine, Bytes size, bool* fresh) noexcept;
  Bytes trim() noexcept;
  Bytes give_back(Chunk* hole) noexcept;
  // The addresses that get and lose their memory with this one, which has some.
  [[nodiscard]] ByteRange handle_at(Bytes address) const noexcept {
    return device.handle_at(pointer_at(address));
  }
  // Of a hole what may go: whole handles; empty where it ends before it begins.
  [[nodiscard]] ByteRange whole_handles(const Chunk* hole) const noexcept;
  // The pages of a chunk in no tree are gone.
  void end_pages(Chunk* chunk) noexcept;
  void shrink(Segment& segment) noexcept;
  Bytes release_free_segments() noexcept;
  [[nodiscard]] Bytes idle() const noexcept;
  [[nodiscard]] bool prepare_segments() noexcept;  // room for one more
  void count_reserved(Bytes more) noexcept {
    stats.reserved += more;
    stats.reserved_peak = std::max(stats.reserved_peak, stats.reserved);
  }
  [[nodiscard]] Segment& mapped(End end) noexcept {
    return *segments[static_cast<std::size_t>(end)];
  }
  [[nodiscard]] bool contains(Bytes address) const noexcept;

  // --- pieces.cc: whole pages of holes
  // A live block stitched of what others miss least, or null where the pool may as well grow.
  //
  // A live block of whole pages of several holes and of those that the lender can spare (kAny: of
  // other lanes' holes, too), or null: those of a stitch that lies idle; a new one, for which the
  // pool may grow by what is missing.
  Chunk* stitch_spared(End end, LaneHoles& mine, Bytes size, Growth growth) noexcept;
  Chunk* stitch_again(LaneHoles& mine, Bytes size, Spare spare) noexcept;
  Chunk* stitch(End end, LaneHoles& mine, Bytes size, Spare spare) noexcept;
  Chunk* live_on(Stitch& stitch, LaneHoles& mine, Bytes size) noexcept;
  // Whole handles of holes that the lane may have, or anybody, and of what the lender spares; of
  // each hole one stretch. And what lies behind them, in the handle where the hole ends.
  struct FreePages {
    std::vector<ByteRange> stretches, tails;
    Bytes bytes = 0;                // of the stretches
    std::vector<ByteRange> spared;  // what the lender spares
  };
  [[nodiscard]] FreePages free_pages(const LaneHoles& mine, Spare spare);
  // The handles behind a block of so many bytes, of fewest stretches.
  [[nodiscard]] std::vector<ByteRange> choose(FreePages& free, Bytes size) const;
  // parts.cc: a block that may begin in the free end of one page and end in the free beginning of
  // another, with whole free pages between them, so that few bytes stay where nothing can use them;
  // `grows`: the pool may grow by pages that are missing.
  Chunk* stitch_parts(End end, LaneHoles& mine, Bytes size, Spare spare, bool grows) noexcept;
  // Whether what is free has to be used to its last parts for a block of so many bytes: it and a
  // kScarcePart-th of what is held are more than the device has left, as far as is known.
  [[nodiscard]] bool is_scarce(Bytes size) const noexcept {
    return stitching && device.room() < size + stats.reserved / kScarcePart;
  }
  static constexpr Bytes kScarcePart = 8;
  // Makes the lane's later work run after what others have queued that own holes over these.
  [[nodiscard]] bool order_after_owners(const LaneHoles& mine, const std::vector<ByteRange>& bytes);
  // The hole that `mine` or nobody owns, or, where `mine` is null, anybody, around an address.
  [[nodiscard]] Chunk* hole_around(Bytes address, const LaneHoles* mine) noexcept;
  std::size_t move_pages(void* to, std::size_t count, std::size_t room, LaneKey lane,
                         bool others) noexcept;
  // The whole handles of holes that leave for `wanted` bytes, or a few more, `room` at most;
  // neighbours are one range. All that there are, where they are not enough.
  [[nodiscard]] std::vector<ByteRange> leaving(const std::vector<LaneHoles*>& of, Bytes wanted,
                                               Bytes room);
  // Where no page can have two addresses. Cuts `pages` to those that left. Returns the bytes that
  // whoever wants them at `to` has there, or may ask the device for.
  [[nodiscard]] Bytes move_or_return(std::byte* to, ByteRange* pages) noexcept;
  // A block on a stitch counts there, or, with `home`, where its bytes are at home.
  void tell_stitched(const Stitch& stitch, bool home) noexcept;
  void count_at_home(bool home) noexcept;
  [[nodiscard]] bool let_go_of(ByteRange pages) noexcept;
  // Addresses whose pages moved are unmapped, as far as events tell.
  void unmap_moved() noexcept;
  [[nodiscard]] bool is_home(Bytes address) const noexcept {
    return ends.contains(address) || residents.contains(address);
  }

  // --- check.cc
  [[nodiscard]] std::string is_valid() const;

  static constexpr std::size_t kAllLanes = ~std::size_t{0};
  static constexpr std::size_t kAskedToGrow = 64;

  struct AddressRange {
    Bytes first = 0;
    Bytes size = 0;
    [[nodiscard]] bool contains(Bytes address) const noexcept { return address - first < size; }
  };

  Device& device;
  LaneEvents& events;
  PoolOptions options;
  const bool maps;
  const bool asynchronous;
  const bool stitching;
  const Bytes page;
  Bytes unit = 0;   // of commits
  Bytes grain = 0;  // of what goes: no smaller than what comes, where a call costs more than pages
  AddressRange ends;  // where the device maps pages
  AddressRange residents;
  // Where the device maps pages three, by End; else one a reservation, in address order.
  std::vector<std::unique_ptr<Segment>> segments;
  ChunkSlab slab;
  BlockTable table;
  LaneHoles nobody;
  std::unordered_map<LaneKey, std::unique_ptr<LaneHoles>> lanes;
  LaneHoles* last_lane = nullptr;
  HoleTree returned[kEnds];  // chunks without pages
  Stitches stitches;
  PageLender* lender = nullptr;  // see borrow_from()
  // Chunks whose pages moved, and when their addresses may be unmapped.
  struct Moved {
    Chunk* chunk = nullptr;
    LaneEvents::Point point;
    std::uint64_t proof = 0;
  };
  std::vector<Moved> moved;
  bool counts_at_home = false;
  WaitingChunks waiting;
  Bytes unproven_least = 0;                        // see synchronize_for_unproven()
  std::unordered_map<const void*, Chunk*> pinned;  // live or waiting
  PoolStats stats;
};

}  // namespace berth
