#include "csrc/runtime/allocator.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/core/interval_map.h"
#include "csrc/core/spin_mutex.h"
#include "csrc/plan/file.h"
#include "csrc/plan/program.h"
#include "csrc/plan/verify.h"
#include "csrc/pool/mobility.h"
#include "csrc/pool/pool.h"
#include "csrc/runtime/arena.h"
#include "csrc/runtime/learner.h"
#include "csrc/runtime/planner.h"
#include "csrc/runtime/settings.h"

#include <berth/warnings.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth {
namespace {

// Warnings that came up under the lock; they go out when it is free.
class Notes {
 public:
  ~Notes() {
    for (const auto& [name, text] : notes_) warn(name, text);
  }
  void add(std::string_view name, std::string text) { notes_.emplace_back(name, std::move(text)); }

 private:
  std::vector<std::pair<std::string_view, std::string>> notes_;
};

// In the first step of an arena the pool gives pages back when so much was freed.
constexpr Bytes kTrimEvery = Bytes{4} << 20;
// Small, so that the pool gives back what lies between the weights when the arena takes over.
constexpr Bytes kPoolGrowth = Bytes{64} << 10;
// A plan is learned again when this share of a step's requests missed, in so many steps in a row.
constexpr double kMissShare = 0.01;
constexpr unsigned kMissingSteps = 3;
// Without marks, so many requests stand for a step.
constexpr std::uint64_t kRequestsPerWindow = 4096;

}  // namespace

struct Allocator::State {
  State(Device& the_device, Options the_options)
      : device(the_device),
        options(std::move(the_options)),
        arena(device, options.alignment),
        pool(device, PoolOptions{.alignment = options.alignment, .growth_bytes = kPoolGrowth}),
        learner(options.alignment),
        planner(Planner::Options{options.alignment, options.config.plan_time_limit_seconds,
                                 options.config.mode == Mode::kLearn ? plan_file() : std::string(),
                                 !options.start_threads}),
        full_check(options.config.check == CheckLevel::kFull) {}

  [[nodiscard]] std::string plan_file() const {
    return expand_file_name(options.config.plan, options.program, options.device_index);
  }
  [[nodiscard]] Bytes rounded(Bytes size) const noexcept {
    return align_up(size, options.alignment);
  }

  void open();
  void warn_of_other_program(const Plan& plan);
  std::shared_ptr<const PlanLookup> freeze(Plan plan) const;

  void* allocate_slowly(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id, Notes& notes);
  void* allocate_elsewhere(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id,
                           Notes& notes);
  void watch_request(void* pointer, Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id);
  void decide_watched() noexcept {
    watched = full_check || learner.active() || recorder != nullptr;
  }
  PoolBlock* search_everywhere(Bytes size, LaneKey lane, Mobility mobility);
  [[nodiscard]] std::string exhaustion(Bytes size, LaneKey lane);
  void give_back(void* pointer);
  void stop_learning() noexcept;
  void check_hand_out(void* pointer, Bytes size, std::uint64_t id);
  FreeOutcome free_slowly(void* pointer, std::optional<LaneKey> freeing) noexcept;
  void free_pool_block(PoolBlock* block, std::optional<LaneKey> freeing);

  void step_ended(LaneKey lane, Notes& notes);
  void adopt_plan(Notes& notes);
  void commit_arena(Notes& notes);
  void settle();
  [[nodiscard]] bool arena_is_allowed(Bytes wanted) const noexcept;
  void refuse_arena(Bytes wanted, const std::string& reason, Notes& notes);
  void watch_misses();
  void limit_pool();
  trace::LaneId recorded_lane(LaneKey key);

  Device& device;
  const Options options;
  mutable SpinMutex mutex;
  Arena arena;
  Pool pool;
  MobilityClassifier mobility;
  Learner learner;
  Planner planner;
  std::unique_ptr<Recorder> recorder;
  const bool full_check;
  bool watched = false;  // full_check, or the learner or the recorder is at work

