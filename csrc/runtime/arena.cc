#include "csrc/runtime/arena.h"

#include "csrc/core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace berth {

Arena::Arena(Device& device, Bytes alignment) : device_(device), alignment_(alignment) {}

Arena::~Arena() {
  for (const Guard& guard : guards_) device_.destroy(guard.event);
  if (base_ != nullptr && !device_.release(base_, range_bytes_).ok()) ++device_errors_;
}

// --- Memory -------------------------------------------------------------------------------------

Status Arena::ensure_range(Bytes bytes) noexcept {
  if (bytes <= range_bytes_) return {};
  const DeviceProperties& properties = device_.properties();
  if (base_ != nullptr) {
    if (live_ != 0 || !strays_.empty()) return {Status::Code::kFailed, "arena in use"};
    const Status released = device_.release(base_, range_bytes_);
    if (!released.ok()) return released;
    base_ = nullptr;
    range_bytes_ = committed_ = 0;
  }
  // Addresses cost nothing where pages are mapped one by one: take as many as any later plan may
  // need.
  Bytes range = align_up(bytes, properties.page_bytes);
  void* base = nullptr;
  Status status;
  if (properties.maps_pages) {
    const Bytes roomy = std::max(range, align_up(properties.total_bytes, properties.page_bytes));
    status = device_.reserve(roomy, std::max<Bytes>(alignment_, properties.page_bytes), &base);
    if (status.ok()) range = roomy;
  }
  if (base == nullptr)
    status = device_.reserve(range, std::max<Bytes>(alignment_, properties.page_bytes), &base);
  if (!status.ok()) return status;
  base_ = static_cast<std::byte*>(base);
  range_bytes_ = range;
  return {};
}

bool Arena::commit() noexcept {
  commit_due_ = false;
  const Bytes wanted = align_up(lookup_->plan().arena_bytes, device_.properties().page_bytes);
  if (wanted != 0 && !device_.commit(base_, wanted, Device::Residency::kResident).ok()) {
    ++device_errors_;
    return false;
  }
  if (wanted < committed_ && !strays_.find_touching({wanted, committed_})) {
    if (device_.decommit(base_ + wanted, committed_ - wanted).ok()) committed_ = wanted;
  }
  committed_ = std::max(committed_, wanted);
  dormant_ = false;
  recount();
  return true;
}

Bytes Arena::retire() noexcept {
  if (live_ != 0 || !strays_.empty() || committed_ == 0) return 0;
  if (lookup_ && !dormant_) rest();
  if (!device_.decommit(base_, committed_).ok()) {
    ++device_errors_;
    return 0;
  }
  return std::exchange(committed_, 0);
}

// --- Plans --------------------------------------------------------------------------------------

Status Arena::activate(std::shared_ptr<const PlanLookup> plan, bool at_step_start) {
  const Status ranged = ensure_range(plan->plan().arena_bytes);
  if (!ranged.ok()) return ranged;
  // All that may throw comes first.
  std::vector<Path> paths;
  std::vector<std::uint32_t> roots(plan->plan().lane_keys.size());
  for (std::uint32_t s = 0; s < plan->plan().sequences.size(); ++s) {
    paths.emplace_back(*plan, s);
    if (plan->plan().sequences[s].parent < 0) roots[plan->plan().sequences[s].lane] = s;
  }
  std::vector<Cell> cells(plan->cell_count());
  const std::shared_ptr<const PlanLookup> before = lookup_;

  rest();
  lookup_ = std::move(plan);
  entries_ = &lookup_->entry(0);
  paths_ = std::move(paths);
  roots_ = std::move(roots);
  cells_ = std::move(cells);
  unplanned_slots_ = 0;
  for (PlanLookup::SlotIndex slot = 0; slot < lookup_->slot_count(); ++slot) {
    unplanned_slots_ += entries_[slot].cell == PlanLookup::kNone;
  }
  dormant_ = true;
  if (!at_step_start && !commit()) {
    rest();
    if (before)
      (void)activate(before,
                     false);  // its memory is still committed: nothing is asked of the device
    return {Status::Code::kOutOfMemory, "commit"};
  }
  // Other lanes than the one that had them wait for what was queued on these bytes before.
  if (device_.properties().asynchronous) {
    for (const auto& lane : lanes_) {
      if (!guard({0, range_bytes_}, lane->key, false)) {
        const Status drained = device_.synchronize_all();
        if (!drained.ok()) ++device_errors_;
      }
    }
  }
  for (const auto& lane : lanes_) {
    lane->mode = Lane::Mode::kUnbound;
    const auto& keys = lookup_->plan().lane_keys;
    const auto key = std::find(keys.begin(), keys.end(), lane->key);
    if (key != keys.end()) bind(*lane, static_cast<std::uint32_t>(key - keys.begin()));
  }
  recount();
  return {};
}

