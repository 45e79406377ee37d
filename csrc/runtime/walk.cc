#include "csrc/runtime/walk.h"

#include <algorithm>
#include <utility>

namespace berth {

Walk::Paths::Paths(const PlanLookup& lookup) {
  const Plan& plan = lookup.plan();
  roots.assign(plan.lane_keys.size(), PlanLookup::kNone);
  for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
    paths.emplace_back(lookup, s);
    if (plan.sequences[s].parent < 0) roots[plan.sequences[s].lane] = s;
  }
}

void Walk::follow(const PlanLookup& lookup, Paths paths) noexcept {
  lookup_ = &lookup;
  entries_ = &lookup.entry(0);
  paths_ = std::move(paths);
  first_surprise_.reset();
}

void Walk::leave() noexcept {
  lookup_ = nullptr;
  entries_ = nullptr;
  paths_.paths.clear();
  paths_.roots.clear();
}

// The start of a program looks like its steps in places; a whole step of equal requests is no
// accident.
void Walk::start(Lane& lane) noexcept {
  lane.sequence = root_of(lane);
  rest(lane, path(lane).size());
}

void Walk::rest(Lane& lane, std::uint32_t run_needed) noexcept {
  lane.mode = Lane::Mode::kResting;
  lane.seen = 0;
  lane.run = 0;
  lane.all_astray = false;
  lane.run_needed = std::max<std::uint32_t>(run_needed, PlanLookup::kWindow);
}

void Walk::expect(Lane& lane, std::uint32_t index) noexcept {
  lane.next = path(lane).slot(index);
  lane.end = path(lane).run_end(index);
}

// --- Forward
// --------------------------------------------------------------------------------------

void Walk::expire_ancestors(Lane& lane) noexcept {
  for (const std::uint32_t sequence : path(lane).sequences()) {
    if (sequence == lane.sequence || lane.position >= lookup_->plan().sequences[sequence].period)
      continue;
    for (const SlotIndex slot : lookup_->ends_at(sequence, lane.position)) occupancy_.expire(slot);
  }
}

// Where the lane stands at the end of a run of slots: the path goes on in another sequence, or a
// branch leaves here, or the step ends.
void Walk::pass_run_end(Lane& lane, Bytes requested) noexcept {
  const std::uint32_t index = path(lane).index(lane.next - 1) + 1;
  if (index < path(lane).size()) {
    expect(lane, index);
  } else if (!take_branch(lane, requested)) {
    pass_step_end(lane);
  }
}

// Time is a circle: the ends up to the period, then those at tick 0.
void Walk::pass_step_end(Lane& lane) noexcept {
  ++step_ends_;
  for (const std::uint32_t sequence : path(lane).sequences()) {
    const std::uint32_t period = lookup_->plan().sequences[sequence].period;
    for (std::uint32_t tick = lane.position + 1; tick < period; ++tick) {
      for (const SlotIndex slot : lookup_->ends_at(sequence, tick)) occupancy_.expire(slot);
    }
  }
  const std::uint32_t root = root_of(lane);
  if (lane.sequence != root) {
    // What a branch leaves alive is apart from every path, but only the root's ends are walked from
    // here on.
    for (const Occupancy::Cell& cell : occupancy_.cells()) {
      if (cell.slot >= Occupancy::kOffSchedule) continue;
      const std::uint32_t sequence = lookup_->sequence_of(cell.slot);
      if (sequence != root && lookup_->plan().sequences[sequence].lane == lane.plan_lane)
        occupancy_.expire(cell.slot);
    }
    lane.sequence = root;
    lane.parent_ends = false;
  }
  lane.position = 0;
  for (const SlotIndex slot : lookup_->ends_at(root, 0)) occupancy_.expire(slot);
  expect(lane, 0);
}

bool Walk::take_branch(Lane& lane, Bytes requested) noexcept {
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
    if (lane.next < lane.end) occupancy_.expire(lane.next);
    lane.sequence = child;
    lane.parent_ends = true;
    expect(lane, path(lane).index(lookup_->first_slot(child)));
    return true;
  }
  return false;
}

// --- Jumps
// ----------------------------------------------------------------------------------------

bool Walk::on_schedule(const Lane& lane, SlotIndex slot) const noexcept {
  if (path(lane).index(slot) == path(lane).size()) return false;
  const std::uint32_t period = lookup_->plan().sequences[lookup_->sequence_of(slot)].period;
  const PlanLookup::Entry& entry = entries_[slot];
  if (lane.position >= period) return false;
  const std::uint32_t age = lane.position >= entry.birth ? lane.position - entry.birth
                                                         : lane.position + period - entry.birth;
  return age < entry.length;
}

// For a lane that stood at `position` of `sequence`.
template <class OnSchedule>
void Walk::rebuild(std::uint32_t sequence, std::uint32_t position,
                   OnSchedule&& on_schedule) noexcept {
  if (lookup_->plan().sequences[sequence].parent < 0) {
    occupancy_.rebuild(sequence, position, on_schedule);
  } else {
    occupancy_.rebuild_all(sequence, on_schedule);
  }
}