  Stats counters;
  std::uint64_t next_id = 0;  // of blocks; also counts requests
  Bytes pool_live = 0, pool_requested = 0;
  Bytes reserved_peak = 0;
  bool forked = false, shut = false;
  bool arena_refused = false;    // said once that the arena does not fit
  std::uint64_t settled_at = 0;  // the request at which the arena's first step is over; 0: it is
  Bytes freed_unsettled = 0;     // by the pool since it last gave pages back in that step

  std::uint64_t window_requests = 0, window_hits = 0;  // when the current step began
  unsigned missing_steps = 0;
  std::uint64_t relearn_after = 0;  // steps to wait before learning again
  unsigned relearns = 0;

  std::unordered_map<PoolBlock*, std::vector<LaneKey>> pool_uses;
  std::vector<std::pair<LaneKey, trace::LaneId>> recorded_lanes;
  IntervalMap<std::uint64_t> live_bytes;  // under BERTH_CHECK=full: every live block, by address
};

// --- Start and end ------------------------------------------------------------------------------

Allocator::Allocator(Device& device, Options options)
    : state_(std::make_unique<State>(device, std::move(options))) {
  state_->open();
}

Allocator::~Allocator() { shut_down(); }

void Allocator::State::open() {
  limit_pool();
  const Config& config = options.config;
  switch (config.mode) {
    case Mode::kOff:
      break;
    case Mode::kRecord:
      recorder =
          Recorder::open(expand_file_name(config.trace, options.program, options.device_index),
                         options.program, options.alignment);
      break;
    case Mode::kServe: {
      Plan plan = read_plan(plan_file());
      BERTH_CHECK(plan.alignment == options.alignment, kInput,
                  "the plan '{}' aligns to {} bytes, this allocator to {}: plan the trace again",
                  plan_file(), plan.alignment, options.alignment);
      warn_of_other_program(plan);
      // The first steps need the pool; the arena takes its memory over at the first mark.
      const Status status = arena.activate(freeze(std::move(plan)), true);
      if (!status.ok()) {
        warn("arena-memory",
             fmt::format("cannot reserve the arena of '{}', all goes to the pool: {}", plan_file(),
                         device.describe(status)));
      }
      break;
    }
    case Mode::kLearn:
      learner.start();
      if (!config.plan.empty()) {
        try {
          Plan plan = read_plan(plan_file());
          if (plan.alignment == options.alignment) {
            warn_of_other_program(plan);
            if (arena.activate(freeze(std::move(plan)), true).ok()) learner.stop();
          }
        } catch (const Error&) {
          // No plan yet, or one that is no good: it will be written anew.
        }
      }
      break;
  }
  limit_pool();
  decide_watched();
}

void Allocator::State::warn_of_other_program(const Plan& plan) {
  if (const auto difference = program_difference(plan.program, options.program)) {
    warn(
        "plan-mismatch",
        fmt::format("the plan was made for another program, its requests decide: {}", *difference));
  }
}

std::shared_ptr<const PlanLookup> Allocator::State::freeze(Plan plan) const {
  return std::make_shared<const PlanLookup>(std::move(plan));
}

void Allocator::shut_down() noexcept {
  State& state = *state_;
  // The planner's thread may need no lock of ours, but it must be gone before anything else is.
  state.planner.stop();
  std::unique_ptr<Recorder> recorder;
  std::string stats_file;
  {
    const std::lock_guard lock(state.mutex);
    if (std::exchange(state.shut, true) || state.forked) return;
    state.learner.stop();
    if (state.recorder) state.counters.trace_entries_lost = state.recorder->counts().lost;
    stats_file = state.options.config.stats;
    recorder = std::move(state.recorder);
    state.decide_watched();
  }
  if (recorder) recorder->close();
  if (stats_file.empty()) return;
  try {
    const std::string text = stats().to_json() + "\n";
    write_file_atomically(
        expand_file_name(stats_file, state.options.program, state.options.device_index),
        std::as_bytes(std::span(text)));
  } catch (const std::exception& error) {
    warn("stats-write", error.what());
  }
}

