#include "csrc/torch/cuda/cuda_allocator.h"

#include "csrc/torch/cuda/pool_state.h"
#include "csrc/torch/recording/operator_recorder.h"

#include <berth/error.h>
#include <berth/warnings.h>

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace berth::torch {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::cuda::CUDACachingAllocator::AllocatorConfigInfo;
using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;
using c10::cuda::CUDACachingAllocator::ShareableHandle;
using c10::cuda::CUDACachingAllocator::SnapshotInfo;
using c10::cuda::CUDACachingAllocator::StreamSegmentSize;

constexpr std::size_t kMaxAnnotations = 10000;

void check(const CudaDevice& device, const Status& status, const char* what) {
  TORCH_CHECK(status.ok(), "berth: ", what, ": ", device.describe(status));
}

}  // namespace

std::atomic<CudaAllocator*> CudaAllocator::instance_{nullptr};

CudaAllocator::CudaAllocator(Config config) : config_(std::move(config)) {}

// --- GPUs ---------------------------------------------------------------------------------------

Gpu& CudaAllocator::gpu(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count_.load() && device < kMaxGpus,
              "Invalid device argument ", static_cast<int>(device), ": did you call init?");
  auto& slot = gpus_[static_cast<std::size_t>(device)];
  if (Gpu* const made = slot.load(std::memory_order_acquire)) [[likely]]
    return *made;
  const std::lock_guard lock(mutex_);
  if (Gpu* const made = slot.load()) return *made;
  try {
    auto made = std::make_unique<Gpu>(
        device, config_, addresses_, [this](const Gpu::Exhaustion& what) { tell_observers(what); });
    make_ready(*made);
    // Ranges and operators go into the trace of the first GPU that is used.
    Recorder* const recorder = made->planned().recorder();
    if (config_.record == RecordDetail::kOperators && gpus().empty() && recorder != nullptr)
      record_operators(made->planned(), *recorder, c10::Device(c10::DeviceType::CUDA, device));
    slot.store(made.get(), std::memory_order_release);
    return *made.release();
  } catch (const Error& error) {
    TORCH_CHECK(false, "berth: ", error.what());
  }
}

// What was set before the GPU was used.
void CudaAllocator::make_ready(Gpu& gpu) {
  gpu.set_caching(caching_.load());
  if (history_.enabled) gpu.reports().set_history(history_);
  for (const History::Tracker& tracker : trackers_) gpu.reports().attach_tracker(tracker);
  const double fraction =
      c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::per_process_memory_fraction();
  if (fraction < 1.0) gpu.set_memory_fraction(fraction);
}

void CudaAllocator::tell_observers(const Gpu::Exhaustion& what) {
  std::vector<c10::cuda::CUDACachingAllocator::OutOfMemoryObserver> observers;
  std::vector<RefusalObserver> refusal_observers;
  {
    const std::lock_guard lock(mutex_);
    observers = observers_;
    if (what.refused) refusal_observers = refusal_observers_;
  }
  for (const auto& observer : refusal_observers)
    observer(what.device, what.asked, what.held, what.total);
  for (const auto& observer : observers) observer(what.device, what.asked, what.total, what.free);
}

std::vector<Gpu*> CudaAllocator::gpus() const noexcept {
  std::vector<Gpu*> made;
  for (int index = 0; index < device_count_.load(); ++index)
    if (Gpu* const one = gpus_[static_cast<std::size_t>(index)].load()) made.push_back(one);
  return made;
}

Gpu& CudaAllocator::current_gpu(c10::DeviceIndex* device) {
  TORCH_CHECK(!forked(),
              "berth: CUDA was asked for in a forked child of a process that had used it");
  C10_CUDA_CHECK(c10::cuda::GetDevice(device));
  return gpu(*device);
}

Gpu* CudaAllocator::made_gpu(int index) const noexcept {
  return index < 0 ? nullptr
                   : gpus_[static_cast<std::size_t>(index)].load(std::memory_order_acquire);
}

