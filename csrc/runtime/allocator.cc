#include "csrc/runtime/allocator.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/plan/file.h"
#include "csrc/plan/program.h"
#include "csrc/runtime/allocator_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace berth {
namespace {

// An arena that is so many times as large as its bound is worth a warning.
constexpr Bytes kLooseArena = 2;

}  // namespace

// --- Start and end ------------------------------------------------------------------------------

Allocator::Allocator(Device& device, Options options)
    : state_(std::make_unique<State>(device, std::move(options))) {
  state_->open();
  state_->learning.run_errands(state_->mutex);
}

Allocator::~Allocator() {
  if (state_->forked) {
    (void)state_.release();  // its planner's thread, which cannot be joined, is the parent's
    return;
  }
  shut_down();
  // Its memory goes back under the lock that it shares with others.
  if (SpinMutex* const shared = state_->options.lock) {
    const std::lock_guard lock(*shared);
    state_.reset();
  }
}

Learning::Options Allocator::State::learning_options() {
  const bool learns = options.config.mode == Mode::kLearn;
  std::shared_ptr<PlanFolder> folder = plan_folder();
  return {.learns = learns,
          .planner = {.alignment = options.alignment,
                      .time_limit_seconds = options.config.plan_time_limit_seconds,
                      .plan_file = learns && !folder ? plan_file() : std::string(),
                      .folder = folder,
                      .program = options.program,
                      .in_place = !options.start_threads},
          .has_room = [this](const PlanLookup& plan) { return has_room(plan); },
          .make_room = [this](const PlanLookup& plan) { return make_room(plan); },
          .room_for_arena = [this](bool may_need_less) { return room_for_arena(may_need_less); }};
}

// Null where BERTH_PLAN names none, or no plan is asked for.
std::shared_ptr<PlanFolder> Allocator::State::plan_folder() const {
  const Mode mode = options.config.mode;
  if (mode != Mode::kLearn && mode != Mode::kServe) return nullptr;
  const std::string path = plan_file();
  if (!PlanFolder::is_named_by(path)) return nullptr;
  return std::make_shared<PlanFolder>(
      path, options.program, options.alignment,
      mode == Mode::kLearn ? PlanFolder::Access::kWrite : PlanFolder::Access::kRead);
}

PoolOptions Allocator::State::pool_options() {
  PoolOptions result = options.pool;
  // A device that gives more than it has, as that of a dry run, is not to end at its addresses.
  if (const Bytes limit = options.config.memory_limit; limit / 2 > device.properties().total_bytes)
    result.range_bytes = std::min(std::max(result.range_bytes, limit), kMaxBytes / 4);
  result.alignment = options.alignment;
  result.may_grow = [this](Bytes more, Bytes asked) {
    return store.held() + more <= allowance(asked);
  };
  result.moved = [this](void* to, void* from, Bytes size, bool lasts) {
    if (lasts)
      store.use_at(to, from, size);
    else
      held.moved(to, from, size);
  };
  if (BlockListener* const listener = options.listener) {
    result.completed = [this, listener](const PoolBlock& block) {
      listener->completed({block.pointer, block.requested, rounded(block.requested), block.lane});
    };
  }
  return result;
}

void Allocator::State::open() {
  Notes notes;
  const Config& config = options.config;
  // What is written at the end is named right at the start.
  for (const std::string* const name : {&config.trace, &config.plan, &config.stats})
    (void)expand_file_name(*name, options.program, options.device_index);
  switch (config.mode) {
    case Mode::kOff:
      break;
    case Mode::kRecord:
      (void)recording.begin(open_trace(config.trace));
      break;
    case Mode::kServe: {
      if (learning.folder() != nullptr) {
        open_folder();
        break;
      }
      Plan plan = read_plan(plan_file());
      BERTH_CHECK(plan.alignment == options.alignment, kInput,
                  "the plan '{}' aligns to {} bytes, this allocator to {}: plan the trace again",
                  plan_file(), plan.alignment, options.alignment);
      warn_of_other_program(plan);
      learning.serve_given(freeze(std::move(plan)), notes);
      break;
    }
    case Mode::kLearn: {
      learning.start();
      if (learning.folder() != nullptr) {
        open_folder();
        break;
      }
      if (config.plan.empty()) break;
      // It will be written anew: what is no plan is none of ours to replace, and is refused here.
      std::optional<Plan> plan = read_plan_if_there(plan_file());
      if (!plan || plan->alignment != options.alignment) break;
      warn_of_other_program(*plan);
      learning.serve_given(freeze(std::move(*plan)), notes);
      break;
    }
  }
  note_held();
  decide_watched();
}