// What the arena holds, the pool must not take.
void Allocator::State::limit_pool() {
  Bytes limit = device.properties().total_bytes;
  if (options.config.memory_limit != 0) limit = std::min(limit, options.config.memory_limit);
  pool.set_limit(limit > arena.committed() ? limit - arena.committed() : 1);
  reserved_peak = std::max(reserved_peak, arena.committed() + pool.stats().reserved);
}

// --- Requests -----------------------------------------------------------------------------------

void* Allocator::allocate(Bytes size, LaneKey lane, trace::Tag tag) {
  if (size == 0) return nullptr;
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const std::uint64_t id = ++state.next_id;
  if (void* pointer = state.arena.serve(size, lane, id)) [[likely]] {
    ++state.counters.hits;
    if (state.watched) [[unlikely]]
      state.watch_request(pointer, size, lane, tag, id);
    return pointer;
  }
  Notes notes;
  const std::unique_lock held(std::move(lock));  // let go before the notes go out
  return state.allocate_slowly(size, lane, tag, id, notes);
}

void* Allocator::State::allocate_slowly(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id,
                                        Notes& notes) {
  BERTH_CHECK(size <= kMaxBytes, kUsage, "a block of {} bytes was asked for, the most is {}", size,
              kMaxBytes);
  const Arena::Outcome outcome = arena.allocate(size, lane, id);
  counters.realigned += outcome.realigned;
  void* pointer = outcome.pointer;
  switch (outcome.served) {
    case Served::kHit:
      ++counters.hits;
      break;
    case Served::kLent:
      ++counters.lent;
      break;
    case Served::kMissSize:
      ++counters.misses_size;
      break;
    case Served::kMissBusy:
      ++counters.misses_busy;
      break;
    case Served::kMissLane:
      ++counters.misses_lane;
      break;
    case Served::kUnplanned:
      ++counters.unplanned;
      break;
  }
  if (arena.commit_due()) commit_arena(notes);
  if (settled_at != 0 && next_id >= settled_at && counters.steps == 0) settle();
  if (pointer == nullptr) pointer = allocate_elsewhere(size, lane, tag, id, notes);
  if (watched) watch_request(pointer, size, lane, tag, id);
  return pointer;
}

// What learns, records or checks hears of every request.
void Allocator::State::watch_request(void* pointer, Bytes size, LaneKey lane, trace::Tag tag,
                                     std::uint64_t id) {
  if (full_check) check_hand_out(pointer, rounded(size), id);
  if (learner.active()) {
    try {
      learner.request(id, size, lane, tag);
    } catch (const std::bad_alloc&) {
      stop_learning();
    }
  }
  if (recorder) recorder->append(trace::Request{id, size, recorded_lane(lane), tag});
}

void* Allocator::State::allocate_elsewhere(Bytes size, LaneKey lane, trace::Tag tag,
                                           std::uint64_t id, Notes& notes) {
  BERTH_CHECK(!forked, kUsage,
              "a block of {} was asked for in a forked child: berth serves the parent only",
              format_bytes(size));
  const Mobility kind = mobility.classify(size, lane, tag);
  PoolBlock* block = pool.allocate(size, lane, kind);
  if (block == nullptr) block = search_everywhere(size, lane, kind);
  if (block == nullptr) throw OutOfMemory(exhaustion(size, lane));
  block->id = id;
  block->born = mobility.now();
  block->tag = tag;
  pool_live += block->size;
  pool_requested += size;
  arena.set_live_beside(pool_live);
  reserved_peak = std::max(reserved_peak, arena.committed() + pool.stats().reserved);
  switch (kind) {
    case Mobility::kMovable:
      ++counters.pool_low;
      break;
    case Mobility::kTemporary:
      ++counters.pool_high;
      break;
    case Mobility::kResident:
      ++counters.pool_resident;
      break;
  }
  // Without marks, the sequence itself is searched now and then, and a plan is taken up as soon as
  // it is there.
  if (options.config.mode == Mode::kLearn && !shut) {
    try {  // the request is served, whatever becomes of the plan
      if (learner.worth_searching() && !planner.busy()) {
        learner.search_later();
        planner.submit(learner.snapshot(options.program));
      }
      if (counters.steps == 0 && planner.ready()) adopt_plan(notes);
    } catch (const std::exception&) {
      ++counters.plan_failures;
    }
    if (counters.steps == 0 &&
        next_id - window_requests >= std::max(kRequestsPerWindow, 2 * arena.slot_count())) {
      watch_misses();
    }
  }
  return block->pointer;
}