void Arena::rest() noexcept {
  if (!lookup_) return;
  // Live blocks of the plan go on as byte ranges: a range outlives its plan.
  std::vector<std::pair<PlanLookup::CellIndex, Stray>> live;
  for (PlanLookup::CellIndex index = 0; index < cells_.size(); ++index) {
    const Cell& cell = cells_[index];
    if (cell.slot == PlanLookup::kNone) continue;
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    const PlanLookup::Entry& entry = entries_[slot];
    const std::uint32_t plan_lane = lookup_->plan().sequences[lookup_->sequence_of(slot)].lane;
    LaneKey owner = lookup_->plan().lane_keys[plan_lane];
    for (const auto& lane : lanes_) {
      if (lane->mode != Lane::Mode::kUnbound && lane->plan_lane == plan_lane) owner = lane->key;
    }
    if (cell.slot & kOffSchedule) strays_.erase(entry.offset);
    strays_.insert({entry.offset, entry.offset + rounded(entry.requested)},
                   Stray{PlanLookup::kNone, entry.requested, owner, cell.id, false});
  }
  cells_.clear();
  live_shared_.clear();
  paths_.clear();
  roots_.clear();
  lookup_.reset();
  entries_ = nullptr;
  dormant_ = commit_due_ = false;
  fast_lane_ = nullptr;
  for (const auto& lane : lanes_) lane->mode = Lane::Mode::kUnbound;
  recount();
}

void Arena::recount() noexcept {
  std::uint32_t guards = 0;
  for (const Guard& guard : guards_) guards += guard.shared_only ? 0 : 1;
  attention_ =
      static_cast<std::uint32_t>(strays_.size() + pins_.size()) + guards + (dormant_ ? 1 : 0);
}

// --- Lanes --------------------------------------------------------------------------------------

Lane& Arena::lane_of(LaneKey key) {
  for (const auto& lane : lanes_) {
    if (lane->key == key) return *lane;
  }
  lanes_.push_back(std::make_unique<Lane>());
  Lane& lane = *lanes_.back();
  lane.key = key;
  if (lookup_) {
    const auto& keys = lookup_->plan().lane_keys;
    const auto it = std::find(keys.begin(), keys.end(), key);
    if (it != keys.end()) bind(lane, static_cast<std::uint32_t>(it - keys.begin()));
  }
  return lane;
}

// A lane that is aligned is served on the fast path until another lane asks.
void Arena::select(Lane& lane) noexcept {
  fast_key_ = lane.key;
  fast_lane_ = lane.mode == Lane::Mode::kAligned ? &lane : nullptr;
}

void Arena::bind(Lane& lane, std::uint32_t plan_lane) noexcept {
  lane.plan_lane = plan_lane;
  lane.sequence = root_of(plan_lane);
  lane.position = 0;
  lane.parent_ends = false;
  lane.entered = false;
  lane.requests_without_mark = 0;
  // The start of a program looks like its steps in places; a whole step of equal requests is no
  // accident.
  rest_lane(lane, path(lane).size());
}

void Arena::rest_lane(Lane& lane, std::uint32_t run_needed) noexcept {
  lane.mode = Lane::Mode::kResting;
  lane.seen = 0;
  lane.run = 0;
  lane.run_needed = std::max<std::uint32_t>(run_needed, PlanLookup::kWindow);
  if (fast_lane_ == &lane) fast_lane_ = nullptr;
}

void Arena::expect(Lane& lane, std::uint32_t index) noexcept {
  lane.next = path(lane).slot(index);
  lane.end = path(lane).run_end(index);
}

void Arena::expire_ancestors(Lane& lane) noexcept {
  for (const std::uint32_t sequence : path(lane).sequences()) {
    if (sequence == lane.sequence || lane.position >= lookup_->plan().sequences[sequence].period)
      continue;
    for (const PlanLookup::SlotIndex slot : lookup_->ends_at(sequence, lane.position)) expire(slot);
  }
}

