#include "csrc/runtime/arena.h"

#include <algorithm>
#include <utility>

// Where the lanes of an arena stand, and how their requests and marks are served.
namespace berth {

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
    const auto plan_lane = static_cast<std::uint32_t>(it - keys.begin());
    const bool taken = std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& other) {
      return other->mode != Lane::Mode::kUnbound && other->plan_lane == plan_lane;
    });
    if (it != keys.end() && !taken) bind(lane, plan_lane);
  }
  return lane;
}

// A lane that is aligned is served on the fast path until another lane asks.
void Arena::select(Lane& lane) noexcept {
  fast_key_ = lane.key;
  fast_lane_ = lane.mode == Lane::Mode::kAligned ? &lane : nullptr;
}

void Arena::bind(Lane& lane, std::uint32_t plan_lane) noexcept {
  if (root_of(plan_lane) == PlanLookup::kNone || paths_[root_of(plan_lane)].size() == 0) return;
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
  all_astray_ = false;
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
  gaps_.lane = nullptr;
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
  memory_.step_starts();
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
    // After a jump to the fork, the slot left aside may be live as if it was born now.
    if (lane.next < lane.end) expire(lane.next);
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
  gaps_.lane = nullptr;
  lane.sequence = sequence;
  lane.parent_ends = path(lane).sequences().size() > 1;
  expect(lane, index);
  lane.position = entries_[lane.next].birth;
  rebuild_strays(lane);
}

// --- Requests -----------------------------------------------------------------------------------

Arena::Outcome Arena::serve_slowly(Bytes requested, LaneKey key, std::uint64_t id) {
  if (!lookup_) return {};
  tend_guards();
  Lane& lane = lane_of(key);
  Outcome outcome;
  if (lane.mode != Lane::Mode::kUnbound) ++lane.requests_without_mark;
  switch (lane.mode) {
    case Lane::Mode::kUnbound:
      return Outcome::missed(Served::kMissLane);
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
  if (lane.mode == Lane::Mode::kResting && outcome.served == Served::kMissSize)
    outcome = lend_idle(lane, requested, id, outcome);
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
  const std::uint32_t index = path(lane).index(lane.next);
  if (!first_surprise_) first_surprise_ = {index, entries_[lane.next].requested, requested};
  lane.aligner.start(index, path(lane).size());
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
    return Outcome::missed(Served::kMissSize);
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
      return Outcome::missed(Served::kMissSize);
    }
  }
  if (lane.aligner.settled()) lane.mode = Lane::Mode::kAligned;
  Outcome outcome = hand_out(lane, lane.next, requested, id);
  outcome.realigned = moved;
  return outcome;
}

Arena::Outcome Arena::allocate_resting(Lane& lane, Bytes requested, std::uint64_t id) {
  const Outcome miss = Outcome::missed(lane.entered ? Served::kMissSize : Served::kUnplanned);
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
  if (entry.cell == PlanLookup::kNone) return Outcome::missed(Served::kUnplanned);
  if (memory_.asleep()) return Outcome::missed(Served::kUnplanned);
  const Bytes size = rounded(requested);
  if (!may_have(lane, entry, size)) return lend(lane, entry, requested, id);
  if (filling() && !memory_.ensure({entry.offset, entry.offset + size}))
    return Outcome::missed(Served::kMissBusy);
  if (entry.shared) live_shared_.insert({entry.offset, entry.offset + size}, lane.plan_lane);
  cells_[entry.cell].slot = slot;
  cells_[entry.cell].id = id;
  return Outcome::handed_out(Served::kHit, memory_.base() + entry.offset, size);
}

bool Arena::may_have(const Lane& lane, const PlanLookup::Entry& entry, Bytes size) {
  const ByteRange bytes{entry.offset, entry.offset + size};
  if (cells_[entry.cell].slot != PlanLookup::kNone) return false;
  if (strays_.find_touching(bytes)) return false;
  if (entry.shared && live_shared_.find_touching(bytes)) return false;
  if (pins_.find_touching(bytes)) return false;
  return guards_.wait(lane.key, bytes, entry.shared ? Guards::Binds::kShared : Guards::Binds::kAll);
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

// --- Marks --------------------------------------------------------------------------------------

bool Arena::mark(LaneKey key) {
  poll_guards();
  if (!lookup_) return false;
  Lane& marking = lane_of(key);
  if (marking.mode == Lane::Mode::kUnbound && lookup_->plan().lane_keys.size() == 1) {
    // The step moved to another thread than it was recorded on.
    // What the thread before left live or queued is not this one's: as after a change of plan.
    const bool taken_over = std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
      return lane->mode != Lane::Mode::kUnbound;
    });
    if (taken_over) {
      const bool asleep = memory_.asleep();
      const Status again =
          activate(std::shared_ptr<const PlanLookup>(lookup_), Commit::kAtStepStart);
      if (!again.ok()) return false;
      if (!asleep) (void)commit(Device::Residency::kOnDemand);
    }
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
  memory_.step_starts();
  if (sure && next == target) return false;
  lane.mode = Lane::Mode::kAligned;
  jump(lane, target == 0 ? root : lane.sequence, target);
  return true;
}

bool Arena::aligned(LaneKey key) const noexcept {
  for (const auto& lane : lanes_) {
    if (lane->key == key) return lane->mode == Lane::Mode::kAligned;
  }
  return false;
}

}  // namespace berth
