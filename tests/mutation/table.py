"""The mutants: for each rule of serving, of streams, of learning and of planning in the background, pieces of source text whose loss a test must notice.

The names of the rules of serving and of streams are those of the notes on reliability; csrc/runtime/README.md has section 2 ("The rule") in full.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    rule: str
    what: str  # is removed or changed
    file: str
    old: str  # occurs exactly once in the file
    new: str
    tests: tuple  # (program, Catch2's filter), in this order until one fails


DEVICE, RUNTIME, POOL, CUDA, CAPI = "berth_device_test", "berth_runtime_test", "berth_pool_test", "berth_cuda_test", "berth_capi_cuda_test"

ARENA = ((RUNTIME, "[arena]~[divergence]"),)
WAITING = ((DEVICE, "[lane_events]"), (RUNTIME, "[guards],[streams]")) + ARENA
SERVING = ARENA + ((RUNTIME, "[runtime],[allocator]"), (CUDA, "[streams]"))
LANES_OF_POOL = ((POOL, "[lanes]"),)
BLOCKS_OF_POOL = ((RUNTIME, "[runtime]"), (POOL, "[lanes]"), (CUDA, "[streams]"))
LANES_OF_GPU = ((CUDA, "[lanes],[events]"), (CUDA, "[streams]"))
LEARNS = ((RUNTIME, "[learn]~[threads]"),)
C_ABI = ((CAPI, "[capi]"),)
STREAMS_OF_ABI = (("berth_capi_test", "[streams]"),)

HEADER, ARENA_CC, ARENA_PLAN = "csrc/runtime/arena.h", "csrc/runtime/arena.cc", "csrc/runtime/arena_plan.cc"
OCCUPANCY, OCCUPANCY_CC, PINS = "csrc/runtime/occupancy.h", "csrc/runtime/occupancy.cc", "csrc/runtime/pins.h"
WALK, WALK_CC, LENDING = "csrc/runtime/walk.h", "csrc/runtime/walk.cc", "csrc/runtime/lending.cc"
ALLOCATOR, STEPS = "csrc/runtime/allocator.cc", "csrc/runtime/allocator_steps.cc"
FALLBACK = "csrc/runtime/fallback.cc"
BLOCKS, PAGES = "csrc/pool/pool.cc", "csrc/pool/pages.cc"
POOL_STATE, WAITING_BLOCKS = "csrc/pool/state.h", "csrc/pool/waiting.cc"
PAGES_OF_ARENA, TAKEOVER = "csrc/runtime/arena_memory.cc", "csrc/runtime/takeover.cc"
GUARDS, POINTS = "csrc/runtime/guards.cc", "csrc/device/lane_events.cc"
GPU, GPU_HEADER, EVENTS = "csrc/cuda/cuda_device.cc", "csrc/cuda/cuda_device.h", "csrc/cuda/event_pool.cc"
LEARNING, LEARNER = "csrc/runtime/learning.cc", "csrc/runtime/learner.cc"
RECORD, PLANNER = "csrc/runtime/run_record.cc", "csrc/runtime/planner.cc"
ABI, PROCESS, NUMBERS = "csrc/capi/capi.cc", "csrc/capi/cuda_device_of_process.cc", "csrc/capi/stream_numbers.cc"
GRAPHS = "csrc/capi/graphs.cc"

# Rules without code that these tests could reach, and why.
WITHOUT = {
    "S3": "a start-up check of the hook for record_stream has no place: berth's own CUDA allocator implements recordStream() as a "
          "virtual function that the compiler demands, and of PyTorch's pluggable allocator the C ABI sees no hook, set or not; "
          "csrc/capi/README.md names the line that sets it",
}

# The condition of the fast path, part by part.
FAST = "if (((cell.slot ^ PlanLookup::kNone) | entry.shared | attention_) != 0) [[unlikely]]"

MUTANTS = (
    # --- Section 2: a slot is handed out at its birth only if ...
    Mutant("itself-fast", "2.1", "the fast path does not look whether the slot itself is live", HEADER,
           FAST, "if ((entry.shared | attention_) != 0) [[unlikely]]", ARENA),
    Mutant("itself-slow", "2.1", "the slow path does not look whether the slot itself is live", OCCUPANCY,
           "if (cells_[entry.cell].slot != PlanLookup::kNone) return false;", "", ARENA),
    Mutant("x-fast", "2.2", "the fast path does not look at what is off schedule", HEADER,
           FAST, "if (((cell.slot ^ PlanLookup::kNone) | entry.shared) != 0) [[unlikely]]", ARENA),
    Mutant("x-slow", "2.2", "the slow path does not look at what is off schedule", OCCUPANCY,
           "if (strays_.find_touching(bytes)) return false;", "", ARENA),
    Mutant("x-lent", "2.2", "bytes are lent that something off schedule has", LENDING,
           "auto taken = occupancy_.touching(bytes);", "std::optional<ByteRange> taken;", ARENA),
    Mutant("x-idle", "2.2", "an idle arena's bytes are lent that planned blocks have", ARENA_CC,
           "if (!std::exchange(lane.all_astray, true)) walk_.leave_schedule(lane);", "", ARENA),
    Mutant("x-jump", "2.2", "a jump does not rebuild what is off schedule", WALK_CC,
           "  rebuild(before, position, [&](SlotIndex slot) { return on_schedule(lane, slot); });\n", "  (void)before;\n  (void)position;\n", ARENA),
    Mutant("x-new-plan", "2.2", "live blocks of the plan before are forgotten at a change of plan", OCCUPANCY,
           "outlive(index, owner_of(cells_[index].slot & ~kOffSchedule));", "(void)owner_of;", ARENA),
    Mutant("x-moved", "2.2", "live blocks of the lane before are forgotten where the step moves to another", ARENA_PLAN,
           "  occupancy_.hand_over(before.sequence, before.position, before.key);\n", "", ARENA),
    Mutant("x-alive", "2.2", "a jump looks at what was off schedule and not at what was on it", OCCUPANCY,
           "if (index != PlanLookup::kNone && cells_[index].slot == slot)\n        settle(index, lane, on_schedule);",
           "(void)index;", ARENA),
    Mutant("x-left-branch", "2.2", "the slot that a branch leaves aside stays on schedule", WALK_CC,
           "if (lane.next < lane.end) occupancy_.expire(lane.next);", "", ARENA),
    Mutant("shared-fast", "2.3", "the fast path does not look whether the slot is shared", HEADER,
           FAST, "if (((cell.slot ^ PlanLookup::kNone) | attention_) != 0) [[unlikely]]", ARENA),
    Mutant("shared-slow", "2.3", "the slow path does not look at the live shared slots of other lanes", OCCUPANCY,
           "return !entry.shared || !live_shared_.find_touching(bytes);", "return true;", ARENA),
    Mutant("shared-noted", "2.3", "a shared slot that is handed out is not noted", OCCUPANCY_CC,
           "if (entry.shared) live_shared_.insert({entry.offset, entry.offset + size}, 0);", "(void)size;", ARENA),
    Mutant("pins", "2.4", "a slot is handed out whose bytes a captured graph pins", ARENA_CC,
           "if (pins_.touching(bytes)) return false;", "", ARENA),
    Mutant("pins-lent", "2.4", "bytes are lent that a captured graph pins", LENDING,
           "if (!taken) taken = pins_.touching(bytes);", "", ARENA),
    Mutant("guards", "2.4", "a slot is handed out without waiting for the guards on its bytes", ARENA_CC,
           "return guards_.wait(lane.key, bytes, entry.shared ? Guards::Binds::kShared : Guards::Binds::kAll);", "return true;", ARENA),
    Mutant("guards-lent", "2.4", "bytes are lent without waiting for the guards on them", ARENA_CC,
           "return guards_.wait(lane.key, bytes, Guards::Binds::kShared) && memory_.ensure(bytes);", "return memory_.ensure(bytes);", ARENA),
    Mutant("guards-fast", "2.4", "guards do not lead off the fast path", ARENA_CC,
           "(occupancy_.off_schedule() + pins_.size() + guards_.binding_all()) +\n",
           "(occupancy_.off_schedule() + pins_.size()) +\n", ARENA),
    Mutant("guards-overlap", "2.4", "guards are forgotten that a later one of their lane touches and does not cover", GUARDS,
           "guard.point.lane == lane.key && guard.bytes.first >= bytes.first &&\n        guard.bytes.last <= bytes.last",
           "guard.point.lane == lane.key", WAITING),
    Mutant("ends-walk", "ends", "the walk passes an end a tick late: ends as <", WALK,
           "      ++lane.position;\n      for (const std::uint32_t slot : lookup_->ends_at(lane.sequence, lane.position))\n        occupancy_.expire(slot);\n",
           "      for (const std::uint32_t slot : lookup_->ends_at(lane.sequence, lane.position))\n        occupancy_.expire(slot);\n      ++lane.position;\n", ARENA),
    Mutant("ends-jump", "ends", "a jump takes a slot that ends at its target for one on schedule: ends as <", WALK_CC,
           "return age < entry.length;", "return age <= entry.length;", ARENA),
    Mutant("ends-circle", "ends", "the ends before the step's end are not passed", WALK_CC,
           "      for (const SlotIndex slot : lookup_->ends_at(sequence, tick)) occupancy_.expire(slot);\n", "", ARENA),
    Mutant("ends-zero", "ends", "the ends at tick 0 are not passed", WALK_CC,
           "  for (const SlotIndex slot : lookup_->ends_at(root, 0)) occupancy_.expire(slot);\n", "", ARENA),

    # --- Section 3: streams
    Mutant("s1-arena", "S1", "the free of a planned block records nothing on the lanes that used it", ARENA_CC,
           "guarded &= guards_.add(bytes, lane, Binds::kAll);\n", "(void)lane;\n", ARENA),
    Mutant("s1-fast-free", "S1", "the fast free does not look for uses on other lanes", HEADER,
           "if (lookup_ == nullptr || !uses_.empty()) [[unlikely]]", "if (lookup_ == nullptr) [[unlikely]]", SERVING),
    Mutant("s1-pool", "S1", "the free of a pool block records nothing on the lanes that used it", ALLOCATOR,
           "    state.pool.record_use(block, lane);\n", "", BLOCKS_OF_POOL),
    Mutant("s1-pool-waits", "S1", "a pool block that was used on another lane does not wait", POOL_STATE,
           "(asynchronous && (!block->points.empty() || (freeing && *freeing != block->lane)));",
           "(asynchronous && freeing && *freeing != block->lane);", BLOCKS_OF_POOL),
    Mutant("s1-early", "S1", "a second event of a lane on the same bytes is dropped for the first", GUARDS,
           "  for (Guard* const earlier : covered) drop(*earlier);\n", "  if (!covered.empty()) drop(guard);\n", WAITING),
    Mutant("s1-waited", "S1", "lanes that waited for an event need not wait for its successor", POINTS,
           "return waited != lane.waited.end() && waited->second >= point.number;", "return waited != lane.waited.end();", WAITING),
    Mutant("s1-thin", "S1", "who waits for an event that has gone waits for an earlier one", POINTS,
           "return held.number < number; });", "return held.number + 1 < number; });", WAITING),
    Mutant("s1-reached", "S1", "the point before the one that is reached counts as not reached, the one after it as reached", POINTS,
           "point.number <= lane->reached;", "point.number <= lane->reached + 1;", WAITING),
    Mutant("s1-capi", "S1", "the C ABI does not pass a use on another stream on", ABI,
           "  here.allocator().record_use(block, here.lane_of(stream));\n", "", C_ABI),
    Mutant("s2-device", "S2", "the device uses a stream that is not PyTorch's and that nobody holds", GPU,
           "stream_ = CudaStreamScope::held(lane);", "stream_ = gpu.stream_of(lane);", LANES_OF_GPU),
    Mutant("s2-arena", "S2", "planned bytes without an event do not wait for a synchronisation", ARENA_CC,
           "    occupancy_.lose(bytes, taken.block);\n", "", ARENA),
    Mutant("s2-arena-poll", "S2", "a poll without a synchronisation gives such bytes back", ARENA_CC,
           "  events_.poll_all();\n  guards_.let_go();\n", "  events_.poll_all();\n  occupancy_.synchronized();\n  guards_.let_go();\n", ARENA),
    Mutant("s2-pool", "S2", "pool bytes without an event do not wait for a synchronisation", WAITING_BLOCKS,
           "        await_proof(chunk);\n        point = {};\n", "        point = {};\n", BLOCKS_OF_POOL),
    Mutant("s2-kept", "S2", "pool bytes without an event are kept until memory runs out", BLOCKS,
           "  if (waiting.unproven() <= most || events.captured()) return 0;\n", "  if (most != 0) return 0;\n", BLOCKS_OF_POOL),
    Mutant("s2-capi", "S2", "the C ABI names a stream that was forgotten to the device", NUMBERS,
           "  keys_[number] = key_when_gone(key);\n", "", C_ABI),
    Mutant("s4-event", "S4", "the free of a shared slot records no event", ARENA_CC,
           "  if (taken.shared) guarded &= guards_.add(bytes, freed.owner, Binds::kShared);\n", "", ARENA),
    Mutant("s4-wait", "S4", "a shared slot does not wait for what binds shared slots", GUARDS,
           "if (binds == Binds::kAll && guard.binds != Binds::kAll) return true;", "if (guard.binds != Binds::kAll) return true;", ARENA),
    Mutant("s5-lent", "S5", "the free of what was lent, or of an earlier plan, records no event on its own lane", ARENA_CC,
           "  if (!taken.planned) guarded &= guards_.add(bytes, freed.owner, Binds::kAll);\n", "", ARENA),
    Mutant("s5-new-plan", "S5", "a new plan does not wait for what the lanes have queued on the arena", ARENA_PLAN,
           "  for (const auto& [key, lane] : lanes_.all()) fence(*lane);\n", "", ARENA),
    Mutant("s5-pages", "S5", "pages of an idle arena are given back under queued work", ARENA_PLAN,
           "  if (device_.properties().asynchronous && !device_.synchronize_all().ok()) return 0;\n", "", ARENA),
    Mutant("s5-smaller", "S5", "a smaller plan gives pages back under queued work", PAGES_OF_ARENA,
           "if (!drained && !device_.synchronize_all().ok()) return;", "", ARENA),
    Mutant("s5-range", "S5", "the range goes for a larger one under queued work", ARENA_PLAN,
           "  if (device_.properties().asynchronous && !device_.synchronize_all().ok())\n    return {Status::Code::kFailed, \"synchronize\"};\n",
           "", ARENA),
    Mutant("s5-moved", "S5", "a step that moves to another stream takes the bytes over as they are", ARENA_PLAN,
           "  fence(before);\n", "", ARENA),
    Mutant("s5-trim", "S5", "the pool gives pages back under queued work", PAGES,
           "    if (!events.synchronize()) return 0;\n", "", LANES_OF_POOL),
    Mutant("s5-hole", "S5", "the pool takes another lane's hole without waiting for that lane", BLOCKS,
           "if (events.wait(mine.lane, point)) return hole;", "return hole;", LANES_OF_POOL),
    Mutant("s5-neighbour", "S5", "holes of two lanes become one", BLOCKS,
           "    if (with->owner != owner && with->owner != &nobody && owner != &nobody) return false;\n", "", LANES_OF_POOL),
    Mutant("s6-arena", "S6", "the free of a planned block on another stream leaves no guard", ARENA_CC,
           "if (freeing && *freeing != freed.owner) guarded &= guards_.add(bytes, *freeing, Binds::kAll);", "(void)freeing;", ARENA),
    Mutant("s6-pool", "S6", "the free of a pool block on another stream records nothing there", BLOCKS,
           "    if (freeing) record_use(block, *freeing);\n", "    (void)freeing;\n", BLOCKS_OF_POOL),
    Mutant("s6-capi", "S6", "the C ABI does not say on which stream a block is freed", ABI,
           "switch (here->allocator().free(block, here->lane_of(stream))) {", "switch (here->allocator().free(block)) {", C_ABI),
    Mutant("s7-let-go", "S7", "a pool block is free before the points that were recorded for it", WAITING_BLOCKS,
           "if (point.number != kUnrecorded && events_.reached(point)) continue;", "if (point.number != kUnrecorded) continue;",
           BLOCKS_OF_POOL),
    Mutant("s7-held", "S7", "a block whose events cannot be recorded now is let go all the same", WAITING_BLOCKS,
           "      case LaneEvents::Recorded::kCapturing:\n        break;\n",
           "      case LaneEvents::Recorded::kCapturing:\n        point = {};\n        break;\n", BLOCKS_OF_POOL),
    Mutant("s7-complete", "S7", "a waiting block becomes a hole though its event is not complete", WAITING_BLOCKS,
           "      if (!events_.reached(point)) return;\n", "", LANES_OF_POOL),
    Mutant("s7-guard", "S7", "a guard goes though its point is not reached", GUARDS,
           "    if (!events_.reached(oldest.point)) break;\n", "", WAITING),
    Mutant("s7-point", "S7", "a point counts as reached though its event is not complete", POINTS,
           "    if (!complete) return asked;\n", "", WAITING),
    Mutant("s8-handles", "S8", "the two handles of the legacy default stream are two lanes", GPU_HEADER,
           "return handle < 2 ? 0 : thread_lane();", "return handle < 2 ? handle : thread_lane();", LANES_OF_GPU),
    Mutant("s8-foreign", "S8", "the legacy default stream of a foreign program is a foreign stream", GPU,
           "if (!foreign || reinterpret_cast<LaneKey>(stream) <= 2) return lane_of(stream);", "if (!foreign) return lane_of(stream);",
           LANES_OF_GPU),
    Mutant("s8-capi", "S8", "the C ABI numbers the two handles of the legacy default stream apart",
           PROCESS, "return handle <= 2 ? CudaDevice", "return handle == 2 ? CudaDevice", C_ABI),
    Mutant("s8-edge", "S8", "the legacy default stream needs no event of another lane: its implicit wait is an edge", POINTS,
           "if (waiter == point.lane || reached(point)) return true;", "if (waiter == point.lane || waiter == 0 || reached(point)) return true;",
           ARENA),
    Mutant("s9-thread", "S9", "the per-thread default stream is one lane for all threads", GPU,
           "thread_local const LaneKey lane = next.fetch_add(1)", "static const LaneKey lane = next.fetch_add(1)", LANES_OF_GPU),
    Mutant("s9-other-thread", "S9", "the handle of another thread's default stream is used", GPU,
           "if (lane != lane_of(cudaStreamPerThread)) {", "if (false) {", LANES_OF_GPU),
    Mutant("s9-capi", "S9", "the C ABI takes the per-thread default streams of all threads for one lane", PROCESS,
           "return handle <= 2 ? CudaDevice", "return handle <= 1 ? CudaDevice", C_ABI),
    Mutant("s10-id", "S10", "a foreign stream is keyed by its handle", GPU,
           "  if (!calls_.cudaStreamGetId(stream, &id).ok()) {\n", "  id = reinterpret_cast<LaneKey>(stream);\n  if (id == 0) {\n",
           LANES_OF_GPU),
    Mutant("s10-capi", "S10", "the C ABI does not forget a stream that is destroyed", NUMBERS,
           "    numbers_.erase(known);\n", "", C_ABI),
    Mutant("s10-number", "S10", "the C ABI gives a forgotten stream's number on while its work goes on", NUMBERS,
           "if (device_.query(one.done, &done).ok() && done) {", "if (device_.query(one.done, &done).ok()) {", STREAMS_OF_ABI),
    Mutant("s11-events", "S11", "an event is made on whatever device is current", EVENTS,
           "  const CudaCurrentDevice current(calls_, primary_);\n  if (!current.status().ok()) return current.status();\n", "",
           LANES_OF_GPU),
    Mutant("s12-mark", "S12", "guards are not polled at marks", ARENA_PLAN,
           "  poll_guards();\n  if (!lookup_) return false;\n", "  if (!lookup_) return false;\n", ARENA),
    Mutant("s12-path", "S12", "a request asks for all events", ARENA_CC,
           "  events_.poll_for_request();\n", "  events_.poll_all();\n", WAITING),
    Mutant("s12-requests", "S12", "where no mark comes guards stay", ARENA_CC,
           "  events_.poll_for_request();\n  guards_.let_go_of_some();\n", "", WAITING),
    Mutant("s12-oldest", "S12", "an answer 'not yet' does not keep the next requests from asking", POINTS,
           "requests_to_pass_ = kRequestsBetween;", "requests_to_pass_ = 0;", WAITING),
    Mutant("s12-growth", "S12", "the pool grows without asking for events", BLOCKS,
           "!is_captured(mine.lane) && process_some_events() != 0)", "false)", LANES_OF_POOL),
    Mutant("s13-search", "S13", "an exhausted pool gives memory back and waits while a graph is captured", FALLBACK,
           "  if (events_.captured()) return nullptr;\n", "", BLOCKS_OF_POOL),
    Mutant("s13-step", "S13", "a step ends while a graph is captured", STEPS,
           "  if (captured()) return;  // no event may be asked, no memory given back\n", "", BLOCKS_OF_POOL),
    Mutant("s13-trim", "S13", "memory is given back while a graph is captured", ALLOCATOR,
           "  if (state.captured()) return 0;\n  const State::NotesHeld", "  const State::NotesHeld", BLOCKS_OF_POOL),
    Mutant("s13-retire", "S13", "the arena is given back while a graph is captured", ALLOCATOR,
           "  if (state_->captured()) return 0;\n", "", BLOCKS_OF_POOL),
    Mutant("s13-events", "S13", "events are asked while a graph is captured", ALLOCATOR,
           "  if (state_->captured()) return;\n", "", BLOCKS_OF_POOL),
    Mutant("s13-commit", "S13", "without marks an arena takes its memory while a graph is captured", ALLOCATOR,
           "if (arena.commit_due() && !captured())", "if (arena.commit_due())", BLOCKS_OF_POOL),
    Mutant("s13-adopt", "S13", "without marks a plan is taken up while a graph is captured", ALLOCATOR,
           "  if (!captured()) {\n    try {", "  {\n    try {", BLOCKS_OF_POOL),
    Mutant("s13-settle", "S13", "the arena's first step ends while a graph is captured", TAKEOVER,
           "  if (captured()) return;\n  settle_at_ = 0;\n", "  settle_at_ = 0;\n", BLOCKS_OF_POOL),
    Mutant("s13-first-step", "S13", "pages of the step before are given back while a graph is captured", TAKEOVER,
           "if (settle_at_ == 0 || captured()) return;", "if (settle_at_ == 0) return;", BLOCKS_OF_POOL),
    Mutant("s13-thrift", "S13", "pages are moved to where they are needed while a graph is captured", FALLBACK,
           "  if (events_.captured()) pool_.set_thrift(0);", "", BLOCKS_OF_POOL),
    Mutant("s13-poll", "S13", "an event of a lane that is captured is asked for", POINTS,
           "if (!device_.capturing(lane.key, &capturing).ok() || capturing) return 1;", "(void)capturing;", WAITING),
    Mutant("s13-anybody", "S13", "events are asked for while a graph is captured", POINTS,
           "  if (captured()) return;\n", "", WAITING),
    Mutant("s13-record", "S13", "the free of a planned block records an event in a capture", POINTS,
           "  if (capturing) return Recorded::kCapturing;\n", "", ARENA),
    Mutant("s13-deferred", "S13", "what a captured lane uses is not waited for until the capture is over", WAITING_BLOCKS,
           "    if (recorded == LaneEvents::Recorded::kCapturing) return;\n", "", BLOCKS_OF_POOL),
    Mutant("s13-unproven", "S13", "the pool waits for the device, for what no event covers, while a graph is captured", BLOCKS,
           "if (waiting.unproven() <= most || events.captured()) return 0;", "if (waiting.unproven() <= most) return 0;", BLOCKS_OF_POOL),
    Mutant("s13-pool", "S13", "the pool asks for events while its lane is captured", BLOCKS,
           "!is_captured(mine.lane) && process_some_events() != 0)", "process_some_events() != 0)", LANES_OF_POOL),
    Mutant("s13-aside", "S13", "a query of the device voids another thread's capture", GPU,
           "  const CudaCaptureAside aside(calls_);\n  if (!aside.status().ok()) return aside.status();\n"
           "  const Status status = calls_.cudaEventQuery(handle_of(event));\n",
           "  const Status status = calls_.cudaEventQuery(handle_of(event));\n", ((CUDA, "[capture]"),)),
    Mutant("s14-arena", "S14", "a capturing lane waits for a guard", POINTS,
           "  if (capturing) return false;\n", "", ARENA),
    Mutant("s14-pool", "S14", "a capturing lane takes another lane's hole", BLOCKS,
           "  if (is_captured(mine.lane)) return nullptr;\n", "", LANES_OF_POOL),
    Mutant("s14-source", "S14", "a lane takes the hole of one that is captured", BLOCKS,
           "if (events.record(lane, &point) != LaneEvents::Recorded::kYes) continue;", "(void)events.record(lane, &point);", LANES_OF_POOL),
    Mutant("s15-retire", "S15", "an arena is given back whose bytes a graph pins", ARENA_PLAN,
           "!occupancy_.empty() || !pins_.empty()) return 0;", "!occupancy_.empty()) return 0;", ARENA),
    Mutant("s15-smaller", "S15", "a smaller plan gives pages back that a graph pins", ARENA_PLAN,
           "return occupancy_.touching(bytes) || pins_.touching(bytes);", "return occupancy_.touching(bytes).has_value();", ARENA),
    Mutant("x-smaller", "2.2", "a smaller plan gives pages back that something off schedule lies on", ARENA_PLAN,
           "return occupancy_.touching(bytes) || pins_.touching(bytes);", "return pins_.touching(bytes).has_value();", ARENA),
    Mutant("s15-fast", "S15", "pins do not lead off the fast path", ARENA_CC,
           "(occupancy_.off_schedule() + pins_.size() + guards_.binding_all()) +\n",
           "(occupancy_.off_schedule() + guards_.binding_all()) +\n", ARENA),
    Mutant("s15-unpin", "S15", "bytes stay pinned when their graph has gone", PINS,
           "    if (--*times == 0) ranges_.erase(first);\n", "    --*times;\n", ARENA),
    Mutant("s15-twice", "S15", "bytes that two graphs pin come back with the first of them", PINS,
           "    if (--*times == 0) ranges_.erase(first);\n", "    ranges_.erase(first);\n", ARENA),
    Mutant("s15-range", "S15", "the range goes for a larger one though a graph pins bytes in it", ARENA_PLAN,
           "  if (!occupancy_.empty() || !pins_.empty()) return {", "  if (!occupancy_.empty()) return {", ARENA),
    Mutant("s15-abi-pin", "S15", "what is asked for in a capture of the C ABI is not pinned", GRAPHS,
           "      (void)allocator.pin(block);\n", "", C_ABI),
    Mutant("s15-abi-wait", "S15", "the C ABI does not wait for the replays of a graph that is released", GRAPHS,
           " || !device.synchronize_all().ok()) return;", ") return;", C_ABI),
    Mutant("s15-abi-open", "S15", "the C ABI waits for the device while another graph is captured", GRAPHS,
           "if (captures_.load() != 0 || released_", "if (released_", C_ABI),
    Mutant("s15-abi-order", "S15", "a capture uses a freed block again that another stream used", GRAPHS,
           "if (there->used_elsewhere || there->stream != stream) return false;", "", C_ABI),
    Mutant("s15-pool", "S15", "a pool block that a graph pins comes back when it is freed", BLOCKS,
           "  if (block->pins == 0) wait_for_lanes(block);\n", "  wait_for_lanes(block);\n", BLOCKS_OF_POOL),

    # --- Learning and planning in the background
    Mutant("learn-repeats", "learning", "a mark always says that the step repeats", LEARNER,
           "if (pattern != 0) return repeats(*marking, pattern);", "return repeats(*marking, std::max(pattern, 1u));", LEARNS),
    Mutant("learn-pattern", "learning", "steps that alternate do not repeat", "csrc/runtime/mark_history.h",
           "2 * p <= kept() && p <= kMostPattern;", "2 * p <= kept() && p <= 1;", LEARNS),
    Mutant("learn-whole", "learning", "steps are searched whose beginning was not recorded", LEARNER,
           "if (back < std::uint64_t{2} * pattern) return std::nullopt;", "if (back == 0) return std::nullopt;", LEARNS),
    Mutant("learn-recent", "learning", "all that was recorded is searched where marks repeat", LEARNER,
           "std::uint64_t{4} * pattern, ", "", LEARNS),
    Mutant("learn-vain", "learning", "searches at marks that are in vain do not wait", LEARNER,
           "repeats_to_wait_ = std::uint64_t{1} <<", "repeats_to_wait_ = std::uint64_t{0} <<", LEARNS),
    Mutant("learn-silence", "learning", "searches for a period never end", LEARNER,
           "} else if (searched_all_ || searches_ >= kMostSearches) {", "} else if (false) {", LEARNS),
    Mutant("learn-gap", "learning", "a record goes on after it lost an entry", LEARNER,
           "  const bool gap = record_.end() != began_;\n  start_again();\n", "  const bool gap = false;\n", LEARNS),
    Mutant("learn-limit", "learning", "at the limit no chunk is written anew", RECORD,
           "while (spare_ < kSpareChunks && used_ + spare_ == kMostChunks) drop_oldest();", "", LEARNS),
    Mutant("learn-shared", "learning", "a chunk that a search reads is written anew", RECORD,
           "  if (oldest.shared) return;\n", "", LEARNS),
    Mutant("learn-refused", "learning", "steps whose arena was refused are planned again and again", LEARNING,
           "if (options_.learns && !arena_.plan()) learner_.watch();", "if (options_.learns && !arena_.plan()) learner_.start();", LEARNS),
    Mutant("learn-try-again", "learning", "an arena that was refused is never asked for again", LEARNING,
           "  try_again(notes);\n  if", "  if", LEARNS),
    Mutant("plan-cancel", "planning", "a planner that is stopped goes on", PLANNER,
           "    cancel_.store(true);\n", "", ((RUNTIME, "A planner that is stopped gives up what is under way"),)),
    Mutant("plan-publish", "planning", "plans that get better are not published", PLANNER,
           "offer(with_placement(frame, *step, better, options), kWorthSwitching);", "",
           ((RUNTIME, "A planner publishes plans as they get better*"),)),
    Mutant("plan-overwrite", "planning", "a file that took the plan's place is overwritten", PLANNER,
           "  (void)read_plan_if_there(options_.plan_file);\n", "", LEARNS),
)