// The pool is exhausted: events, the arena where it idles, cached memory, a synchronisation.
PoolBlock* Allocator::State::search_everywhere(Bytes size, LaneKey lane, Mobility kind) {
  if (pool.process_events() != 0) {
    if (PoolBlock* block = pool.allocate(size, lane, kind)) return block;
  }
  if (arena.retire() != 0) {
    limit_pool();
    if (PoolBlock* block = pool.allocate(size, lane, kind)) return block;
  }
  if (pool.trim() != 0) {
    if (PoolBlock* block = pool.allocate(size, lane, kind)) return block;
  }
  if (device.synchronize_all().ok()) {
    arena.poll_guards(true);
    pool.process_events();
    return pool.allocate(size, lane, kind);
  }
  ++counters.device_errors;
  return nullptr;
}

std::string Allocator::State::exhaustion(Bytes size, LaneKey lane) {
  const PoolStats held = pool.stats();
  Bytes free = 0;
  if (!device.free_bytes(&free).ok()) ++counters.device_errors;
  // What holds the most, by size of request.
  std::map<Bytes, std::pair<Bytes, std::uint64_t>> by_size;
  pool.for_each_block([&](const PoolBlock& block) {
    auto& [bytes, count] = by_size[block.requested];
    bytes += block.size;
    ++count;
  });
  std::pair<Bytes, std::pair<Bytes, std::uint64_t>> most{};
  for (const auto& entry : by_size) {
    if (entry.second.first > most.second.first) most = entry;
  }
  return fmt::format(
      "out of memory on {}: asked {} for lane {}; live {} (planned {}, pool {}), reserved {} of "
      "{}, largest free block "
      "low {} and high {}, {} free on the device; the pool holds most in {} blocks of {}",
      device.properties().name, format_bytes(size), lane, format_bytes(arena.live() + pool_live),
      format_bytes(arena.live()), format_bytes(pool_live),
      format_bytes(arena.committed() + held.reserved),
      format_bytes(options.config.memory_limit != 0 ? options.config.memory_limit
                                                    : device.properties().total_bytes),
      format_bytes(held.largest_low), format_bytes(held.largest_high), format_bytes(free),
      most.second.second, format_bytes(most.first));
}

// A block that its asker never gets.
void Allocator::State::give_back(void* pointer) {
  if (arena.contains(pointer)) {
    arena.free(pointer);
  } else {
    free_pool_block(pool.find(pointer), std::nullopt);
  }
}

// What the learner has heard is not whole: host memory is short.
void Allocator::State::stop_learning() noexcept {
  learner.stop();
  ++counters.plan_failures;
  decide_watched();
}

// Promise A, the slow way.
void Allocator::State::check_hand_out(void* pointer, Bytes size, std::uint64_t id) {
  const auto address = reinterpret_cast<Bytes>(pointer);
  const ByteRange bytes{address, address + size};
  try {
    if (live_bytes.insert(bytes, id)) return;
  } catch (const std::bad_alloc&) {
    give_back(pointer);
    throw;
  }
  const auto other = live_bytes.find_touching(bytes);
  const std::string text =
      fmt::format("block {} of {} at {:#x} would share bytes with live block {} at {:#x}: stopped",
                  id, format_bytes(size), address, *live_bytes.find(other->first), other->first);
  // The block is not handed out; the one it would have hit is untouched.
  give_back(pointer);
  throw Error(ErrorKind::kInput, text);
}