// Which of its plans is this run's, its first requests tell. What is wrong in the folder is a
// warning, and the run goes on without; only who is to serve from it needs it.
void Allocator::State::open_folder() {
  const bool learns = options.config.mode == Mode::kLearn;
  PlanFolder::Listing listing;
  try {
    listing = learning.folder()->list();
  } catch (const Error& error) {
    if (!learns) throw;
    warn("plan-folder", error.what());
  }
  if (!listing.problems.empty())
    warn("plan-folder",
         fmt::format("{} of the plans in '{}' cannot be read, the first: {}",
                     listing.problems.size(), learning.folder()->path(), listing.problems.front()));
  if (!learns && listing.plans.empty())
    warn("plan-misfit",
         fmt::format("'{}' holds no plan of this program (torch '{}', device '{}', tag '{}'): the "
                     "pool serves all requests",
                     learning.folder()->path(), options.program.torch_version,
                     options.program.device_name, options.program.tag));
  if (!listing.plans.empty()) learning.look_among(std::move(listing.plans));
}

void Allocator::State::warn_of_other_program(const Plan& plan) {
  if (const auto difference = program_difference(plan.program, options.program)) {
    warn(
        "plan-mismatch",
        fmt::format("the plan was made for another program, its requests decide: {}", *difference));
  }
}

// A plan that is legal may still be a poor one: made by hand, or for another alignment.
std::shared_ptr<const PlanLookup> Allocator::State::freeze(Plan plan) const {
  if (plan.lower_bound != 0 && plan.arena_bytes > kLooseArena * plan.lower_bound) {
    warn("arena-loose",
         fmt::format("the plan's arena is {}, its bound {}: plan the trace again",
                     format_bytes(plan.arena_bytes), format_bytes(plan.lower_bound)));
  }
  return std::make_shared<const PlanLookup>(std::move(plan));
}

std::unique_ptr<Recorder> Allocator::State::open_trace(const std::string& file) const {
  return Recorder::open(expand_file_name(file, options.program, options.device_index),
                        options.program, options.alignment);
}

Recorder& Allocator::begin_recording(const std::string& file) {
  State& state = *state_;
  {  // before a file is made, which may be the one that is open
    const std::lock_guard lock(state.mutex);
    BERTH_CHECK(!state.shut && !state.forked, kUsage,
                "a recording was begun in a process that is ending, or in a forked child");
    state.recording.announce();
  }
  std::unique_ptr<Recorder> recorder;
  try {
    recorder = state.open_trace(file);
  } catch (...) {
    const std::lock_guard lock(state.mutex);
    state.recording.give_up();
    throw;
  }
  const std::lock_guard lock(state.mutex);
  Recorder& open = state.recording.begin(std::move(recorder));
  state.decide_watched();
  return open;
}

bool Allocator::end_recording() noexcept {
  State& state = *state_;
  Recorder* closing = nullptr;
  {
    const std::lock_guard lock(state.mutex);
    if (state.forked) return false;
    closing = state.recording.end();
    state.decide_watched();
  }
  if (closing != nullptr) closing->close();
  return closing != nullptr;
}

void Allocator::shut_down() noexcept {
  State& state = *state_;
  if (state.forked) return;  // set while there is one thread only
  // The planner's thread may need no lock of ours, but it must be gone before anything else is.
  state.learning.stop_planner();
  Recorder* closing = nullptr;
  {
    const std::lock_guard lock(state.mutex);
    if (std::exchange(state.shut, true)) return;
    state.learning.stop();
    closing = state.recording.end();
    state.decide_watched();
  }
  state.learning.run_errands(state.mutex);
  if (closing != nullptr) closing->close();
  if (state.options.config.verbose) report_summary();
  const std::string& stats_file = state.options.config.stats;
  if (stats_file.empty()) return;
  Notes notes;
  try {
    const std::string text = stats().to_json() + "\n";
    write_file_atomically(
        expand_file_name(stats_file, state.options.program, state.options.device_index),
        std::as_bytes(std::span(text)));
  } catch (const std::exception& error) {
    notes.add("stats-write", [&] { return error.what(); });
  }
}