// Time is a circle: the ends up to the period, then those at tick 0.
void Arena::pass_step_end(Lane& lane) noexcept {
  for (const std::uint32_t sequence : path(lane).sequences()) {
    const std::uint32_t period = lookup_->plan().sequences[sequence].period;
    for (std::uint32_t tick = lane.position + 1; tick < period; ++tick) {
      for (const PlanLookup::SlotIndex slot : lookup_->ends_at(sequence, tick)) expire(slot);
    }
  }
  const std::uint32_t root = root_of(lane.plan_lane);
  if (lane.sequence != root) {
    // What a branch leaves alive is apart from every path, but only the root's ends are walked from
    // here on.
    for (PlanLookup::CellIndex index = 0; index < cells_.size(); ++index) {
      const std::uint32_t slot = cells_[index].slot;
      if (slot >= kOffSchedule) continue;
      const std::uint32_t sequence = lookup_->sequence_of(slot);
      if (sequence != root && lookup_->plan().sequences[sequence].lane == lane.plan_lane)
        make_stray(index);
    }
    lane.sequence = root;
    lane.parent_ends = false;
  }
  lane.position = 0;
  for (const PlanLookup::SlotIndex slot : lookup_->ends_at(root, 0)) expire(slot);
  expect(lane, 0);
  commit_due_ = dormant_;
}

bool Arena::take_branch(Lane& lane, Bytes requested) noexcept {
  const std::vector<Sequence>& sequences = lookup_->plan().sequences;
  if (sequences.size() == lookup_->plan().lane_keys.size()) return false;
  const std::uint32_t tick =
      lane.next < lane.end ? entries_[lane.next].birth : sequences[lane.sequence].period;
  for (std::uint32_t child = 0; child < sequences.size(); ++child) {
    const Sequence& branch = sequences[child];
    if (branch.parent != static_cast<std::int32_t>(lane.sequence) || branch.fork != tick ||
        branch.slots.empty() || branch.slots.front().requested != requested) {
      continue;
    }
    lane.sequence = child;
    lane.parent_ends = true;
    expect(lane, path(lane).index(lookup_->first_slot(child)));
    return true;
  }
  return false;
}

bool Arena::on_schedule(const Lane& lane, PlanLookup::SlotIndex slot) const noexcept {
  if (path(lane).index(slot) == path(lane).size()) return false;
  const std::uint32_t period = lookup_->plan().sequences[lookup_->sequence_of(slot)].period;
  const PlanLookup::Entry& entry = entries_[slot];
  if (lane.position >= period) return false;
  const std::uint32_t age = lane.position >= entry.birth ? lane.position - entry.birth
                                                         : lane.position + period - entry.birth;
  return age < entry.length;
}

// After a jump: off schedule is what the plan did not put there, and what it would not have alive
// now.
void Arena::rebuild_strays(const Lane& lane) noexcept {
  for (PlanLookup::CellIndex index = 0; index < cells_.size(); ++index) {
    Cell& cell = cells_[index];
    if (cell.slot == PlanLookup::kNone) continue;
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    if (lookup_->plan().sequences[lookup_->sequence_of(slot)].lane != lane.plan_lane) continue;
    const bool stray = (cell.slot & kOffSchedule) != 0;
    const bool wanted = !on_schedule(lane, slot);
    if (wanted && !stray) make_stray(index);
    if (!wanted && stray) {
      strays_.erase(entries_[slot].offset);
      cell.slot = slot;
    }
  }
  recount();
}

void Arena::jump(Lane& lane, std::uint32_t sequence, std::uint32_t index) noexcept {
  lane.sequence = sequence;
  lane.parent_ends = path(lane).sequences().size() > 1;
  expect(lane, index);
  lane.position = entries_[lane.next].birth;
  rebuild_strays(lane);
}

// --- Requests -----------------------------------------------------------------------------------

Arena::Outcome Arena::allocate_slowly(Bytes requested, LaneKey key, std::uint64_t id) {
  if (!lookup_) return {};
  Lane& lane = lane_of(key);
  Outcome outcome;
  if (lane.mode != Lane::Mode::kUnbound) ++lane.requests_without_mark;
  switch (lane.mode) {
    case Lane::Mode::kUnbound:
      return {Served::kMissLane, nullptr, 0, false};
    case Lane::Mode::kAligned:
      outcome = allocate_aligned(lane, requested, id);
      break;
    case Lane::Mode::kSearching:
      outcome = allocate_searching(lane, requested, id);
      break;
    case Lane::Mode::kResting:
      outcome = allocate_resting(lane, requested, id);
      break;
  }
  select(lane);
  return outcome;
}

