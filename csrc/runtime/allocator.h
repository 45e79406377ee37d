#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/device/device.h"
#include "csrc/device/held_memory.h"
#include "csrc/plan/plan.h"
#include "csrc/pool/pool.h"
#include "csrc/runtime/block_listener.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/trace.h"

#include <berth/config.h>
#include <berth/error.h>
#include <berth/stats.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace berth {

class PlanLookup;
struct Foretold;
struct StepRequests;
namespace test {
struct UnverifiedPlan;
}

// The allocator of one device: serves planned requests from one arena, all others from the pool;
// records, learns, counts.
//
// Every pointer is aligned to Options::alignment. Thread-safe: one short lock covers arena and
// pool. Nothing of the user's (sinks, observers) is called under it. A block may be freed by any
// thread. Lanes are named by their key; see trace::Lane.
class Allocator {
 public:
  // What becomes of the pages that lie free in the pool.
  enum class FreePages : std::uint8_t {
    kStay,             // captured graphs use them: a replay comes back to them without asking
    kGoWhenExhausted,  // a request that finds no memory gives them back, to have others
  };

  struct Options {
    Config config;
    bool has_steps = true;      // whether mark_step() is ever called
    trace::Program program;     // of this process: fingerprint of traces and plans
    Bytes alignment = 64;       // of blocks, and the unit sizes are rounded up to
    int device_index = 0;       // for {device} in file names; -1 for the host
    bool start_threads = true;  // false: planning happens in mark_step(), for tests and replays
    // Alignment, limit and what hears of waiting blocks are the allocator's. Grows by little, so
    // that the pool gives back what lies between the weights when an arena takes over.
    PoolOptions pool{.growth_bytes = Bytes{64} << 10};
    FreePages free_pages = FreePages::kGoWhenExhausted;
    BlockListener* listener = nullptr;                // outlives the allocator
    HeldMemory::Listener* memory_listener = nullptr;  // outlives it, too
    // How many graphs are being captured on the device, where somebody counts: meanwhile nothing is
    // given back, no step ends, no event is asked and nothing waits for the device.
    const std::atomic<int>* captures = nullptr;
    // Allocators that share a device may share a lock, which outlives them; else each has its own.
    SpinMutex* lock = nullptr;
  };

  // `device` outlives the allocator. Mode serve loads Config::plan, and so does mode learn where it
  // is there: a damaged or illegal file throws Error(kInput); a plan for another program is one
  // warning ("plan-mismatch"), and in mode serve so is one that then hardly serves the program
  // ("plan-misfit"). Mode record opens Config::trace.
  Allocator(Device& device, Options options);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // A block for work on `lane`. Null for size 0. Throws OutOfMemory after every fallback,
  // Error(kUsage) for a size beyond kMaxBytes.
  [[nodiscard]] void* allocate(Bytes size, LaneKey lane, trace::Tag tag = 0);

  enum class FreeOutcome {
    kDone,
    kUnknown,  // no live block starts there (never did, or freed before): nothing changed
    kForeign,  // not in a range of this allocator: whose it is, the caller may know
  };
  // Takes the block back; its owner's lane may have it again at once, others after the events of
  // its uses.
  FreeOutcome free(void* pointer) noexcept;
  // The same, when the free happens on another lane than the owner's (C ABI).
  FreeOutcome free(void* pointer, LaneKey lane) noexcept;

  // The block is used on `lane` too. Null, foreign and own-lane uses are ignored. Throws
  // std::bad_alloc, and then does not know of the use.
  void record_use(const void* pointer, LaneKey lane);

  // The live block that starts at `pointer` is used by a captured graph, which comes back to its
  // bytes without asking: nobody else has them, freed or not, until unpin() was called as often
  // as pin(). False where no live block starts there. Throws std::bad_alloc, and then nothing is
  // pinned. Makes no call of the device, so it is legal while a graph is captured.
  bool pin(const void* pointer);
  // The graph is gone, or its capture failed. The caller vouches that its work is over or ordered
  // before all that comes. False where nothing is pinned that starts there.
  bool unpin(const void* pointer) noexcept;

  // A step of `lane` ends here. Binds the lane to the plan, learns, switches plans.
  void mark_step(LaneKey lane) noexcept;