// How a user sees that it works.
void Allocator::report_summary() const noexcept {
  try {
    const int index = state_->options.device_index;
    const Stats all = stats();
    report("summary",
           fmt::format("{}{}: {}{}{}", state_->device.properties().name,
                       index < 0 ? "" : fmt::format(" {}", index), all.to_line(),
                       all.device_memory.empty() ? "" : "; memory: ", all.device_memory));
  } catch (const std::bad_alloc&) {  // no memory for the text
  }
}

// Whoever synchronised the device in this call: what the arena keeps for that comes free, too.
void Allocator::State::note_held() noexcept {
  if (synchronizations != lane_events.synchronizations()) {
    arena.synchronized();
    synchronizations = lane_events.synchronizations();
  }
  counters.hold(arena.committed(), pool.reserved());
}

// --- Requests -----------------------------------------------------------------------------------

void* Allocator::allocate(Bytes size, LaneKey lane, trace::Tag tag) {
  if (size == 0) return nullptr;
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const std::uint64_t id = ++state.next_id;
  if (void* pointer = state.arena.serve(size, lane, id)) [[likely]] {
    ++state.counters.hits;
    state.counters.handed_out(state.rounded(size), size);
    if (state.watched) [[unlikely]] {
      const Errands errands(state.learning, state.mutex);
      const std::unique_lock held(std::move(lock));
      state.watch_request(pointer, size, lane, tag, id);
      state.tell_served(pointer, size, lane);
      return pointer;
    }
    state.tell_served(pointer, size, lane);
    return pointer;
  }
  const Errands errands(state.learning, state.mutex);
  Notes notes;
  const std::unique_lock held(std::move(lock));  // let go before the notes go out
  return state.allocate_slowly(size, lane, tag, id, notes);
}

void* Allocator::State::allocate_slowly(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id,
                                        Notes& notes) {
  const NotesHeld notes_held{*this};
  if (size <= kMaxBytes) store.set_target(pool_has_target() ? 0 : target(size));
  // mutant: parked-request
  if (parked.parked()) {
    try {
      unpark();
    } catch (...) {
      counters.count(Served::kUnplanned);  // every request has one outcome
      throw;
    }
  }
  hit_share.look(arena.plan() != nullptr, next_id, counters.hits + counters.hits_bucket);
  if (next_id >= parts_at) look_at_parts();
  const Arena::Outcome outcome = ask_arena(size, lane, tag, id);
  BERTH_CHECK(size <= kMaxBytes, kUsage, "a block of {} bytes was requested, the most is {}", size,
              kMaxBytes);
  if (arena.missing() != 0 && next_id >= fill_at) fill_arena(false);
  void* const pointer =
      outcome.pointer != nullptr ? outcome.pointer : allocate_elsewhere(size, lane, tag, id, notes);
  if (watched) watch_request(pointer, size, lane, tag, id);
  tell_served(pointer, size, lane);
  return pointer;
}

// What lies free in parts of pages counts against what may be held beyond what lives: where it is
// most of that, they are used before whole pages. What buckets leave may be more: their blocks are
// found again without a search. Looks now and then, so that a request pays for a few blocks.
void Allocator::State::look_at_parts() noexcept {
  constexpr std::uint64_t kLeastDistance = 16, kBlocksPaid = 8, kNever = ~std::uint64_t{0};
  if (!device.properties().aliases) parts_at = kNever;
  if (parts_at == kNever || captured()) return;
  parts_at = next_id + std::max(kLeastDistance, (pool.blocks() + arena.places()) / kBlocksPaid);
  const Bytes target = store.target();
  const Bytes spare = target - std::min(target, counters.live_peak);
  try {
    using Growth = Pool::Growth;
    const Bytes parts = pool.parts() + arena.spare_parts();
    // mutant: target-parts
    const bool crowded = parts > spare / 4 * 3;
    // mutant: target-tight
    fallback.set_growth(!crowded                ? Growth::kFree
                        : parts > spare / 2 * 3 ? Growth::kTight
                                                : Growth::kDense);
    arena.set_crowded(crowded);
    // mutant: target-buckets
    arena.set_most_left(spare / 2 * 5);
  } catch (const std::bad_alloc&) {  // then as before
  }
}