trace::LaneId Allocator::State::recorded_lane(LaneKey key) {
  for (const auto& [known, id] : recorded_lanes) {
    if (known == key) return id;
  }
  recorded_lanes.emplace_back(key, recorder->lane(key));
  return recorded_lanes.back().second;
}

// --- Frees --------------------------------------------------------------------------------------

Allocator::FreeOutcome Allocator::free(void* pointer) noexcept {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (!state.watched && state.arena.contains(pointer) && state.arena.take_back(pointer))
      [[likely]] {
    ++state.counters.frees;
    return FreeOutcome::kDone;
  }
  return state.free_slowly(pointer, std::nullopt);
}

Allocator::FreeOutcome Allocator::free(void* pointer, LaneKey lane) noexcept {
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
    counters.late_frees += freed.late;
  } else if ((block = pool.find(pointer)) != nullptr) {
    found = true;
    id = block->id;
  }
  if (!found) {
    ++counters.misuses;
    return FreeOutcome::kUnknown;
  }
  ++counters.frees;
  if (full_check) live_bytes.erase(reinterpret_cast<Bytes>(pointer));
  if (learner.active()) {
    try {
      learner.free(id);
    } catch (const std::bad_alloc&) {
      stop_learning();
    }
  }
  // The entry comes before any other that could name the same bytes: the lock is still held.
  if (recorder) recorder->append(trace::Free{id});
  if (block != nullptr) free_pool_block(block, freeing);
  return FreeOutcome::kDone;
}

void Allocator::State::free_pool_block(PoolBlock* block, std::optional<LaneKey> freeing) {
  const Bytes size = block->size;
  pool_live -= size;
  pool_requested -= block->requested;
  arena.set_live_beside(pool_live);
  mobility.learn(block->requested, block->lane, block->tag, block->born);
  std::vector<LaneKey> lanes;
  if (freeing && *freeing != block->lane) lanes.push_back(*freeing);
  if (!pool_uses.empty()) {
    const auto uses = pool_uses.find(block);
    if (uses != pool_uses.end()) {
      lanes.insert(lanes.end(), uses->second.begin(), uses->second.end());
      pool_uses.erase(uses);
    }
  }
  if (lanes.empty() || !device.properties().asynchronous) {
    pool.free(block);
    if (settled_at != 0 && (freed_unsettled += size) >= kTrimEvery) {
      freed_unsettled = 0;
      pool.trim();
    }
    return;
  }
  std::vector<DeviceEvent> events;
  for (const LaneKey lane : lanes) {
    DeviceEvent event = 0;
    if (!device.record(lane, &event).ok()) {
      // No event, no proof: only a synchronisation gives one.
      ++counters.device_errors;
      if (!device.synchronize_all().ok()) return;  // the bytes stay reserved, unused
      continue;
    }
    events.push_back(event);
  }
  pool.free_after(block, std::move(events));
}

void Allocator::record_use(const void* pointer, LaneKey lane) {
  if (pointer == nullptr) return;
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  std::uint64_t id = 0;
  if (state.arena.contains(pointer)) {
    const auto block = state.arena.find(pointer);
    if (!block) return;
    id = block->id;
    state.arena.record_use(pointer, lane);
  } else if (PoolBlock* block = state.pool.find(pointer)) {
    if (block->lane == lane) return;
    id = block->id;
    std::vector<LaneKey>& lanes = state.pool_uses[block];
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
  } else {
    return;
  }
  if (state.learner.active()) state.learner.use(id, lane);
  if (state.recorder) state.recorder->append(trace::Use{id, state.recorded_lane(lane)});
}

// --- Steps and plans ----------------------------------------------------------------------------

void Allocator::mark_step(LaneKey lane) noexcept {
  Notes notes;
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.forked) return;
  try {
    state.step_ended(lane, notes);
  } catch (const std::exception& error) {
    ++state.counters.plan_failures;
    notes.add("plan-failed", error.what());
  }
}