template <class Asked>
Gpu* CudaAllocator::ask_for(const void* address, Asked asked) const {
  const int likely = addresses_.find(address);
  if (Gpu* const one = made_gpu(likely); one != nullptr && asked(*one)) [[likely]]
    return one;
  for (int index = 0; index < device_count_.load(); ++index)
    if (Gpu* const one = made_gpu(index); one != nullptr && index != likely && asked(*one))
      return one;
  return nullptr;
}

Gpu* CudaAllocator::owner_of(const void* address) const {
  return ask_for(address, [&](Gpu& one) { return one.contains(address); });
}

void CudaAllocator::mark_step() noexcept {
  if (forked()) return;
  for (Gpu* const one : gpus()) {
    try {
      one->mark_step(
          c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(one->device().index())));
    } catch (...) {  // no current stream: no step
    }
  }
}

// --- Fork ---------------------------------------------------------------------------------------

void CudaAllocator::before_fork() noexcept {
  mutex_.lock();  // no GPU is made from here on
  for (const auto& slot : gpus_)
    if (Gpu* const one = slot.load()) one->before_fork();
}

void CudaAllocator::after_fork_in_parent() noexcept {
  for (const auto& slot : gpus_)
    if (Gpu* const one = slot.load()) one->after_fork();
  mutex_.unlock();
}

void CudaAllocator::after_fork_in_child() noexcept {
  // The driver serves no child of a process that it has served.
  if (initialized()) forked_.store(true);
  after_fork_in_parent();
}

void CudaAllocator::init(int device_count) {
  const std::lock_guard lock(mutex_);
  if (device_count > kMaxGpus)
    warn("too-many-gpus",
         fmt::format("{} GPUs are there, berth serves the first {}", device_count, kMaxGpus));
  device_count_.store(std::max(device_count_.load(), std::min(device_count, kMaxGpus)));
}

bool CudaAllocator::initialized() { return device_count_.load() > 0; }

// --- Blocks -------------------------------------------------------------------------------------

c10::DataPtr CudaAllocator::allocate(std::size_t size) {
  c10::DeviceIndex device = 0;
  Gpu& here = current_gpu(&device);
  void* const block =
      size == 0 ? nullptr : here.allocate(size, c10::cuda::getCurrentCUDAStream(device));
  return {block, block, &delete_block, c10::Device(c10::DeviceType::CUDA, device)};
}

c10::DataPtr CudaAllocator::allocate_at(std::size_t size, void* address) {
  c10::DeviceIndex device = 0;
  Gpu& here = current_gpu(&device);
  void* const block = here.allocate_at(address, size, c10::cuda::getCurrentCUDAStream(device));
  return {block, block, &delete_block, c10::Device(c10::DeviceType::CUDA, device)};
}

c10::DeleterFnPtr CudaAllocator::raw_deleter() const { return &delete_block; }

// A deleter tells nobody: what it is wrongly called for is a warning, once.
void CudaAllocator::delete_block(void* block) noexcept {
  if (block == nullptr) return;
  const FreeOutcome outcome = get()->take_back(block);
  if (outcome == FreeOutcome::kDone) return;
  static std::atomic<bool> warned_unknown{false}, warned_foreign{false};
  const bool known = outcome == FreeOutcome::kUnknown;
  if ((known ? warned_unknown : warned_foreign).exchange(true)) return;
  try {
    warn(known ? "double-free" : "unknown-pointer",
         fmt::format("{} was freed, {}; berth leaves it alone and counts further ones", block,
                     known ? "but no live block starts there: it was freed before or never handed "
                             "out"
                           : "which lies in no memory of berth"));
  } catch (...) {  // no memory for the text
  }
}

CudaAllocator::FreeOutcome CudaAllocator::take_back(void* block) noexcept {
  auto outcome = FreeOutcome::kDone;
  if (forked()) return outcome;  // the parent's
  outcome = FreeOutcome::kForeign;
  (void)ask_for(block, [&](Gpu& one) {
    outcome = one.free(block);
    return outcome != FreeOutcome::kForeign;
  });
  return outcome;
}