// Every request has one outcome, whatever its asker gets: it is counted before anything may fail.
Arena::Outcome Allocator::State::ask_arena(Bytes size, LaneKey lane, trace::Tag tag,
                                           std::uint64_t id) noexcept {
  Arena::Outcome outcome;
  try {
    if (size <= kMaxBytes) outcome = arena.serve_slowly(size, lane, id);
  } catch (const std::bad_alloc&) {
    // Host memory is short: the pool may still have a block.
  }
  counters.count(outcome.served);
  if (outcome.pointer != nullptr) counters.handed_out(outcome.size, size);
  counters.realigned += outcome.realigned;
  if (outcome.pointer == nullptr && outcome.served != Served::kUnplanned)
    note_miss(outcome.served, size, lane, tag);
  note_held();  // the arena may have taken pages
  return outcome;
}

void Allocator::State::note_miss(Served missed, Bytes size, LaneKey lane, trace::Tag tag) noexcept {
  using Reason = Miss::Reason;
  Miss miss{.reason = Reason::kLane, .lane = lane, .came = size, .tag = tag};
  if (const std::optional<Walk::Expected> expected = arena.expected(lane, missed)) {
    miss.reason = missed == Served::kMissBusy ? Reason::kBusy
                  : expected->size == 0       ? Reason::kLost
                                              : Reason::kSize;
    miss.kind = expected->kind;
    miss.position = expected->index;
    miss.requests = expected->requests;
    miss.expected = expected->size;
  }
  misses.add(miss, arena.plan().get());
}

// What learns, records or checks hears of every request.
void Allocator::State::watch_request(void* pointer, Bytes size, LaneKey lane, trace::Tag tag,
                                     std::uint64_t id) {
  trace::LaneId recorded = 0;
  try {  // what may fail comes before anybody has heard of the block
    recorded = recording.lane(lane);
    if (overlap_check) overlap_check->add(pointer, rounded(size), id);
  } catch (...) {
    give_back(pointer);
    throw;
  }
  if (learning.listens()) learning.request(id, size, lane, tag);
  recording.append(trace::Request{id, size, recorded, tag});
}

void* Allocator::State::allocate_elsewhere(Bytes size, LaneKey lane, trace::Tag tag,
                                           std::uint64_t id, Notes& notes) {
  BERTH_CHECK(!forked, kUsage,
              "a block of {} was requested in a forked child: berth serves the parent only",
              format_bytes(size));
  if (pool_has_target()) store.set_target(target(size));
  void* const pointer = fallback.allocate(size, lane, tag, id);
  // Without marks, the sequence itself is searched now and then, and a plan is taken up as soon as
  // it is there.
  // mutant: s13-adopt
  if (!captured()) {
    try {  // the request is served, whatever becomes of the plan
      arena.grow_bucket();
      learning.missed(next_id, notes);
    } catch (const std::exception&) {
      ++counters.plan_failures;
    }
    decide_watched();
  }
  return pointer;
}

// A block that its asker never gets.
void Allocator::State::give_back(void* pointer) {
  if (arena.contains(pointer)) {
    const Arena::Freed freed = arena.free(pointer);
    counters.taken_back(freed.size, freed.requested);
  } else {
    PoolBlock* const block = pool.find(pointer);
    tell_served(pointer, block->requested, block->lane);  // so that it hears of both
    fallback.free(block, std::nullopt);
  }
}

// --- Frees --------------------------------------------------------------------------------------

Allocator::FreeOutcome Allocator::free(void* pointer) noexcept {
  State& state = *state_;
  FreeOutcome outcome;
  {
    const std::lock_guard lock(state.mutex);
    if (!state.watched && state.arena.contains(pointer) && state.take_back_quickly(pointer))
        [[likely]]
      return FreeOutcome::kDone;
    outcome = state.free_slowly(pointer, std::nullopt);
  }
  state.learning.run_errands(state.mutex);
  return outcome;
}