// Where the lane stands at the end of a run of slots: the path goes on in another sequence, or a
// branch leaves here, or the step ends.
void Arena::pass_run_end(Lane& lane, Bytes requested) noexcept {
  const std::uint32_t index = path(lane).index(lane.next - 1) + 1;
  if (index < path(lane).size()) {
    expect(lane, index);
  } else if (!take_branch(lane, requested)) {
    pass_step_end(lane);
  }
}

Arena::Outcome Arena::allocate_aligned(Lane& lane, Bytes requested, std::uint64_t id) {
  if (lane.next == lane.end) pass_run_end(lane, requested);
  if (entries_[lane.next].requested == requested || take_branch(lane, requested)) {
    return hand_out(lane, lane.next, requested, id);
  }
  lane.mode = Lane::Mode::kSearching;
  lane.aligner.start(path(lane).index(lane.next), path(lane).size());
  return allocate_searching(lane, requested, id);
}

Arena::Outcome Arena::allocate_searching(Lane& lane, Bytes requested, std::uint64_t id) {
  if (lane.next == lane.end) {
    const std::uint32_t sequence = lane.sequence;
    pass_run_end(lane, requested);
    if (lane.sequence != sequence)
      lane.aligner.start(path(lane).index(lane.next), path(lane).size());
  }
  const std::uint32_t size = path(lane).size();
  const std::uint32_t expected = path(lane).index(lane.next);
  const std::optional<std::uint32_t> found = lane.aligner.feed(requested, *lookup_, path(lane));
  if (!found) {
    if (lane.aligner.lost()) rest_lane(lane, PlanLookup::kWindow);
    return {Served::kMissSize, nullptr, 0, false};
  }
  const bool moved = *found != expected;
  if (moved) {
    const std::uint32_t forward = (*found + size - expected) % size;
    if (forward > Aligner::kReach) {
      jump(lane, lane.sequence, *found);
    } else if (*found > expected) {
      // Skipped slots were not born: the walk to the next birth does all that is to be done.
      expect(lane, *found);
    } else if (lane.sequence == root_of(lane.plan_lane)) {
      pass_step_end(lane);
      expect(lane, *found);
    } else {
      rest_lane(lane, PlanLookup::kWindow);
      return {Served::kMissSize, nullptr, 0, false};
    }
  }
  if (lane.aligner.settled()) lane.mode = Lane::Mode::kAligned;
  Outcome outcome = hand_out(lane, lane.next, requested, id);
  outcome.realigned = moved;
  return outcome;
}

Arena::Outcome Arena::allocate_resting(Lane& lane, Bytes requested, std::uint64_t id) {
  const Outcome miss{lane.entered ? Served::kMissSize : Served::kUnplanned, nullptr, 0, false};
  if (lane.seen == PlanLookup::kWindow) {
    std::move(lane.window.begin() + 1, lane.window.end(), lane.window.begin());
    --lane.seen;
  }
  lane.window[lane.seen++] = requested;

  // A program that marks its steps starts at a mark; one that stopped doing so is followed like one
  // that never did.
  const bool has_marks = !lookup_->plan().sequences[root_of(lane.plan_lane)].marks.empty();
  const std::uint32_t size = path(lane).size();
  if (has_marks && !lane.entered && lane.requests_without_mark < 3 * std::uint64_t{size})
    return miss;

  const bool goes_on =
      lane.run != 0 &&
      entries_[paths_[lane.guess_sequence].slot(lane.guess)].requested == requested;
  if (goes_on) {
    ++lane.run;
    lane.guess = (lane.guess + 1) % paths_[lane.guess_sequence].size();
  } else {
    lane.run = 0;
    if (lane.seen == PlanLookup::kWindow) {
      // The nearest place ahead where the last few requests occur in this order.
      std::uint32_t least = ~0u;
      const std::vector<Sequence>& sequences = lookup_->plan().sequences;
      for (std::uint32_t s = 0; s < sequences.size(); ++s) {
        if (sequences[s].lane != lane.plan_lane || paths_[s].size() == 0) continue;
        const std::uint32_t here = std::min(path(lane).index(lane.next), paths_[s].size() - 1);
        for (const std::uint32_t after : lookup_->positions_after(s, lane.window)) {
          const std::uint32_t ahead = (after + paths_[s].size() - here) % paths_[s].size();
          if (ahead >= least) continue;
          least = ahead;
          lane.guess_sequence = s;
          lane.guess = after;
          lane.run = PlanLookup::kWindow;
        }
      }
    }
  }
  if (lane.run < lane.run_needed) return miss;
  // The request just seen is the one before `guess`: it missed, the next one is expected there.
  lane.mode = Lane::Mode::kAligned;
  lane.entered = true;
  jump(lane, lane.guess_sequence, lane.guess);
  Outcome outcome = miss;
  outcome.realigned = true;
  (void)id;
  return outcome;
}