void Allocator::State::step_ended(LaneKey lane, Notes& notes) {
  ++counters.steps;
  pool.process_events();
  if (recorder) recorder->append(trace::StepMark{recorded_lane(lane)});
  if (options.config.mode == Mode::kLearn && !shut) {
    watch_misses();
    if (learner.active() && learner.mark(lane) && !planner.busy() && !planner.ready()) {
      planner.submit(learner.snapshot(options.program));
    }
    if (planner.ready()) adopt_plan(notes);
  }
  counters.realigned += arena.mark(lane);
  if (settled_at != 0 && next_id >= settled_at) settle();
  if (arena.commit_due()) commit_arena(notes);
  mobility.mark_step();
}

// Switches to the plan that the planner made. Blocks still alive stay where they are.
void Allocator::State::adopt_plan(Notes& notes) {
  const std::optional<Planner::Result> result = planner.take();
  if (!result || !result->plan) return;  // nothing repeats yet
  const Status status = arena.activate(result->plan, true);
  if (!status.ok()) {
    refuse_arena(result->plan->plan().arena_bytes, device.describe(status), notes);
    return;
  }
  ++counters.plans_learned;
  learner.stop();
  decide_watched();
  missing_steps = 0;
}

// Gives the arena its memory at the start of a step. It takes what the pool does not need now:
// memory is not held twice.
//
// Where pages come by themselves the arena's come as its first step touches them: what the step
// before left in the pool (gradients) goes in that step, and its pages go back at once. At that
// step's end all that is left is made resident.
void Allocator::State::commit_arena(Notes& notes) {
  const DeviceProperties& properties = device.properties();
  const bool gradually = properties.maps_pages && !properties.asynchronous;
  pool.trim();
  if (arena_is_allowed(arena.plan()->plan().arena_bytes) &&
      arena.commit(gradually ? Device::Residency::kOnDemand : Device::Residency::kResident)) {
    settled_at = gradually ? next_id + arena.slot_count() - arena.slot_count() / 8 : 0;
    freed_unsettled = 0;
  } else {
    const Bytes wanted = arena.plan()->plan().arena_bytes;
    arena.rest();
    refuse_arena(wanted, "the device has not got that much", notes);
  }
  limit_pool();
}

// Whether the limit that the user set leaves room for an arena beside the pool.
bool Allocator::State::arena_is_allowed(Bytes wanted) const noexcept {
  const Bytes limit = options.config.memory_limit;
  return limit == 0 || (wanted <= limit && pool.stats().reserved <= limit - wanted);
}

void Allocator::State::settle() {
  settled_at = 0;
  pool.trim();
  arena.make_resident();
}

void Allocator::State::refuse_arena(Bytes wanted, const std::string& reason, Notes& notes) {
  ++counters.plan_failures;
  if (std::exchange(arena_refused, true)) return;
  notes.add("arena-memory", fmt::format("an arena of {} cannot be had, all goes to the pool: {}",
                                        format_bytes(wanted), reason));
}

// Learns again when the plan no longer describes the steps.
void Allocator::State::watch_misses() {
  const std::uint64_t requests = next_id - window_requests;
  const std::uint64_t hits = counters.hits - window_hits;
  window_requests = next_id;
  window_hits = counters.hits;
  if (!arena.plan() || learner.active() || requests == 0) return;
  if (relearn_after > 0) {
    --relearn_after;
    return;
  }
  const auto unplanned = static_cast<double>(arena.unplanned_slots());
  const double missed = static_cast<double>(requests) - static_cast<double>(hits) - unplanned;
  missing_steps =
      missed > std::max(2.0, kMissShare * static_cast<double>(requests)) ? missing_steps + 1 : 0;
  if (missing_steps < kMissingSteps) return;
  missing_steps = 0;
  relearn_after = std::uint64_t{8} << std::min(relearns++, 10u);
  learner.start();
  decide_watched();
}

