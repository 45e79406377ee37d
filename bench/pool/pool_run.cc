#include "bench/pool/pool_run.h"

#include "tests/support/charged_device.h"
#include "tests/support/lone_pool.h"
#include "tests/support/simulated_device.h"

#include <algorithm>

namespace berth::bench {
namespace {

using replay::Operation;
using replay::Workload;
using Kind = Operation::Kind;

constexpr Bytes kPage = Bytes{2} << 20;
constexpr Bytes kAlignment = 512;

// Of the bytes that lie free in the pool the share in holes below `size`.
double unusable_share(const Pool& pool, Bytes size) {
  Bytes free = 0, small = 0;
  pool.for_each_stretch([&](const Stretch& stretch) {
    for (const Stretch::Piece& piece : stretch.pieces) {
      if (piece.kind != Stretch::Piece::Kind::kHole) continue;
      free += piece.size;
      if (piece.size < size) small += piece.size;
    }
  });
  return free == 0 ? 0 : static_cast<double>(small) / static_cast<double>(free);
}

// A run and where it is.
class Replay {
 public:
  Replay(const Workload& workload, const PoolRunOptions& options)
      : workload_(workload),
        options_(options),
        device_({.total_bytes = options.limit != 0
                                    ? align_up(options.limit, kPage)
                                    : 4 * workload.live_peak(kAlignment) + (Bytes{1} << 30),
                 .page_bytes = kPage,
                 .maps_pages = options.device != DeviceForm::kSegments,
                 .aliases = options.device == DeviceForm::kAliasing}),
        charged_(device_),
        pool_(charged_,
              PoolOptions{.alignment = kAlignment,
                          .range_bytes = 8 * workload.live_peak(kAlignment) + (Bytes{4} << 30),
                          .resident_growth_bytes = kPage}),
        strategy_(make_strategy(options.split, workload, options.brief)),
        blocks_(workload.block_count, nullptr),
        every_(options.samples == 0 ? 0 : workload.requests / options.samples + 1) {}

  PoolRun run() {
    for (const Operation& operation : workload_.operations) {
      switch (operation.kind) {
        case Kind::kAllocate:
          if (!skipping_) allocate(operation);
          break;
        case Kind::kFree:
          free(operation.block);
          break;
        case Kind::kUse:
          if (blocks_[operation.block] != nullptr)
            pool_.record_use(blocks_[operation.block], workload_.lane_keys[operation.lane]);
          break;
        case Kind::kStep:
          mark();
          break;
        case Kind::kEmptyCache:
          (void)pool_.trim();
          break;
      }
    }
    run_.failed_steps += skipping_ ? 1 : 0;
    run_.reserved_peak = std::max(run_.reserved_peak, pool_.reserved());
    run_.memory_calls = charged_.memory_calls();
    for (std::uint64_t block = 0; block < blocks_.size(); ++block) free(block);
    return run_;
  }

 private:
  void allocate(const Operation& request) {
    const Mobility mobility = strategy_->classify(request);
    const LaneKey lane = workload_.lane_keys[request.lane];
    PoolBlock* block = pool_.allocate(request.size, lane, mobility);
    if (block == nullptr && options_.gives_back && pool_.trim() != 0)
      block = pool_.allocate(request.size, lane, mobility);
    run_.reserved_peak = std::max(run_.reserved_peak, pool_.reserved());
    if (block == nullptr) {
      skipping_ = true;
      for (const std::uint64_t made : of_step_) free(made);
      return;
    }
    blocks_[request.block] = block;
    of_step_.push_back(request.block);
    if (every_ != 0 && ++since_ >= every_ && request.size >= MobilityClassifier::kSmall) {
      since_ = 0;
      run_.unusable.push_back(unusable_share(pool_, request.size));
    }
  }
  void free(std::uint64_t block) {
    if (blocks_[block] == nullptr) return;
    pool_.free(blocks_[block]);
    blocks_[block] = nullptr;
    strategy_->freed(block);
  }
  void mark() {
    strategy_->mark();
    (void)pool_.process_events();
    if (first_) run_.reserved_first_step = run_.reserved_peak;
    first_ = false;
    run_.failed_steps += skipping_ ? 1 : 0;
    skipping_ = false;
    of_step_.clear();
  }

  const Workload& workload_;
  const PoolRunOptions options_;
  test::SimulatedDevice device_;
  test::ChargedDevice charged_;
  test::LonePool pool_;
  const std::unique_ptr<Strategy> strategy_;
  std::vector<PoolBlock*> blocks_;
  std::vector<std::uint64_t> of_step_;  // requests of this step
  std::uint64_t every_, since_ = 0;
  bool skipping_ = false, first_ = true;
  PoolRun run_;
};

}  // namespace

PoolRun run_pool(const Workload& workload, const PoolRunOptions& options) {
  return Replay(workload, options).run();
}

}  // namespace berth::bench
