#include "csrc/replay/through_berth.h"

#include "csrc/replay/drive.h"
#include "csrc/replay/paper_device.h"
#include "csrc/runtime/allocator.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

namespace berth::replay {
namespace {

std::uint64_t misses_of(const Stats& stats) {
  return stats.misses_size + stats.misses_busy + stats.misses_lane;
}

// How the one request between two counts was served.
Outcome outcome_between(const Stats& before, const Stats& after) {
  if (after.hits != before.hits) return Outcome::kHit;
  if (after.hits_bucket != before.hits_bucket) return Outcome::kHitBucket;
  if (after.lent != before.lent) return Outcome::kLent;
  if (after.misses_size != before.misses_size) return Outcome::kMissSize;
  if (after.misses_busy != before.misses_busy) return Outcome::kMissBusy;
  if (after.misses_lane != before.misses_lane) return Outcome::kMissLane;
  return Outcome::kUnplanned;
}

class BerthServer {
 public:
  BerthServer(const PaperDevice& device, Allocator& allocator, const Workload& workload, bool waits,
              std::vector<StepResult>* steps, Layout* layout)
      : device_(device),
        allocator_(allocator),
        workload_(workload),
        waits_(waits),
        steps_(steps),
        layout_(layout) {
    if (layout_ == nullptr) return;
    *layout_ = {};
    layout_->addresses.assign(workload.block_count, Layout::kNowhere);
    layout_->reserved.assign(workload.block_count, 0);
    layout_->outcomes.assign(workload.block_count, Outcome::kUnknown);
  }

  void* allocate(const Operation& operation) {
    if (waits_) wait_for_plan();
    try {
      void* pointer = allocator_.allocate(operation.size, workload_.lane_keys[operation.lane]);
      if (layout_ != nullptr) note(operation.block, pointer);
      return pointer;
    } catch (const OutOfMemory& error) {
      problem_ = error.what();
      return nullptr;
    }
  }
  void free(void* pointer) { allocator_.free(pointer); }
  void use(void* pointer, const Operation& operation) {
    allocator_.record_use(pointer, workload_.lane_keys[operation.lane]);
  }
  void step(const Operation& operation) {
    if (steps_ != nullptr) {
      const Stats stats = allocator_.stats();
      steps_->push_back(
          {.requests = stats.requests - before_.requests,
           .hits = stats.hits + stats.hits_bucket - before_.hits - before_.hits_bucket,
           .misses = misses_of(stats) - misses_of(before_),
           .live = stats.live,
           .reserved = stats.reserved,
           .memory_calls = device_.memory_calls() - calls_before_});
      before_ = stats;
      calls_before_ = device_.memory_calls();
    }
    allocator_.mark_step(workload_.lane_keys[operation.lane]);
    if (waits_) wait_for_plan();
  }

  void empty_cache() { (void)allocator_.trim(); }

  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

 private:
  void wait_for_plan() const {
    while (allocator_.planning()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  void note(std::uint64_t block, const void* pointer) {
    const Stats stats = allocator_.stats();
    layout_->addresses[block] = reinterpret_cast<std::uint64_t>(pointer);
    layout_->reserved[block] = stats.reserved;
    layout_->outcomes[block] = outcome_between(last_, stats);
    last_ = stats;
  }

  const PaperDevice& device_;
  Allocator& allocator_;
  const Workload& workload_;
  const bool waits_;
  std::vector<StepResult>* steps_;
  Layout* layout_;
  Stats before_, last_;  // at the last step; at the last request
  MemoryCallCounts calls_before_;
  std::string problem_;
};

}  // namespace

Result through_berth(const Workload& workload, const BerthOptions& options) {
  // Room for any fragmentation that is worth a replay.
  const Bytes live_peak = workload.live_peak(workload.alignment);
  const Bytes total = options.memory_limit != 0
                          ? options.memory_limit
                          : std::min<Bytes>(4 * std::min(live_peak, kMaxBytes / 8), kMaxBytes / 2) +
                                (Bytes{1} << 30);
  const std::unique_ptr<PaperDevice> device = make_paper_device(total, options.memory);
  Allocator::Options allocator_options;
  const bool learns = options.planned && !options.plan;
  allocator_options.config.mode = learns ? Mode::kLearn : Mode::kOff;
  allocator_options.config.handle = options.handle;
  allocator_options.alignment = workload.alignment;
  allocator_options.start_threads = options.background;
  // As on CUDA: segments of PyTorch's sizes where memory is plain.
  allocator_options.pool.growth_bytes = Bytes{2} << 20;
  allocator_options.pool.segment_bytes = Bytes{20} << 20;
  Allocator allocator(*device, allocator_options);
  if (options.plan) allocator.load_plan(*options.plan);

  Result result;
  std::vector<void*> pointers(std::max<std::uint64_t>(workload.block_count, 1), nullptr);
  BerthServer server(*device, allocator, workload, options.background,
                     options.steps ? &result.steps : nullptr, options.layout);
  const DriveResult driven = drive(workload.operations, pointers, server);
  const Stats stats = allocator.stats();
  result.reserved_peak = stats.reserved_peak;
  if (options.layout != nullptr) options.layout->reserved_peak = stats.reserved_peak;
  result.driver_calls = stats.driver_calls;
  result.memory_calls = device->memory_calls();
  result.ns_per_operation = driven.ns_per_operation;
  result.hits = stats.hits;
  result.hits_bucket = stats.hits_bucket;
  result.lent = stats.lent;
  result.misses = misses_of(stats);
  result.unplanned = stats.unplanned;
  result.realigned = stats.realigned;
  if (options.planned) result.arena = stats.arena;
  result.stats = stats;
  result.out_of_memory = !driven.complete;
  result.problem = server.problem();
  for (void* pointer : pointers) allocator.free(pointer);
  return result;
}

Result learn_in_place(const Workload& workload, Layout* layout) {
  return through_berth(workload, {.steps = true, .background = true, .layout = layout});
}

}  // namespace berth::replay