  // The steps that come are others than those before, and these will not come again, as where a
  // schedule takes over: what was learned of them is let go of and their plan is no longer served,
  // so that idle memory goes back, and those that come are learned. With `foretold` they are served
  // by its plan from the next mark on, as if they had been learned. In mode learn without a plan
  // that was given; else nothing. Not while a graph is captured. Waits for the device's work.
  void expect_other_steps(const Foretold* foretold = nullptr) noexcept;
  // Plans steps for expect_other_steps(): see foretell(). On any thread, without the lock. Null
  // where nothing is learned.
  [[nodiscard]] std::shared_ptr<const Foretold> foretell(std::span<const StepRequests> kinds,
                                                         double seconds) const;

  // Hands out exactly these bytes of the pool, whoever had them; false where they are not free. See
  // Pool::allocate_at().
  [[nodiscard]] bool allocate_at(void* pointer, Bytes size, LaneKey lane) noexcept;

  // Whether a plan is being made in the background; what comes of it serves from a later mark on.
  [[nodiscard]] bool planning() const noexcept;

  // Serves `plan` from the next request on; live blocks stay where they are. Where the device's
  // pages have aliases its memory comes with the first blocks on it. Throws Error(kInput) where
  // verify() refuses it, Error(kUsage) while a graph is captured, Error(kSystem) where the arena
  // cannot be had (the plan before it stays).
  void load_plan(Plan plan);
  // The plan being served, if any.
  [[nodiscard]] std::optional<Plan> plan() const;

  // The block that starts at `pointer`: bytes as asked, its id in the trace (0 when not recording)
  // and its owner's lane; nothing where none is live there.
  struct BlockInfo {
    Bytes requested = 0;
    trace::BlockId id = 0;
    LaneKey lane = 0;
    bool planned = false;
  };
  [[nodiscard]] std::optional<BlockInfo> find(const void* pointer) const noexcept;
  [[nodiscard]] bool contains(const void* pointer) const noexcept;

  // Writes all that is asked for from here to end_recording() to a trace file, in any mode; {rank}
  // and the like in its name are replaced. Blocks that live already have ids without a request.
  // Throws Error(kUsage) where a recording is open (as in mode record), Error(kSystem) where the
  // file cannot be made.
  Recorder& begin_recording(const std::string& file);
  // Closes the trace that is open; false where none is.
  bool end_recording() noexcept;
  // Of the trace that is open, for adapters that record more; null where none is.
  // Lives as long as the allocator; once the trace is closed it takes nothing more.
  [[nodiscard]] Recorder* recorder() noexcept;

  [[nodiscard]] Stats stats() const;

  // Gives all pages on which nothing lives back to the device; those of a plan come back with the
  // next blocks on them. Waits for the device's work. Returns bytes given back.
  Bytes trim() noexcept;
  // As trim(), for a program that leaves the device to others for a while. With `keep_contents` all
  // that lives goes, too: to pinned host memory, until resume() or the next request, which resumes.
  // Meanwhile blocks may be freed, and nobody may use those that are not. Returns bytes given back.
  // Throws Error(kUsage) while a graph is captured and, with contents, where the device maps no
  // pages; OutOfMemory or Error(kSystem) where the host has no room, and then the contents stay.
  Bytes release(bool keep_contents);
  // Everything that the plan needs and that release() took is there again, at its addresses.
  // Returns bytes taken. Throws OutOfMemory, Error(kSystem), or while a graph is captured
  // Error(kUsage) where contents cannot come back: they are kept.
  Bytes resume();
  // Whether contents are away.
  [[nodiscard]] bool parked() const noexcept;

  // Blocks that other lanes are done with come free.
  void process_events() noexcept;

  // Free pieces of the pool's memory between blocks.
  [[nodiscard]] std::uint64_t holes() const noexcept;

  // Calls `visit` for each stretch of memory that is held: those of the pool in no order, then,
  // with `arena` set, the arena's; none while contents are away. Under the lock: `visit` must not
  // call the allocator. Throws std::bad_alloc.
  void for_each_stretch(const std::function<void(const Stretch&, bool arena)>& visit) const;

  // Around fork(): the lock is held over it. In the child allocate() throws and free() does
  // nothing.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

  // Ends recording and planning, writes what is to be written. Blocks may still be freed
  // afterwards. Idempotent.
  void shut_down() noexcept;

  // Walks everything; the first broken invariant in one line, empty where all is well. For tests.
  [[nodiscard]] std::string is_valid() const;

 private:
  struct State;
  friend struct test::UnverifiedPlan;  // serves plans past verify(), to show what else stops them

  // load_plan() of one that is verified.
  void serve(std::shared_ptr<const PlanLookup> plan);
  void report_summary() const noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace berth
