#include "csrc/runtime/walk.h"

#include "csrc/core/check.h"

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
  order = PathOrder(lookup, paths);
  starts = roots;
  std::size_t slots = 0;
  for (const Path& path : paths) slots += path.size();
  if (paths.size() == roots.size() || slots > Path::kMostCovered) return;
  for (Path& path : paths) path.find_covered(lookup);
  weigh(lookup);
  find_starts();
}

void Walk::Paths::weigh(const PlanLookup& lookup) {
  for (const Path& path : paths) {
    std::vector<float>& weights = weights_.emplace_back();
    weights.reserve(path.size());
    double sum = 0;
    for (std::uint32_t i = 0; i < path.size(); ++i) {
      const PlanLookup::Entry& entry = lookup.entry(path.slot(i));
      if (entry.cell != PlanLookup::kNone)
        sum += static_cast<double>(entry.requested) * static_cast<double>(entry.length);
      weights.push_back(static_cast<float>(sum));
    }
  }
}

void Walk::Paths::find_starts() {
  for (std::uint32_t& start : starts) {
    if (start == PlanLookup::kNone) continue;
    const std::uint32_t root = start;
    order.for_each_alike(root, 0, [&](std::uint32_t sequence) {
      if (live_longer(sequence, start) && order.begins_as(root, sequence, paths[sequence].size()))
        start = sequence;
      return false;
    });
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
  paths_ = {};
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

void Walk::expect(Lane& lane, PathPlace place) noexcept {
  BERTH_ASSERT(is_on_path(lane, place), "request {} of path {}, the lane is on path {}",
               place.index, place.sequence, lane.sequence);
  if (!is_on_path(lane, place)) [[unlikely]]
    return jump(lane, {lane.sequence, 0});
  set_next(lane, place.index);
}

void Walk::set_next(Lane& lane, std::uint32_t index) noexcept {
  lane.next = lane.counted = path(lane).slot(index);
  lane.end = path(lane).run_end(index);
}

// Those that were served as expected, one after the other, moved `next` only.
void Walk::count_requests(Lane& lane) noexcept {
  lane.requests_since_mark += lane.next - lane.counted;
  lane.counted = lane.next;
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
    expect(lane, {lane.sequence, index});
  } else if (!take_branch(lane, requested)) {
    pass_step_end(lane);
  }
}

// After a branch the next step begins on the root's path: a jump.
void Walk::pass_step_end(Lane& lane) noexcept {
  ++step_ends_;
  lane.outgrown = false;
  lane.misses = lane.surprises = 0;
  const std::uint32_t root = root_of(lane), start = start_of(lane);
  // mutant: kinds-branch-end
  if (lane.sequence != root || start != root) return jump(lane, {start, 0});
  pass_root_end(lane);
  expect(lane, {root, 0});
}

// Time is a circle: the ends up to the period, then those at tick 0.
void Walk::pass_root_end(Lane& lane) noexcept {
  const std::uint32_t root = lane.sequence;
  const std::uint32_t period = lookup_->plan().sequences[root].period;
  for (std::uint32_t tick = lane.position + 1; tick < period; ++tick) {
    // mutant: ends-circle
    for (const SlotIndex slot : lookup_->ends_at(root, tick)) occupancy_.expire(slot);
  }
  lane.position = 0;
  // mutant: ends-zero
  for (const SlotIndex slot : lookup_->ends_at(root, 0)) occupancy_.expire(slot);
}

// At a fork, and wherever else the request is not the path's next one.
bool Walk::take_branch(Lane& lane, Bytes requested) noexcept {
  const std::uint32_t index =
      lane.next < lane.end ? path(lane).index(lane.next) : path(lane).size();
  std::uint32_t best = PlanLookup::kNone;
  for_each_way(lane, index, requested, [&](std::uint32_t sequence) {
    if (best == PlanLookup::kNone || prefers(sequence, best)) best = sequence;
  });
  if (best == PlanLookup::kNone) return false;
  jump(lane, {best, index});
  return true;
}

// The path goes on in a bucket, unless the request is one of another bucket and not of this: short
// inputs may take other kernels than long ones.
bool Walk::is_next_bucket(Lane& lane, Bytes requested) noexcept {
  if (!lookup_->is_bucket(lane.next)) return false;
  // mutant: kinds-between
  if (branches() && !is_between(lane.next, requested)) (void)take_bucket(lane, requested);
  return true;
}

// The request is of no kind that was seen: a bucket stands for many, whatever they ask for here.
// Of several it is the first whose steps asked for less and for more; from another bucket only to
// such a one.
bool Walk::take_bucket(Lane& lane, Bytes requested) noexcept {
  if (!branches()) return false;
  const std::uint32_t index = path(lane).index(lane.next);
  std::uint32_t bucket = PlanLookup::kNone, between = PlanLookup::kNone;
  paths_.order.for_each_alike(lane.sequence, index, [&](std::uint32_t sequence) {
    const Path& way = paths_.paths[sequence];
    if (index >= way.size() || !lookup_->is_bucket(way.slot(index))) return false;
    bucket = std::min(bucket, sequence);
    if (is_between(way.slot(index), requested)) between = std::min(between, sequence);
    return false;
  });
  if (between != PlanLookup::kNone)
    bucket = between;
  else if (lookup_->is_bucket(lane.next))
    return false;
  if (bucket == PlanLookup::kNone) return false;
  jump(lane, {bucket, index});
  return true;
}

// A step begins, and there are blocks that an earlier one left: it is of a kind that has room for
// them.
void Walk::choose_start(Lane& lane, Bytes requested) noexcept {
  if (occupancy_.off_schedule() > kMostLeft) return;
  const auto fits = [&](std::uint32_t sequence) {
    const SlotIndex slot = paths_.paths[sequence].slot(0);
    return entries_[slot].requested == requested || in_bucket(slot, requested);
  };
  std::uint32_t best = fits(lane.sequence) ? lane.sequence : PlanLookup::kNone;
  paths_.order.for_each_alike(lane.sequence, 0, [&](std::uint32_t sequence) {
    if (paths_.paths[sequence].size() == 0 || !fits(sequence)) return false;
    if (best == PlanLookup::kNone || prefers(sequence, best)) best = sequence;
    return false;
  });
  if (best != PlanLookup::kNone && best != lane.sequence) jump(lane, {best, 0});
}

bool Walk::prefers(std::uint32_t a, std::uint32_t b) const noexcept {
  if (occupancy_.off_schedule() != 0 && occupancy_.off_schedule() <= kMostLeft) {
    const Bytes first = in_the_way(a), second = in_the_way(b);
    if (first != second) return first < second;
  }
  if (paths_.live_longer(a, b)) return true;
  return a < b && !paths_.live_longer(b, a);
}

// Bytes of a path that are off schedule, and that it leaves to nobody as it begins.
Bytes Walk::in_the_way(std::uint32_t sequence) const noexcept {
  const std::vector<ByteRange>& covered = paths_.paths[sequence].covered();
  Bytes bytes = 0;
  occupancy_.for_each_off_schedule([&](ByteRange range, SlotIndex slot) {
    if (slot != PlanLookup::kNone && wraps(slot)) return;
    auto at = std::upper_bound(covered.begin(), covered.end(), range.first,
                               [](Bytes first, ByteRange r) { return first < r.last; });
    for (; at != covered.end() && at->first < range.last; ++at)
      bytes += std::min(at->last, range.last) - std::max(at->first, range.first);
  });
  return bytes;
}

// What lives until it is born again is in its own way where its path begins again.
bool Walk::wraps(SlotIndex slot) const noexcept {
  const std::uint32_t period = lookup_->plan().sequences[lookup_->sequence_of(slot)].period;
  const PlanLookup::Entry& entry = entries_[slot];
  return std::uint64_t{entry.birth} + entry.length > period && entry.length < period;
}

// --- Jumps
// ----------------------------------------------------------------------------------------

bool Walk::on_schedule(const Lane& lane, SlotIndex slot) const noexcept {
  // mutant: x-left-branch
  if (path(lane).index(slot) == path(lane).size()) return false;
  const Sequence& own = lookup_->plan().sequences[lookup_->sequence_of(slot)];
  const std::uint32_t period = own.period;
  const PlanLookup::Entry& entry = entries_[slot];
  if (lane.position >= period) return false;
  // What a branch leaves alive at its end is off schedule in later steps, whichever these are.
  // mutant: x-branch-wraps
  if (own.parent >= 0 && lane.position < entry.birth) return false;
  const std::uint32_t age = lane.position >= entry.birth ? lane.position - entry.birth
                                                         : lane.position + period - entry.birth;
  // mutant: ends-jump
  return age < entry.length;
}

// Afterwards off schedule is what the plan did not put there, and what it would not have alive now.
void Walk::jump(Lane& lane, PathPlace place) noexcept {
  ++jumps_;
  // mutant: branch-before
  const std::vector<std::uint32_t>& before = path(lane).sequences();
  const std::uint32_t position = lane.position;
  lane.sequence = place.sequence;
  // mutant: branch-jump
  lane.parent_ends = path(lane).sequences().size() > 1;
  BERTH_ASSERT(place.index < path(lane).size(), "request {} of {}", place.index, path(lane).size());
  set_next(lane, place.index < path(lane).size() ? place.index : 0);
  lane.position = entries_[lane.next].birth;
  // mutant: x-jump
  occupancy_.rebuild(before, position, [&](SlotIndex slot) { return on_schedule(lane, slot); });
}

void Walk::leave_schedule(const Lane& lane) noexcept {
  occupancy_.rebuild(path(lane).sequences(), lane.position, [](SlotIndex) { return false; });
}

// --- Requests
// -------------------------------------------------------------------------------------

Walk::Step Walk::next(Lane& lane, Bytes requested) noexcept {
  count_requests(lane);
  ++lane.requests_since_mark;
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
  lane.counted = lane.next;
  return step;
}

Walk::Step Walk::next_aligned(Lane& lane, Bytes requested) noexcept {
  if (lane.next == lane.end) pass_run_end(lane, requested);
  if (branches() && occupancy_.off_schedule() != 0 && lane.next == path(lane).slot(0))
    choose_start(lane, requested);
  if (entries_[lane.next].requested == requested || take_branch(lane, requested) ||
      is_next_bucket(lane, requested) || take_bucket(lane, requested)) {
    if (requested > entries_[lane.next].requested) outgrow(lane);
    return {.slot = lane.next++};
  }
  lane.mode = Lane::Mode::kSearching;
  const std::uint32_t index = path(lane).index(lane.next);
  if (!first_surprise_) first_surprise_ = {index, entries_[lane.next].requested, requested};
  start_aligning(lane);
  return next_searching(lane, requested);
}

// A step that is larger than its bucket goes to the pool for most of what it asks for. For the rest
// of it the lane follows the plan like one that searches: what is not needed soon may be lent.
void Walk::outgrow(Lane& lane) noexcept {
  lane.mode = Lane::Mode::kSearching;
  lane.outgrown = true;
  lane.aligner.start(path(lane).index(lane.next) + 1, path(lane).size());
  lane.aligned_path = lane.sequence;
}

void Walk::start_aligning(Lane& lane) noexcept {
  lane.aligner.start(path(lane).index(lane.next), path(lane).size());
  lane.aligned_path = lane.sequence;
}

Walk::Step Walk::next_searching(Lane& lane, Bytes requested) noexcept {
  if (lane.next == lane.end) pass_run_end(lane, requested);
  // Since the last request the lane may have changed its path (other_way()).
  if (lane.aligned_path != lane.sequence) start_aligning(lane);
  const std::uint32_t size = path(lane).size();
  const std::uint32_t expected = path(lane).index(lane.next);
  const std::optional<std::uint32_t> found = lane.aligner.feed(requested, *lookup_, path(lane));
  if (!found) {
    if (lane.aligner.lost()) rest(lane, PlanLookup::kWindow);
    return {};
  }
  const PathPlace place{lane.sequence, *found};
  const bool moved = place.index != expected;
  if (moved) {
    const std::uint32_t forward = (place.index + size - expected) % size;
    if (forward > Aligner::kReach) {
      jump(lane, place);
    } else if (place.index > expected) {
      // Skipped slots were not born: the walk to the next birth does all that is to be done.
      expect(lane, place);
    } else {
      // mutant: path-end
      begin_again(lane, place);
    }
  }
  if (lane.aligner.settled() && !lane.outgrown) lane.mode = Lane::Mode::kAligned;
  return {.slot = lane.next++, .realigned = moved};
}

// The step ended before its last requests came, and `place` is of the next one.
void Walk::begin_again(Lane& lane, PathPlace place) noexcept {
  ++step_ends_;
  lane.outgrown = false;
  lane.misses = lane.surprises = 0;
  const std::uint32_t start = start_of(lane);
  if (lane.sequence != root_of(lane)) {
    jump(lane, place);
  } else if (start == lane.sequence) {
    pass_root_end(lane);
    expect(lane, place);
  } else {
    // The path that a step begins on makes the requests of the root's, to its own end.
    // mutant: path-again
    jump(lane, place.index < paths_.paths[start].size() ? PathPlace{start, place.index} : place);
  }
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
  if (has_marks && !lane.entered && lane.requests_since_mark < 3 * std::uint64_t{size}) return miss;

  guess(lane, requested);
  if (lane.run < lane.run_needed) return miss;
  // The request just seen is the one before `guess`: it missed, the next one is expected there.
  lane.mode = Lane::Mode::kAligned;
  lane.entered = true;
  jump(lane, lane.guess);
  miss.realigned = true;
  return miss;
}

// Which slot would be next if the last requests were what they look like, and for how many of them
// that holds.
void Walk::guess(Lane& lane, Bytes requested) noexcept {
  const std::vector<Path>& paths = paths_.paths;
  PathPlace& guess = lane.guess;
  const bool goes_on =
      lane.run != 0 && entries_[paths[guess.sequence].slot(guess.index)].requested == requested;
  if (goes_on) {
    ++lane.run;
    guess.index = (guess.index + 1) % paths[guess.sequence].size();
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
      guess = {s, after};
      lane.run = PlanLookup::kWindow;
    }
  }
}