Allocator::FreeOutcome Allocator::free(void* pointer, LaneKey lane) noexcept {
  const Errands errands(state_->learning, state_->mutex);
  const std::lock_guard lock(state_->mutex);
  return state_->free_slowly(pointer, lane);
}

Allocator::FreeOutcome Allocator::State::free_slowly(void* pointer,
                                                     std::optional<LaneKey> freeing) noexcept {
  if (pointer == nullptr) return FreeOutcome::kDone;
  const bool planned = arena.contains(pointer);
  if (!planned && !pool.contains(pointer)) return FreeOutcome::kForeign;
  if (forked) return FreeOutcome::kDone;
  std::uint64_t id = 0;
  PoolBlock* block = nullptr;
  bool found = false;
  if (planned) {
    const Arena::Freed freed = arena.free(pointer, freeing);
    found = freed.found;
    id = freed.id;
    counters.taken_back(freed.size, freed.requested);
    counters.late_frees += freed.late;
    if (found && options.listener != nullptr)
      options.listener->freed({pointer, freed.requested, freed.size, freed.owner}, false);
  } else if ((block = pool.find(pointer)) != nullptr) {
    found = true;
    id = block->id;
  }
  if (!found) {
    ++counters.misuses;
    return FreeOutcome::kUnknown;
  }
  ++counters.frees;
  if (overlap_check) overlap_check->remove(pointer);
  if (learning.listens()) learning.free(id);
  // The entry comes before any other that could name the same bytes: the lock is still held.
  recording.append(trace::Free{id});
  if (block != nullptr) {
    fallback.free(block, freeing);
    note_held();
  }
  return FreeOutcome::kDone;
}

bool Allocator::pin(const void* pointer) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.arena.contains(pointer)) return state.arena.pin(pointer);
  PoolBlock* const block = state.pool.find(pointer);
  if (block == nullptr) return false;
  state.pool.pin(block);
  return true;
}

bool Allocator::unpin(const void* pointer) noexcept {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.forked) return false;
  if (state.arena.contains(pointer)) return state.arena.unpin(pointer);
  return state.pool.unpin(pointer);
}

bool Allocator::allocate_at(void* pointer, Bytes size, LaneKey lane) noexcept {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.parked.parked()) return false;
  if (state.fallback.allocate_at(pointer, size, lane, state.next_id + 1) == nullptr) return false;
  ++state.next_id;
  state.counters.count(Served::kUnplanned);
  state.tell_served(pointer, size, lane);
  return true;
}

void Allocator::record_use(const void* pointer, LaneKey lane) {
  if (pointer == nullptr) return;
  State& state = *state_;
  const Errands errands(state.learning, state.mutex);
  const std::lock_guard lock(state.mutex);
  std::uint64_t id = 0;
  const trace::LaneId recorded = state.recording.lane(lane);
  if (state.arena.contains(pointer)) {
    const auto block = state.arena.find(pointer);
    if (!block) return;
    id = block->id;
    state.arena.record_use(pointer, lane);
  } else if (PoolBlock* block = state.pool.find(pointer)) {
    if (block->lane == lane) return;
    id = block->id;
    // mutant: s1-pool
    state.pool.record_use(block, lane);
  } else {
    return;
  }
  if (state.learning.listens()) state.learning.use(id, lane);
  state.recording.append(trace::Use{id, recorded});
}

// --- Queries ------------------------------------------------------------------------------------

std::optional<Allocator::BlockInfo> Allocator::find(const void* pointer) const noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->arena.contains(pointer)) {
    const auto block = state_->arena.find(pointer);
    if (!block) return std::nullopt;
    return BlockInfo{block->requested, block->id, block->lane, true};
  }
  const PoolBlock* block = state_->pool.find(pointer);
  if (block == nullptr) return std::nullopt;
  return BlockInfo{block->requested, block->id, block->lane, false};
}

bool Allocator::planning() const noexcept { return state_->learning.planning(); }

bool Allocator::contains(const void* pointer) const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->arena.contains(pointer) || state_->pool.contains(pointer);
}

Recorder* Allocator::recorder() noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->recording.recorder();
}