// Afterwards off schedule is what the plan did not put there, and what it would not have alive now.
void Walk::jump(Lane& lane, std::uint32_t sequence, std::uint32_t index) noexcept {
  ++jumps_;
  const std::uint32_t before = lane.sequence, position = lane.position;
  lane.sequence = sequence;
  lane.parent_ends = path(lane).sequences().size() > 1;
  expect(lane, index);
  lane.position = entries_[lane.next].birth;
  rebuild(before, position, [&](SlotIndex slot) { return on_schedule(lane, slot); });
}

void Walk::leave_schedule(const Lane& lane) noexcept {
  rebuild(lane.sequence, lane.position, [](SlotIndex) { return false; });
}

// --- Requests
// -------------------------------------------------------------------------------------

Walk::Step Walk::next(Lane& lane, Bytes requested) noexcept {
  ++lane.requests_without_mark;
  Step step;
  switch (lane.mode) {
    case Lane::Mode::kAligned:
      step = next_aligned(lane, requested);
      break;
    case Lane::Mode::kSearching:
      step = next_searching(lane, requested);
      break;
    case Lane::Mode::kResting:
      step = next_resting(lane, requested);
      break;
  }
  return step;
}

Walk::Step Walk::next_aligned(Lane& lane, Bytes requested) noexcept {
  if (lane.next == lane.end) pass_run_end(lane, requested);
  if (entries_[lane.next].requested == requested || take_branch(lane, requested))
    return {.slot = lane.next++};
  lane.mode = Lane::Mode::kSearching;
  const std::uint32_t index = path(lane).index(lane.next);
  if (!first_surprise_) first_surprise_ = {index, entries_[lane.next].requested, requested};
  lane.aligner.start(index, path(lane).size());
  return next_searching(lane, requested);
}

Walk::Step Walk::next_searching(Lane& lane, Bytes requested) noexcept {
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
    if (lane.aligner.lost()) rest(lane, PlanLookup::kWindow);
    return {};
  }
  const bool moved = *found != expected;
  if (moved) {
    const std::uint32_t forward = (*found + size - expected) % size;
    if (forward > Aligner::kReach) {
      jump(lane, lane.sequence, *found);
    } else if (*found > expected) {
      // Skipped slots were not born: the walk to the next birth does all that is to be done.
      expect(lane, *found);
    } else if (lane.sequence == root_of(lane)) {
      pass_step_end(lane);
      expect(lane, *found);
    } else {
      rest(lane, PlanLookup::kWindow);
      return {};
    }
  }
  if (lane.aligner.settled()) lane.mode = Lane::Mode::kAligned;
  return {.slot = lane.next++, .realigned = moved};
}

Walk::Step Walk::next_resting(Lane& lane, Bytes requested) noexcept {
  Step miss{.known = lane.entered};
  if (lane.seen == PlanLookup::kWindow) {
    std::move(lane.window.begin() + 1, lane.window.end(), lane.window.begin());
    --lane.seen;
  }
  lane.window[lane.seen++] = requested;

  // A program that marks its steps starts at a mark; one that stopped doing so is followed like one
  // that never did.
  const bool has_marks = !lookup_->plan().sequences[root_of(lane)].marks.empty();
  const std::uint32_t size = path(lane).size();
  if (has_marks && !lane.entered && lane.requests_without_mark < 3 * std::uint64_t{size})
    return miss;

  guess(lane, requested);
  if (lane.run < lane.run_needed) return miss;
  // The request just seen is the one before `guess`: it missed, the next one is expected there.
  lane.mode = Lane::Mode::kAligned;
  lane.entered = true;
  jump(lane, lane.guess_sequence, lane.guess);
  miss.realigned = true;
  return miss;
}

// Which slot would be next if the last requests were what they look like, and for how many of them
// that holds.
void Walk::guess(Lane& lane, Bytes requested) noexcept {
  const std::vector<Path>& paths = paths_.paths;
  const bool goes_on =
      lane.run != 0 && entries_[paths[lane.guess_sequence].slot(lane.guess)].requested == requested;
  if (goes_on) {
    ++lane.run;
    lane.guess = (lane.guess + 1) % paths[lane.guess_sequence].size();
    return;
  }
  lane.run = 0;
  if (lane.seen != PlanLookup::kWindow) return;
  // The nearest place ahead where the last few requests occur in this order.
  std::uint32_t least = ~0u;
  const std::vector<Sequence>& sequences = lookup_->plan().sequences;
  for (std::uint32_t s = 0; s < sequences.size(); ++s) {
    if (sequences[s].lane != lane.plan_lane || paths[s].size() == 0) continue;
    const std::uint32_t here = std::min(path(lane).index(lane.next), paths[s].size() - 1);
    for (const std::uint32_t after : lookup_->positions_after(s, lane.window)) {
      const std::uint32_t ahead = (after + paths[s].size() - here) % paths[s].size();
      if (ahead >= least) continue;
      least = ahead;
      lane.guess_sequence = s;
      lane.guess = after;
      lane.run = PlanLookup::kWindow;
    }
  }
}

// --- Marks
// ----------------------------------------------------------------------------------------

bool Walk::mark(Lane& lane) noexcept {
  lane.requests_without_mark = 0;
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
  if (sure && next == target) return false;
  lane.mode = Lane::Mode::kAligned;
  jump(lane, target == 0 ? root_of(lane) : lane.sequence, target);
  return true;
}

}  // namespace berth