void* CudaAllocator::raw_alloc(std::size_t size) {
  if (size == 0) return nullptr;
  c10::DeviceIndex device = 0;
  Gpu& here = current_gpu(&device);
  return here.allocate(size, c10::cuda::getCurrentCUDAStream(device));
}

void* CudaAllocator::raw_alloc_with_stream(std::size_t size, cudaStream_t stream) {
  if (size == 0) return nullptr;
  c10::DeviceIndex device = 0;
  Gpu& here = current_gpu(&device);
  return here.allocate(size, stream);
}

void CudaAllocator::raw_delete(void* block) {
  if (block == nullptr) return;
  const FreeOutcome outcome = take_back(block);
  TORCH_CHECK(outcome == FreeOutcome::kDone, "invalid device pointer: ", block,
              outcome == FreeOutcome::kForeign
                  ? " lies in no memory of berth"
                  : ": no live block starts there, it was freed before or never handed out");
}

void CudaAllocator::recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) {
  // Memory of other allocators (shared by another process, of a MemPool's own) is none of ours.
  if (!block.get() || block.get_deleter() != &delete_block) return;
  if (Gpu* const one = owner_of(block.get())) one->record_use(block.get(), stream);
}

void CudaAllocator::copy_data(void* to, const void* from, std::size_t size) const {
  if (size == 0) return;
  Gpu* const here = owner_of(to);
  TORCH_CHECK(here != nullptr, "berth: ", to, " lies in no memory of berth");
  const int index = here->device().index();
  const auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index));
  check(here->device(),
        here->device().copy_peer(to, index, from, index, size, stream.stream(), true),
        "cannot copy a block");
}

// --- Statistics and limits ----------------------------------------------------------------------

void CudaAllocator::emptyCache(c10::MempoolId_t pool) {
  if (pool == c10::MempoolId_t{0, 0}) {
    const std::lock_guard lock(mutex_);
    for (int index = 0; index < device_count_.load(); ++index)
      if (gpus_[static_cast<std::size_t>(index)].load() == nullptr)
        ++emptied_unused_[static_cast<std::size_t>(index)];
  }
  for (Gpu* const one : gpus()) one->empty_cache(pool);
}

DeviceStats CudaAllocator::getDeviceStats(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count_.load(), "Invalid device argument.");
  Gpu* const one = gpus_[static_cast<std::size_t>(device)].load();
  DeviceStats stats = one == nullptr ? Statistics().get(0) : one->statistics();
  stats.num_sync_all_streams += emptied_unused_[static_cast<std::size_t>(device)].load();
  return stats;
}

void CudaAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  gpu(device).reports().reset_accumulated();
  emptied_unused_[static_cast<std::size_t>(device)].store(0);
}

void CudaAllocator::resetPeakStats(c10::DeviceIndex device) { gpu(device).reports().reset_peak(); }

std::pair<std::size_t, std::size_t> CudaAllocator::getMemoryInfo(c10::DeviceIndex device) {
  Gpu& one = gpu(device);
  Bytes free = 0;
  check(one.device(), one.device().free_bytes(&free), "cannot ask how much memory is free");
  return {free, one.total()};
}

double CudaAllocator::getMemoryFraction(c10::DeviceIndex device) {
  return gpu(device).memory_fraction();
}

void CudaAllocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction,
              ". Please set within [0, 1].");
  gpu(device).set_memory_fraction(fraction);
}

// The pools' ranges belong to no stream, so there is nothing to say of a stream's.
std::vector<StreamSegmentSize> CudaAllocator::getExpandableSegmentSizes(c10::DeviceIndex) {
  return {};
}

void CudaAllocator::enable(bool value) {
  caching_.store(value);
  for (Gpu* const one : gpus()) one->set_caching(value);
}

void CudaAllocator::cacheInfo(c10::DeviceIndex device, std::size_t* largest) {
  Gpu& one = gpu(device);
  // A zero asks for a guess from what the device has.
  if (*largest == 0) *largest = one.free_bytes();
  *largest = std::max<std::size_t>(*largest, one.largest_block());
}