Stats Allocator::stats() const {
  const State& state = *state_;
  const std::lock_guard lock(state.mutex);
  Stats stats = state.counters;
  stats.requests = state.next_id;
  stats.device_errors += state.arena.device_errors() + state.lane_events.device_errors();
  stats.driver_calls = state.device.driver_calls();
  stats.device_memory = state.device.properties().memory;
  stats.stitched = state.pool.stats().stitched;
  stats.pages_moved = state.arena.pages_moved();
  stats.trace_entries_lost = state.recording.lost();
  stats.misses = state.misses.most();
  if (state.parked.parked()) {
    stats.parked = state.parked.bytes();
    stats.reserved = stats.pool_reserved = 0;
  }
  stats.live_peak = std::max(stats.live_peak, state.counters.live_peak_before);
  if (state.arena.plan()) {
    stats.arena = state.arena.plan()->plan().arena_bytes;
    stats.arena_bound = state.arena.plan()->plan().lower_bound;
  }
  return stats;
}

void Allocator::process_events() noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->parked.parked()) return;  // what comes free would give pages back
  const State::NotesHeld notes_held{*state_};
  state_->pool.process_events();
  state_->arena.poll_guards();
}

std::uint64_t Allocator::holes() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->pool.stats().holes;
}

void Allocator::for_each_stretch(
    const std::function<void(const Stretch&, bool arena)>& visit) const {
  const std::lock_guard lock(state_->mutex);
  if (state_->parked.parked()) return;
  state_->for_each_stretch(visit);
}

void Allocator::State::for_each_stretch(
    const std::function<void(const Stretch&, bool arena)>& visit) const {
  pool.for_each_stretch([&](const Stretch& stretch) { visit(stretch, false); });
  for (const Stretch& stretch : arena.stretches()) visit(stretch, true);
}

std::string Allocator::is_valid() const {
  const State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (std::string broken = state.arena.is_valid(); !broken.empty()) return "arena: " + broken;
  if (std::string broken = state.pool.is_valid(); !broken.empty()) return "pool: " + broken;
  const PoolStats pool = state.pool.stats();
  const Accounts& counted = state.counters;
  if (pool.live != counted.pool_live)
    return fmt::format("pool_live is {}, the pool says {}", counted.pool_live, pool.live);
  if (const Bytes live = state.arena.live(); live != counted.planned_live())
    return fmt::format("live of the arena is {}, a walk finds {}", counted.planned_live(), live);
  if (pool.reserved != counted.pool_reserved)
    return fmt::format("pool_reserved is {}, the pool says {}", counted.pool_reserved,
                       pool.reserved);
  if (const Bytes held = pool.reserved + state.arena.committed(); held != counted.reserved)
    return fmt::format("reserved is {}, arena and pool hold {}", counted.reserved, held);
  return state.check_held();
}

// What is counted, what is told and what is shown is what is held.
std::string Allocator::State::check_held() const {
  if (held.bytes() != store.held())
    return fmt::format("{} B are in use, the store holds {}", held.bytes(), store.held());
  if (parked.parked() || !held.complete()) return {};
  if (store.held() != counters.reserved)
    return fmt::format("reserved is {}, the store holds {}", counters.reserved, store.held());
  std::vector<ByteRange> shown;
  for_each_stretch([&](const Stretch& stretch, bool) {
    const Bytes first = reinterpret_cast<Bytes>(stretch.base);
    shown.push_back({first, first + stretch.size});
  });
  std::sort(shown.begin(), shown.end(), [](ByteRange a, ByteRange b) { return a.first < b.first; });
  const std::vector<ByteRange> told = held.stretches();
  const auto [one, other] = std::mismatch(shown.begin(), shown.end(), told.begin(), told.end());
  if (one == shown.end() && other == told.end()) return {};
  const auto name = [](auto at, const std::vector<ByteRange>& of) {
    return at == of.end() ? std::string("none")
                          : fmt::format("{:#x} to {:#x}", at->first, at->last);
  };
  return fmt::format("{} stretches are shown and {} told of; the first that differ are {} and {}",
                     shown.size(), told.size(), name(one, shown), name(other, told));
}

}  // namespace berth
