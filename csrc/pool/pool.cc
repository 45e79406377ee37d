#include "csrc/pool/pool.h"

#include "csrc/core/check.h"
#include "csrc/pool/state.h"

#include <algorithm>
#include <utility>

namespace berth {

// --- Blocks -------------------------------------------------------------------------------------

void Pool::State::end_use(Chunk* block) noexcept {
  Stitch* const stitch = block->stitch;
  if (stitch == nullptr) {
    add_hole(block);
    return;
  }
  tell_stitched(*stitch, true);
  for (Chunk* const piece : stitch->pieces) {
    piece->owner = block->owner;
    add_hole(piece);
  }
  for (const Bytes first : stitch->lent) lender->take_back(first);
  stitches.give(*stitch, block->lane);
  slab.give(block);
}

namespace {

// Segments are for blocks by size alone, as PyTorch's: what stays fills holes that others left, and
// has no segments of its own.
constexpr Bytes kMostSmall = Bytes{1} << 20;

Mobility in_segments(Bytes size) noexcept {
  // mutant: plain-small
  return size <= kMostSmall ? Mobility::kMovable : Mobility::kTemporary;
}

}  // namespace

PoolBlock* Pool::State::allocate(Bytes asked, LaneKey lane, Mobility mobility,
                                 Growth growth) noexcept {
  if (asked == 0 || asked > kMaxBytes) return nullptr;
  const Bytes size = align_up(asked, options.alignment);
  // Host memory first: one chunk for new pages, one for what they were beside, one for the block.
  if (!slab.prepare(4) || !table.prepare()) return nullptr;
  LaneHoles* const mine = holes_of(lane);
  if (mine == nullptr) return nullptr;
  if (waiting.unproven() > kMostUnproven && !is_captured(lane)) [[unlikely]]
    synchronize_for_unproven();
  // In segments the best fit may lie in a block that waits, so each request looks, as in PyTorch's
  // allocator.
  if (!maps && !waiting.empty() && !is_captured(lane)) [[unlikely]]
    process_some_events();
  // mutant: plain-size
  if (!maps) mobility = in_segments(size);
  const End end = static_cast<End>(mobility);
  bool fresh = false;
  Chunk* hole = nullptr;
  // A hole that is not its size would keep a part of a page at one end, and get one at the other.
  if (size >= page && is_scarce(size))
    hole = stitch_parts(end, *mine, size, Spare::kThisStep, false);
  const bool dense = growth == Growth::kDense || growth == Growth::kTight;
  // mutant: holes-dense
  if (hole == nullptr && dense && maps && size >= page)
    hole = find_dense_hole(end, *mine, size, growth == Growth::kTight);
  if (hole == nullptr) hole = find_hole(end, *mine, size);
  // mutant: target-least-pool
  if (hole == nullptr && growth == Growth::kLeast && !is_captured(lane))
    hole = stitch_parts(end, *mine, size, Spare::kAny, true);
  if (hole == nullptr) hole = find_hole_slowly(end, *mine, size, growth, &fresh);
  if (hole == nullptr) return nullptr;
  // In segments a rest that no large block could use stays with the block.
  // mutant: plain-rest
  const bool rests = maps || end == End::kLow || hole->size - size > kMostSmall;
  Chunk* const block =
      hole->stitch != nullptr ? hole : cut(hole, options.splits && rests ? size : hole->size);
  // What is over of fresh pages is nobody's; of a fresh segment it is the lane's.
  // mutant: plain-fresh
  if (maps && fresh && mine != &nobody)
    for (Chunk* const rest : {block->previous, block->next})
      if (rest != nullptr && rest->kind == Chunk::Kind::kHole && rest->owner == mine) {
        disown(rest);
        add_hole(rest);
      }
  block->mobility = mobility;
  hand_out(block, asked, lane, mine);
  return block;
}

void Pool::State::hand_out(Chunk* block, Bytes asked, LaneKey lane, LaneHoles* mine) noexcept {
  block->owner = mine;
  block->requested = asked;
  block->lane = lane;
  block->id = 0;
  block->born = 0;
  block->tag = 0;
  block->proof = 0;
  table.insert(block);
  stats.live += live_bytes(*block);
  stats.live_peak = std::max(stats.live_peak, stats.live);
  ++stats.blocks;
  ++stats.allocations[static_cast<int>(block->mobility)];
}

PoolBlock* Pool::State::allocate_at(Bytes first, Bytes size, LaneKey lane) noexcept {
  if (size == 0 || !slab.prepare(4) || !table.prepare()) return nullptr;
  LaneHoles* const mine = holes_of(lane);
  const auto segment =
      std::find_if(segments.begin(), segments.end(), [&](const std::unique_ptr<Segment>& one) {
        return first >= one->first && first < one->last;
      });
  if (mine == nullptr || segment == segments.end()) return nullptr;
  Chunk* const left = [&] {
    Chunk* chunk = (*segment)->head;
    while (chunk->last() <= first) chunk = chunk->next;
    return chunk;
  }();
  Chunk* right = left;
  while (right != nullptr && right->kind == Chunk::Kind::kHole && right->last() < first + size)
    right = right->next;
  if (right == nullptr || right->kind != Chunk::Kind::kHole) return nullptr;

  const End end = (*segment)->end;
  // One chunk of all of them, then what is over at its sides.
  LaneHoles* const left_owner = left->owner;
  LaneHoles* const right_owner = right->owner;
  const Bytes from = left->first(), until = right->last();
  for (Chunk* chunk = left; chunk != nullptr;) {
    Chunk* const next = chunk == right ? nullptr : chunk->next;
    chunk->owner->at(end).erase(chunk);
    if (chunk != left) {
      (*segment)->unlink(chunk);
      slab.give(chunk);
    }
    chunk = next;
  }
  leave_hole(left->previous, {from, first}, left_owner, left_owner->epoch, **segment);
  left->pointer = reinterpret_cast<void*>(first);
  left->size = size;
  leave_hole(left, {first + size, until}, right_owner, right_owner->epoch, **segment);
  left->mobility = static_cast<Mobility>(end);  // its hole goes back to this end
  left->kind = Chunk::Kind::kLive;
  hand_out(left, size, lane, mine);
  return left;
}

void Pool::State::record_use(Chunk* block, LaneKey lane) {
  if (lane == block->lane) return;
  for (const LaneEvents::Point& point : block->points)
    if (point.lane == lane) return;
  block->points.push_back({lane, WaitingChunks::kUnrecorded});
}

void Pool::State::free(Chunk* block, std::optional<LaneKey> freeing) noexcept {
  const bool must_wait = waits(block, freeing);
  table.erase(block);
  stats.live -= live_bytes(*block);
  --stats.blocks;
  if (!must_wait) {
    block->points.clear();
    end_use(block);
    return;
  }
  block->kind = Chunk::Kind::kWaiting;
  stats.waiting += block->size;
  try {
    // mutant: s6-pool
    if (freeing) record_use(block, *freeing);
  } catch (const std::bad_alloc&) {
    block->proof = events.synchronizations() + 1;
  }
  // mutant: s15-pool
  if (block->pins == 0) wait_for_lanes(block);
}

void Pool::State::wait_for_lanes(Chunk* block) noexcept {
  if (!waiting.add(block)) end_wait(block);
}

void Pool::State::end_wait(Chunk* block) noexcept {
  stats.waiting -= block->size;
  block->points.clear();
  if (options.completed) options.completed(*block);
  end_use(block);
}

bool Pool::State::unpin(const void* pointer) noexcept {
  const auto found = pinned.find(pointer);
  if (found == pinned.end()) return false;
  Chunk* const block = found->second;
  if (--block->pins != 0) return true;
  pinned.erase(found);
  if (block->kind == Chunk::Kind::kWaiting) wait_for_lanes(block);
  return true;
}

Bytes Pool::State::end_waits(Chunk* block) noexcept {
  Bytes freed = 0;
  while (block != nullptr) {
    Chunk* const next = block->right;
    freed += block->size;
    end_wait(block);
    block = next;
  }
  return freed;
}

Bytes Pool::State::free_ready(std::size_t lanes_at_most) noexcept {
  return end_waits(waiting.take_ready(lanes_at_most));
}

Bytes Pool::State::order_waiting() noexcept {
  return events.captured() ? 0 : end_waits(waiting.take_ordered());
}

Bytes Pool::State::process_events() noexcept {
  if (waiting.empty() && moved.empty() && !stitches.waits() && lanes.size() < 2) return 0;
  events.poll_all();
  (void)prove_holes(nullptr);
  unmap_moved();
  stitches.unmap();
  const Bytes freed = free_ready(kAllLanes);
  return waiting.unproven() > kMostUnproven ? freed + synchronize_for_unproven() : freed;
}

Bytes Pool::State::process_some_events() noexcept {
  events.poll(kAskedToGrow);
  return free_ready(kAskedToGrow);
}

Bytes Pool::State::synchronize_for_unproven() noexcept {
  const Bytes most = std::max(stats.reserved / kUnprovenPart, unproven_least);
  // mutant: s2-kept, s13-unproven
  if (waiting.unproven() <= most || events.captured()) return 0;
  if (!events.synchronize()) {
    unproven_least = 2 * waiting.unproven();
    return 0;
  }
  unproven_least = 0;
  return free_ready(kAllLanes);
}

// --- Pool ---------------------------------------------------------------------------------------

Pool::Pool(Device& device, LaneEvents& events, const PoolOptions& options)
    : state_(std::make_unique<State>(device, events, options)) {}

Pool::~Pool() = default;

std::size_t Pool::lanes() const noexcept { return state_->lanes.size(); }

bool Pool::may_grow(Bytes more, Bytes asked) noexcept { return state_->may_grow(more, asked); }

PoolBlock* Pool::allocate(Bytes size, LaneKey lane, Mobility mobility, Growth growth) noexcept {
  return state_->allocate(size, lane, mobility, growth);
}

PoolBlock* Pool::find(const void* pointer) noexcept { return state_->table.find(pointer); }

bool Pool::contains(const void* pointer) const noexcept {
  return state_->contains(reinterpret_cast<Bytes>(pointer));
}

void Pool::record_use(PoolBlock* block, LaneKey lane) {
  state_->record_use(static_cast<Chunk*>(block), lane);
}

bool Pool::waits(const PoolBlock* block, std::optional<LaneKey> freeing) const noexcept {
  return state_->waits(static_cast<const Chunk*>(block), freeing);
}

void Pool::free(PoolBlock* block, std::optional<LaneKey> freeing) noexcept {
  BERTH_ASSERT(find(block->pointer) == block, "{} is no live block", block->pointer);
  state_->free(static_cast<Chunk*>(block), freeing);
}

void Pool::pin(PoolBlock* block) {
  auto* const chunk = static_cast<Chunk*>(block);
  state_->pinned.try_emplace(block->pointer, chunk);
  ++chunk->pins;
}

bool Pool::unpin(const void* pointer) noexcept { return state_->unpin(pointer); }

PoolBlock* Pool::allocate_at(void* pointer, Bytes size, LaneKey lane) noexcept {
  return state_->allocate_at(reinterpret_cast<Bytes>(pointer), size, lane);
}

Bytes Pool::process_events() noexcept { return state_->process_events(); }

Bytes Pool::order_waiting() noexcept { return state_->order_waiting(); }

Bytes Pool::trim() noexcept { return state_->trim(); }

bool Pool::grow_by_pages() noexcept {
  if (!state_->maps || state_->unit == state_->page) return false;
  state_->unit = state_->grain = state_->options.resident_growth_bytes = state_->page;
  return true;
}

bool Pool::lacks(Bytes size, LaneKey lane) noexcept {
  if (size >= state_->page && state_->is_scarce(size)) return false;
  LaneHoles* const mine = state_->holes_of(lane);
  const auto largest = [](const LaneHoles& holes) {
    return std::max(holes.trees[0].largest(), holes.trees[1].largest());
  };
  return mine != nullptr && std::max(largest(*mine), largest(state_->nobody)) < size;
}

Bytes Pool::idle() const noexcept { return state_->idle(); }

std::uint64_t Pool::blocks() const noexcept { return state_->stats.blocks; }

Bytes Pool::pages_of_blocks(std::uint64_t last) const noexcept {
  Bytes bytes = 0;
  for (const auto& segment : state_->segments) {
    Bytes counted = 0;  // the end of the last page
    for (const Chunk* chunk = segment->head; chunk != nullptr; chunk = chunk->next) {
      if (chunk->kind != Chunk::Kind::kLive || chunk->id > last) continue;
      const Bytes first = std::max(counted, align_down(chunk->first(), state_->page));
      counted = align_up(chunk->last(), state_->page);
      // mutant: room-parts
      bytes += counted - first;
    }
  }
  for (const Stitch& stitch : state_->stitches.live())
    if (stitch.block->kind == Chunk::Kind::kLive && stitch.block->id <= last)
      bytes += stitch.block->size;
  return bytes;
}

Bytes Pool::parts() const noexcept {
  Bytes parts = 0;
  const auto add = [&](const LaneHoles& holes) {
    for (const HoleTree& tree : holes.trees)
      tree.for_each(1, [&](const Chunk* hole) {
        const Bytes first = align_up(hole->first(), state_->page);
        const Bytes last = align_down(hole->last(), state_->page);
        parts += hole->size - (first < last ? last - first : 0);
      });
  };
  add(state_->nobody);
  for (const auto& [lane, holes] : state_->lanes) add(*holes);
  return parts;
}

std::size_t Pool::move_pages(void* to, std::size_t count, std::size_t room, LaneKey lane,
                             bool others) noexcept {
  return state_->move_pages(to, count, room, lane, others);
}

bool Pool::let_go_of(ByteRange pages) noexcept { return state_->let_go_of(pages); }

void Pool::count_at_home(bool home) noexcept { state_->count_at_home(home); }

void Pool::borrow_from(PageLender* lender) noexcept { state_->lender = lender; }

Bytes Pool::reserved() const noexcept { return state_->stats.reserved; }

PoolStats Pool::stats() const noexcept {
  PoolStats stats = state_->stats;
  const auto add = [&](LaneHoles& holes) {
    for (const HoleTree& tree : holes.trees) stats.holes += tree.size();
    stats.largest_low = std::max(stats.largest_low, holes.at(End::kLow).largest());
    stats.largest_high = std::max(stats.largest_high, holes.at(End::kHigh).largest());
  };
  add(state_->nobody);
  for (const auto& [lane, holes] : state_->lanes) add(*holes);
  stats.stitches_made = state_->stitches.made();
  return stats;
}

void Pool::for_each_block(const std::function<void(const PoolBlock&)>& visit) const {
  for (const auto& segment : state_->segments)
    for (const Chunk* chunk = segment->head; chunk != nullptr; chunk = chunk->next)
      if (chunk->kind == Chunk::Kind::kLive) visit(*chunk);
  for (const Stitch& stitch : state_->stitches.live())
    if (stitch.block->kind == Chunk::Kind::kLive) visit(*stitch.block);
}

void Pool::for_each_stretch(const std::function<void(const Stretch&)>& visit) const {
  Stretch stretch;
  const auto add = [&](const Chunk& chunk) {
    if (stretch.pieces.empty()) stretch.base = chunk.pointer;
    stretch.size += chunk.size;
    Stretch::Piece piece{
        .pointer = chunk.pointer, .size = chunk.size, .requested = chunk.requested};
    if (chunk.kind != Chunk::Kind::kHole) {
      piece.lane = chunk.lane;
      piece.kind = chunk.kind == Chunk::Kind::kLive ? Stretch::Piece::Kind::kLive
                                                    : Stretch::Piece::Kind::kWaiting;
    }
    stretch.pieces.push_back(piece);
  };
  const auto finish = [&] {
    if (!stretch.pieces.empty()) visit(stretch);
    stretch = {};
  };
  // Where the ends meet, and where stitched blocks follow each other, is no gap.
  const auto add_behind = [&](const Chunk& chunk) {
    if (!stretch.pieces.empty() &&
        static_cast<const std::byte*>(stretch.base) + stretch.size != chunk.pointer)
      finish();
    add(chunk);
  };
  for (const auto& segment : state_->segments) {
    if (!state_->maps || segment->end == End::kResident) finish();
    for (const Chunk* chunk = segment->head; chunk != nullptr; chunk = chunk->next)
      if (chunk->has_bytes()) add_behind(*chunk);
  }
  finish();
  std::vector<const Chunk*> stitched;
  for (const Stitch& stitch : state_->stitches.live()) stitched.push_back(stitch.block);
  std::sort(stitched.begin(), stitched.end(),
            [](const Chunk* a, const Chunk* b) { return a->pointer < b->pointer; });
  for (const Chunk* const block : stitched) add_behind(*block);
  finish();
}

std::string Pool::is_valid() const { return state_->is_valid(); }

}  // namespace berth