Arena::Outcome Arena::hand_out(Lane& lane, PlanLookup::SlotIndex slot, Bytes requested,
                               std::uint64_t id) {
  const PlanLookup::Entry& entry = entries_[slot];
  walk(lane, entry.birth);
  lane.next = slot + 1;
  if (entry.cell == PlanLookup::kNone) return {Served::kUnplanned, nullptr, 0, false};
  if (dormant_) return {Served::kUnplanned, nullptr, 0, false};
  const Bytes size = rounded(requested);
  if (!may_have(lane, entry, size)) return {Served::kMissBusy, nullptr, 0, false};
  if (entry.shared) live_shared_.insert({entry.offset, entry.offset + size}, lane.plan_lane);
  cells_[entry.cell].slot = slot;
  cells_[entry.cell].id = id;
  note_handed_out(size, requested);
  return {Served::kHit, base_ + entry.offset, size, false};
}

bool Arena::may_have(const Lane& lane, const PlanLookup::Entry& entry, Bytes size) {
  const ByteRange bytes{entry.offset, entry.offset + size};
  if (cells_[entry.cell].slot != PlanLookup::kNone) return false;
  if (strays_.find_touching(bytes)) return false;
  if (entry.shared && live_shared_.find_touching(bytes)) return false;
  if (pins_.find_touching(bytes)) return false;
  return wait_for_guards(lane.key, bytes, entry.shared != 0);
}

bool Arena::wait_for_guards(LaneKey key, ByteRange bytes, bool shared) {
  if (guards_.empty()) return true;
  bool capturing = false;
  if (!device_.capturing(key, &capturing).ok()) {
    ++device_errors_;
    return false;
  }
  for (Guard& guard : guards_) {
    if (guard.source == key || !guard.bytes.touches(bytes) || (guard.shared_only && !shared))
      continue;
    if (std::find(guard.waited.begin(), guard.waited.end(), key) != guard.waited.end()) continue;
    if (capturing) return false;  // waiting for outside work voids a capture
    if (!device_.wait(key, guard.event).ok()) {
      ++device_errors_;
      return false;
    }
    guard.waited.push_back(key);
  }
  return true;
}

void Arena::make_stray(PlanLookup::CellIndex index) noexcept {
  Cell& cell = cells_[index];
  if (cell.slot & kOffSchedule) return;
  const PlanLookup::Entry& entry = entries_[cell.slot];
  strays_.insert({entry.offset, entry.offset + rounded(entry.requested)},
                 Stray{index, 0, 0, 0, false});
  cell.slot |= kOffSchedule;
  ++attention_;
}

// --- Frees --------------------------------------------------------------------------------------