void* CudaAllocator::getBaseAllocation(void* block, std::size_t* size) {
  Gpu* const one = owner_of(block);
  TORCH_CHECK(one != nullptr, "invalid device pointer: ", block);
  return one->base_of(block, size);
}

// --- Snapshots and history ----------------------------------------------------------------------

SnapshotInfo CudaAllocator::snapshot(c10::MempoolId_t pool, bool include_traces) {
  SnapshotInfo result;
  const auto to_ns = clock_.makeConverter();
  const bool one_pool = pool != c10::MempoolId_t{0, 0};
  for (int index = 0; index < device_count_.load(); ++index) {
    Gpu* const one = gpus_[static_cast<std::size_t>(index)].load();
    if (one == nullptr) {
      if (include_traces) result.device_traces.emplace_back();
      continue;
    }
    if (include_traces) {
      result.device_traces.push_back(one->reports().history_entries());
      for (History::Entry& entry : result.device_traces.back())
        entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
    }
    one->add_segments(one_pool ? std::optional(pool) : std::nullopt, &result.segments);
    one->reports().note_snapshot();  // which the next one shows
  }
  {
    const std::lock_guard lock(mutex_);
    result.external_annotations = annotations_;
  }
  for (auto& annotation : result.external_annotations)
    annotation.time_.t_ = to_ns(annotation.time_.approx_t_) / 1000;
  AllocatorConfigInfo& info = result.config_metadata;
  info = {};
  info.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  info.max_split_size = AcceleratorAllocatorConfig::max_split_size();
  info.expandable_segments = AcceleratorAllocatorConfig::use_expandable_segments();
  info.last_allocator_settings = AcceleratorAllocatorConfig::last_allocator_settings();
  info.roundup_power2_divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  using Settings = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
  info.pinned_num_register_threads = Settings::pinned_num_register_threads();
  info.pinned_use_host_register = Settings::pinned_use_cuda_host_register();
  info.release_lock_on_malloc = Settings::release_lock_on_cudamalloc();
  info.graph_capture_record_stream_reuse = Settings::graph_capture_record_stream_reuse();
  add_newer_settings(&info);
  return result;
}

bool CudaAllocator::isHistoryEnabled() {
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  const std::lock_guard lock(mutex_);
  return history_.enabled;
}

void CudaAllocator::recordHistory(bool enabled,
                                  c10::CachingDeviceAllocator::CreateContextFn create_context,
                                  std::size_t max_entries,
                                  c10::CachingDeviceAllocator::RecordContext when, bool clear,
                                  const std::vector<std::string>& skip_actions) {
  History::Settings settings;
  settings.enabled = enabled;
  if (enabled) {
    settings.create_context = create_context;
    settings.max_entries = max_entries;
    settings.when = when;
    settings.skip_actions = skip_actions;
  }
  settings.clear = clear;
  const std::lock_guard lock(mutex_);
  history_ = settings;
  if (!enabled || clear) annotations_.clear();
  for (Gpu* const one : gpus()) one->reports().set_history(settings);
}

void CudaAllocator::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& pairs) {
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  c10::CachingDeviceAllocator::AnnotationEntry entry(device, c10::getApproximateTime());
  for (const auto& [key, value] : pairs) entry.recordUserMetadata(key, value);
  const std::lock_guard lock(mutex_);
  if (annotations_.size() == kMaxAnnotations) annotations_.erase(annotations_.begin());
  annotations_.push_back(std::move(entry));
}

void CudaAllocator::pushCompileContext(std::string& name) { compile_contexts().push_back(name); }

void CudaAllocator::popCompileContext() {
  if (!compile_contexts().empty()) compile_contexts().pop_back();
}

void CudaAllocator::setUserMetadata(const std::string& metadata) { user_metadata() = metadata; }

std::string CudaAllocator::getUserMetadata() { return user_metadata(); }

void CudaAllocator::attachOutOfMemoryObserver(
    c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) {
  const std::lock_guard lock(mutex_);
  observers_.push_back(std::move(observer));
}