void Allocator::load_plan(Plan plan) {
  State& state = *state_;
  if (!state.options.trust_plans) {
    const std::optional<std::string> violation = verify(plan);
    BERTH_CHECK(!violation, kInput, "the plan is refused: {}", *violation);
  }
  BERTH_CHECK(plan.alignment == state.options.alignment, kInput,
              "the plan aligns to {} bytes, this allocator to {}: plan the trace again",
              plan.alignment, state.options.alignment);
  std::shared_ptr<const PlanLookup> lookup = state.freeze(std::move(plan));
  const Bytes wanted = lookup->plan().arena_bytes;
  const std::lock_guard lock(state.mutex);
  if (!state.arena_is_allowed(wanted)) {
    throw Error(ErrorKind::kSystem,
                fmt::format("an arena of {} cannot be had: the limit is {}, the pool has {}",
                            format_bytes(wanted), format_bytes(state.options.config.memory_limit),
                            format_bytes(state.pool.stats().reserved)));
  }
  const Status status = state.arena.activate(std::move(lookup), false);
  if (!status.ok()) {
    throw Error(ErrorKind::kSystem,
                fmt::format("an arena of {} cannot be had: {}", format_bytes(wanted),
                            state.device.describe(status)));
  }
  state.limit_pool();
}

std::optional<Plan> Allocator::plan() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->arena.plan()) return std::nullopt;
  return state_->arena.plan()->plan();
}

// --- Queries ------------------------------------------------------------------------------------

std::optional<Allocator::BlockInfo> Allocator::find(const void* pointer) const noexcept {
  const std::lock_guard lock(state_->mutex);
  if (state_->arena.contains(pointer)) {
    const auto block = state_->arena.find(pointer);
    if (!block) return std::nullopt;
    return BlockInfo{block->requested, block->id, true};
  }
  const PoolBlock* block = state_->pool.find(pointer);
  if (block == nullptr) return std::nullopt;
  return BlockInfo{block->requested, block->id, false};
}

bool Allocator::contains(const void* pointer) const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->arena.contains(pointer) || state_->pool.contains(pointer);
}

Recorder* Allocator::recorder() noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->recorder.get();
}

Stats Allocator::stats() const {
  const State& state = *state_;
  const std::lock_guard lock(state.mutex);
  Stats stats = state.counters;
  const PoolStats pool = state.pool.stats();
  stats.requests = state.next_id;
  stats.device_errors += state.arena.device_errors();
  stats.driver_calls = state.device.driver_calls();
  if (state.recorder) stats.trace_entries_lost = state.recorder->counts().lost;
  stats.requested = state.arena.requested() + state.pool_requested;
  stats.live = state.arena.live() + state.pool_live;
  stats.live_peak = state.arena.live_peak();
  if (state.arena.plan()) {
    stats.arena = state.arena.plan()->plan().arena_bytes;
    stats.arena_bound = state.arena.plan()->plan().lower_bound;
  }
  stats.pool_reserved = pool.reserved;
  stats.pool_reserved_peak = pool.reserved_peak;
  stats.pool_live = state.pool_live;
  stats.reserved_peak = std::max(state.reserved_peak, state.arena.committed() + pool.reserved);
  return stats;
}

Bytes Allocator::trim() noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->pool.process_events();
  return state_->pool.trim();
}

// --- Fork ---------------------------------------------------------------------------------------

void Allocator::before_fork() noexcept { state_->mutex.lock(); }

void Allocator::after_fork_in_parent() noexcept { state_->mutex.unlock(); }

void Allocator::after_fork_in_child() noexcept {
  State& state = *state_;
  state.forked = true;
  state.settled_at = 0;
  state.arena.rest();
  state.mutex.unlock();
}

std::string Allocator::is_valid() const {
  const State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (std::string broken = state.arena.is_valid(); !broken.empty()) return "arena: " + broken;
  if (std::string broken = state.pool.is_valid(); !broken.empty()) return "pool: " + broken;
  const PoolStats pool = state.pool.stats();
  if (pool.live != state.pool_live) {
    return fmt::format("pool_live is {}, the pool says {}", state.pool_live, pool.live);
  }
  return {};
}

}  // namespace berth