Arena::Freed Arena::free_slowly(Bytes offset, std::optional<LaneKey> freeing) noexcept {
  Freed freed;
  LaneKey owner = 0;
  bool shared = false;
  const PlanLookup::CellIndex index = lookup_ ? lookup_->cell_at(offset) : PlanLookup::kNone;
  if (index != PlanLookup::kNone && cells_[index].slot != PlanLookup::kNone) {
    Cell& cell = cells_[index];
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    const PlanLookup::Entry& entry = entries_[slot];
    freed.late = (cell.slot & kOffSchedule) != 0;
    if (freed.late) strays_.erase(offset);
    if (entry.shared) live_shared_.erase(offset);
    shared = entry.shared != 0;
    const std::uint32_t plan_lane = lookup_->plan().sequences[lookup_->sequence_of(slot)].lane;
    for (const auto& lane : lanes_) {
      if (lane->mode != Lane::Mode::kUnbound && lane->plan_lane == plan_lane) owner = lane->key;
    }
    freed.requested = entry.requested;
    freed.id = cell.id;
    cell.slot = PlanLookup::kNone;
  } else {
    const Stray* stray = strays_.find(offset);
    if (stray == nullptr || stray->freed) return freed;
    freed.requested = stray->requested;
    freed.id = stray->id;
    freed.late = true;
    owner = stray->owner;
    strays_.erase(offset);
  }
  freed.found = true;
  freed.size = rounded(freed.requested);
  note_taken_back(freed.size, freed.requested);

  // Record first, let go after: the event must cover all work queued before the bytes count as
  // free.
  const ByteRange bytes{offset, offset + freed.size};
  bool guarded = true;
  if (freeing && *freeing != owner) guarded &= guard(bytes, *freeing, false);
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    if (uses_[i].offset != offset) continue;
    for (const LaneKey lane : uses_[i].lanes) guarded &= guard(bytes, lane, false);
    uses_[i] = std::move(uses_.back());
    uses_.pop_back();
    break;
  }
  if (shared) guarded &= guard(bytes, owner, true);
  if (!guarded) {
    freed.device_error = true;
    strays_.insert(bytes, Stray{PlanLookup::kNone, freed.requested, owner, freed.id, true});
  }
  recount();
  return freed;
}

// Makes other lanes wait, before they have the bytes, for all that `source` has queued until now.
bool Arena::guard(ByteRange bytes, LaneKey source, bool shared_only) noexcept {
  if (!device_.properties().asynchronous) return true;
  DeviceEvent event = 0;
  if (!device_.record(source, &event).ok()) {
    ++device_errors_;
    return false;
  }
  if (event == 0) return true;
  // A later event of the same lane covers an earlier one on the same bytes.
  for (Guard& guard : guards_) {
    if (guard.source != source || guard.bytes != bytes || guard.shared_only != shared_only)
      continue;
    device_.destroy(guard.event);
    guard.event = event;
    guard.waited.clear();
    return true;
  }
  guards_.push_back(Guard{bytes, event, source, shared_only, {}});
  if (!shared_only) ++attention_;
  return true;
}

void Arena::poll_guards(bool synchronized) noexcept {
  std::erase_if(guards_, [&](const Guard& guard) {
    bool complete = synchronized;
    if (!complete && !device_.query(guard.event, &complete).ok()) {
      ++device_errors_;
      complete = false;
    }
    if (complete) device_.destroy(guard.event);
    return complete;
  });
  if (synchronized) {
    std::vector<Bytes> done;
    for (const auto& [offset, stray] : strays_) {
      if (stray.second.freed) done.push_back(offset);
    }
    for (const Bytes offset : done) strays_.erase(offset);
  }
  recount();
}

void Arena::record_use(const void* pointer, LaneKey key) noexcept {
  const Bytes offset = static_cast<Bytes>(static_cast<const std::byte*>(pointer) - base_);
  const std::optional<Block> block = find(pointer);
  if (!block) return;
  for (Uses& uses : uses_) {
    if (uses.offset != offset) continue;
    if (std::find(uses.lanes.begin(), uses.lanes.end(), key) == uses.lanes.end())
      uses.lanes.push_back(key);
    return;
  }
  uses_.push_back({offset, {key}});
}

std::optional<Arena::Block> Arena::find(const void* pointer) const noexcept {
  const Bytes offset = static_cast<Bytes>(static_cast<const std::byte*>(pointer) - base_);
  const PlanLookup::CellIndex index = lookup_ ? lookup_->cell_at(offset) : PlanLookup::kNone;
  if (index != PlanLookup::kNone && cells_[index].slot != PlanLookup::kNone) {
    return Block{entries_[cells_[index].slot & ~kOffSchedule].requested, cells_[index].id};
  }
  const Stray* stray = strays_.find(offset);
  if (stray == nullptr || stray->freed) return std::nullopt;
  return Block{stray->requested, stray->id};
}

void Arena::pin(ByteRange range) {
  pins_.insert(range, 0);
  recount();
}

void Arena::unpin(ByteRange range) noexcept {
  pins_.erase(range.first);
  recount();
}

// --- Marks --------------------------------------------------------------------------------------