// --- Marks
// ----------------------------------------------------------------------------------------

// Of the marks before which so many requests are expected as came since the last one, else of all
// where the place is `known`, the one nearest to it, ahead or behind. Nothing of a single mark.
std::optional<std::uint32_t> Walk::nearest_mark(const Path& path, std::uint32_t next,
                                                std::uint64_t came, bool known) noexcept {
  const std::vector<std::uint32_t>& marks = path.marks();
  std::optional<std::uint32_t> nearest;
  if (marks.size() < 2) return nearest;
  const std::uint32_t size = path.size();
  bool as_many = false;
  std::uint32_t least = ~0u;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const std::uint32_t before = i == 0 ? marks.back() : marks[i - 1];
    // mutant: kinds-phase
    const bool equal = (marks[i] + size - before) % size == came;
    if ((as_many && !equal) || (!known && !equal)) continue;
    const std::uint32_t ahead = (marks[i] + size - next) % size;
    const std::uint32_t distance = std::min(ahead, size - ahead);
    if (as_many == equal && distance >= least) continue;
    as_many = equal;
    least = distance;
    nearest = marks[i];
  }
  return nearest;
}

bool Walk::mark(Lane& lane) noexcept {
  count_requests(lane);
  const std::uint64_t came = std::exchange(lane.requests_since_mark, 0);
  lane.outgrown = false;
  lane.misses = lane.surprises = 0;
  const bool sure = lane.mode == Lane::Mode::kAligned;
  const Path& here = path(lane);
  const std::uint32_t size = here.size();
  // Index of the next request; 0 where the path is at its end.
  std::uint32_t next = 0;
  if (lane.mode == Lane::Mode::kSearching && lane.aligned_path == lane.sequence) {
    next = lane.aligner.next();
  } else if (sure) {
    next = lane.next == lane.end ? (here.index(lane.next - 1) + 1) % size : here.index(lane.next);
  }
  const std::uint32_t target =
      nearest_mark(here, next, came, lane.mode != Lane::Mode::kResting).value_or(0);
  lane.entered = true;
  if (sure && next == target) {
    // Whatever comes next, another path does not go on from here.
    if (target == 0 && lane.next == lane.end && branches()) pass_step_end(lane);
    return false;
  }
  lane.mode = Lane::Mode::kAligned;
  jump(lane, {target == 0 ? start_of(lane) : lane.sequence, target});
  return true;
}

Walk::Expected Walk::expected(const Lane& lane, bool slot_found) const noexcept {
  Expected expected{.kind = lane.sequence, .requests = path(lane).size()};
  if (slot_found || (lane.mode != Lane::Mode::kResting && lane.next < lane.end)) {
    const SlotIndex slot = slot_found ? lane.next - 1 : lane.next;
    expected.index = path(lane).index(slot);
    expected.size = entries_[slot].requested;
  } else {
    expected.index = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(lane.requests_since_mark - 1, ~std::uint32_t{0}));
  }
  return expected;
}

}  // namespace berth