void CudaAllocator::attachAllocatorTraceTracker(
    c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) {
  const std::lock_guard lock(mutex_);
  for (Gpu* const one : gpus()) one->reports().attach_tracker(tracker);
  trackers_.push_back(std::move(tracker));
}

void CudaAllocator::observe_refusals(RefusalObserver observer) {
  const std::lock_guard lock(mutex_);
  refusal_observers_.push_back(std::move(observer));
}

std::shared_ptr<c10::GatheredContext> CudaAllocator::context_of(const void* block) {
  Gpu* const one = owner_of(block);
  return one == nullptr ? nullptr : one->reports().context_of(block);
}

void CudaAllocator::annotate(const void* block, const std::string& text) {
  Gpu* const one = owner_of(block);
  TORCH_CHECK(one != nullptr, "invalid device pointer: ", block);
  one->annotate(block, text);
}

// --- Private pools ------------------------------------------------------------------------------

void CudaAllocator::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                        std::function<bool(cudaStream_t)> filter) {
  gpu(device).begin_pool(pool, std::move(filter));
}

void CudaAllocator::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  gpu(device).pools().end(pool);
}

void CudaAllocator::note_capture(c10::DeviceIndex device, bool ended) {
  gpu(device).note_capture(ended);
}

void CudaAllocator::releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  gpu(device).pools().release(pool);
}

int CudaAllocator::getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) {
  return gpu(device).pools().uses(pool);
}

void CudaAllocator::createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                       std::shared_ptr<CUDAAllocator> source) {
  gpu(device).pools().create_or_use(pool, std::move(source));
}

void CudaAllocator::setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use_on_oom) {
  gpu(device).pools().set_use_on_oom(pool, use_on_oom);
}

void CudaAllocator::setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) {
  gpu(device).pools().set_no_split(pool);
}

bool CudaAllocator::checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                             const std::unordered_set<void*>& expected) {
  const auto there = gpu(device).pools().find(pool);
  TORCH_CHECK(there != nullptr, "Could not find pool of id");
  return blocks_are(*there, expected);
}

std::shared_ptr<AllocatorState> CudaAllocator::getCheckpointState(c10::DeviceIndex device,
                                                                  c10::MempoolId_t pool) {
  const auto there = gpu(device).pools().find(pool);
  TORCH_CHECK(there != nullptr, "berth: no memory pool has this id");
  return state_of(*there);
}

CheckpointDelta CudaAllocator::setCheckpointPoolState(c10::DeviceIndex device,
                                                      std::shared_ptr<AllocatorState> state) {
  TORCH_CHECK(state != nullptr, "berth: no state of a memory pool was given");
  return gpu(device).restore_pool(*state, &delete_block);
}

// --- Other processes and GPUs -------------------------------------------------------------------

ShareableHandle CudaAllocator::shareIpcHandle(void* block) {
  Gpu* const one = owner_of(block);
  TORCH_CHECK(one != nullptr, "invalid device pointer: ", block);
  CudaSharedMemory shared = one->share(block);
  return {static_cast<std::ptrdiff_t>(shared.offset), std::move(shared.handle)};
}

std::shared_ptr<void> CudaAllocator::getIpcDevPtr(std::string handle) {
  c10::DeviceIndex device = 0;
  Gpu& here = current_gpu(&device);
  std::shared_ptr<void> base;
  check(here.device(), here.device().open_shared(handle, &base),
        "cannot map memory that another process shared");
  return base;
}

void CudaAllocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex reached) {
  Gpu& one = gpu(reached);
  check(one.device(), one.device().enable_peer(device), "cannot let another GPU reach this one");
}

cudaError_t CudaAllocator::memcpyAsync(void* to, int to_device, const void* from, int from_device,
                                       std::size_t size, cudaStream_t stream, bool p2p_enabled) {
  Gpu& here = gpu(static_cast<c10::DeviceIndex>(to_device));
  return CudaDevice::error_of(here.device().copy_peer(
      to, to_device, from, from_device, size, stream, p2p_enabled || to_device == from_device));
}

}  // namespace berth::torch