bool Arena::mark(LaneKey key) noexcept {
  if (!lookup_) return false;
  poll_guards();
  Lane& marking = lane_of(key);
  if (marking.mode == Lane::Mode::kUnbound && lookup_->plan().lane_keys.size() == 1) {
    // The step moved to another thread than it was recorded on.
    for (const auto& lane : lanes_) lane->mode = Lane::Mode::kUnbound;
    bind(marking, 0);
  }
  bool jumped = false;
  for (const auto& lane : lanes_) {
    if (lane->mode != Lane::Mode::kUnbound) jumped |= mark_lane(*lane);
  }
  if (marking.mode != Lane::Mode::kUnbound) select(marking);
  return jumped;
}

bool Arena::mark_lane(Lane& lane) noexcept {
  lane.requests_without_mark = 0;
  const std::uint32_t root = root_of(lane.plan_lane);
  if (paths_[root].size() == 0) return false;
  const bool sure = lane.mode == Lane::Mode::kAligned;
  const Path& here = path(lane);
  const std::uint32_t size = here.size();
  // Index of the next request; 0 where the path is at its end.
  std::uint32_t next = 0;
  if (lane.mode == Lane::Mode::kSearching) {
    next = lane.aligner.next();
  } else if (sure) {
    next = lane.next == lane.end ? (here.index(lane.next - 1) + 1) % size : here.index(lane.next);
  }
  const std::vector<std::uint32_t>& marks = here.marks();
  std::uint32_t target = 0;
  if (lane.mode != Lane::Mode::kResting && marks.size() > 1) {
    // The expected mark nearest to here, ahead or behind.
    std::uint32_t least = ~0u;
    for (const std::uint32_t mark : marks) {
      const std::uint32_t ahead = (mark + size - next) % size;
      const std::uint32_t distance = std::min(ahead, size - ahead);
      if (distance < least) {
        least = distance;
        target = mark;
      }
    }
  }
  lane.entered = true;
  if (sure && next == target) {
    commit_due_ = dormant_;
    return false;
  }
  lane.mode = Lane::Mode::kAligned;
  jump(lane, target == 0 ? root : lane.sequence, target);
  commit_due_ = dormant_;
  return true;
}

bool Arena::aligned(LaneKey key) const noexcept {
  for (const auto& lane : lanes_) {
    if (lane->key == key) return lane->mode == Lane::Mode::kAligned;
  }
  return false;
}

// --- Self-check ---------------------------------------------------------------------------------

std::string Arena::is_valid() const {
  Bytes live = 0;
  std::size_t planned_strays = 0;
  IntervalMap<int> all;
  for (PlanLookup::CellIndex index = 0; index < cells_.size(); ++index) {
    const Cell& cell = cells_[index];
    if (cell.slot == PlanLookup::kNone) continue;
    const PlanLookup::SlotIndex slot = cell.slot & ~kOffSchedule;
    const PlanLookup::Entry& entry = entries_[slot];
    if (entry.cell != index)
      return fmt::format("cell {} holds slot {} of cell {}", index, slot, entry.cell);
    const ByteRange bytes{entry.offset, entry.offset + rounded(entry.requested)};
    if (!all.insert(bytes, 0))
      return fmt::format("slot {} at {} overlaps another live block", slot, bytes.first);
    live += bytes.size();
    const Stray* stray = strays_.find(entry.offset);
    const bool off = (cell.slot & kOffSchedule) != 0;
    if (off != (stray != nullptr && stray->cell == index))
      return fmt::format("slot {} and the strays disagree", slot);
    planned_strays += off;
  }
  for (const auto& [offset, stray] : strays_) {
    if (stray.second.cell != PlanLookup::kNone) {
      --planned_strays;
      continue;
    }
    if (!all.insert({offset, stray.first}, 0))
      return fmt::format("stray at {} overlaps a live block", offset);
    if (!stray.second.freed) live += stray.first - offset;
  }
  if (planned_strays != 0) return "strays name cells that hold none";
  if (live != live_) return fmt::format("live is {}, a walk finds {}", live_, live);
  std::uint32_t guards = 0;
  for (const Guard& guard : guards_) guards += guard.shared_only ? 0 : 1;
  const std::size_t attention = strays_.size() + pins_.size() + guards + (dormant_ ? 1 : 0);
  if (attention != attention_)
    return fmt::format("attention is {}, a walk finds {}", attention_, attention);
  return {};
}

}  // namespace berth
