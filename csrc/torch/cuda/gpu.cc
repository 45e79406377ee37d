#include "csrc/torch/cuda/gpu.h"

#include "csrc/torch/cuda/newer_libtorch.h"
#include "csrc/torch/installation.h"
#include "csrc/torch/program.h"

#include <berth/error.h>
#include <berth/warnings.h>

#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace berth::torch {
namespace {

// What PyTorch's users may count on.
constexpr Bytes kAlignment = 512;

using Action = History::Entry::Action;

// The context of the request or free that the thread is about to make.
thread_local History::Context pending_context;

// PyTorch's setting roundup_power2_divisions: sizes in so many steps between powers of two.
Bytes round_to_division(Bytes size) {
  const std::size_t divisions =
      c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions(size);
  if (divisions <= 1 || size <= kAlignment * divisions) return size;
  const Bytes power = std::bit_floor(size);
  const Bytes unit = power / divisions;
  return unit == 0 ? size : (size + unit - 1) / unit * unit;
}

// One file a GPU, where the name does not tell them apart.
std::string name_for(const std::string& file, int index) {
  if (file.empty() || index == 0 || file.find("{device}") != std::string::npos) return file;
  return file + ".{device}";
}

Config config_for(Config config, int index) {
  config.trace = name_for(config.trace, index);
  config.plan = name_for(config.plan, index);
  config.stats = name_for(config.stats, index);
  return config;
}

}  // namespace

std::vector<std::string>& compile_contexts() noexcept {
  thread_local std::vector<std::string> contexts;
  return contexts;
}

std::string& user_metadata() noexcept {
  thread_local std::string metadata;
  return metadata;
}

Gpu::Gpu(int index, const Config& config, Observer on_out_of_memory)
    : index_(index),
      config_(config_for(config, index)),
      on_out_of_memory_(std::move(on_out_of_memory)),
      cuda_(make_cuda_device({.index = index})),
      lanes_(*cuda_),
      meter_(lanes_),
      main_({0, 0}, meter_, options(config_, true), *this) {}

Allocator::Options Gpu::options(const Config& config, bool main) {
  Allocator::Options options;
  options.config = config;
  options.program = this_program(config, meter_.properties());
  options.alignment = kAlignment;
  options.device_index = index_;
  options.lock = &mutex_;
  options.captures = &captures_;
  const DeviceProperties& properties = meter_.properties();
  options.growth_bytes = std::max(properties.page_bytes, Bytes{2} << 20);
  options.saves_pages = main;
  if (!main) {
    options.config.mode = Mode::kOff;
    options.config.verbose = false;  // the line at exit is the main allocator's
    options.trims_when_exhausted = false;
    options.resident_growth_bytes = options.growth_bytes;
    options.range_bytes = properties.total_bytes;  // addresses: twice what it could ever hold
  }
  return options;
}

// --- Requests -----------------------------------------------------------------------------------

void* Gpu::allocate(std::size_t size, const c10::cuda::CUDAStream& stream) {
  if (size == 0) return nullptr;
  const LaneKey lane = lanes_.lane_of(stream);
  // The handle costs a look-up: only who routes by it, or must hold the stream, needs it.
  const bool needs_stream =
      routes_.load(std::memory_order_relaxed) != 0 || StreamLanes::foreign(lane);
  return allocate_on(size, lane, needs_stream ? stream.stream() : nullptr);
}

void* Gpu::allocate(std::size_t size, cudaStream_t stream) {
  return size == 0 ? nullptr : allocate_on(size, lanes_.lane_of(stream), stream);
}

void* Gpu::allocate_on(std::size_t asked, LaneKey lane, cudaStream_t stream) {
  TORCH_CHECK(!History::inside_tracker(),
              "berth: a tracker of allocations asked for memory on the GPU that it was told of");
  if (!caching_.load(std::memory_order_relaxed)) [[unlikely]]
    return allocate_uncached(asked);
  const Bytes size = asked > kMaxBytes ? asked : round_to_division(asked);
  std::optional<CudaStreamScope> scope;
  if (StreamLanes::foreign(lane)) [[unlikely]]
    scope.emplace(*cuda_, stream);
  void* block = nullptr;
  if (routes_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    const PoolPointer pool = pool_for(stream);
    block = allocate_in(pool == nullptr ? main_ : *pool, size, lane);
  } else {
    block = allocate_in(main_, size, lane);
  }
  report(block, static_cast<std::int64_t>(asked));
  if (const c10::impl::PyInterpreter* const python = c10::impl::GPUTrace::get_trace()) [[unlikely]]
    (*python)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(block));
  return block;
}

void* Gpu::allocate_at(void* address, std::size_t size, const c10::cuda::CUDAStream& stream) {
  if (size == 0) return nullptr;
  TORCH_CHECK(size <= kMaxBytes && reinterpret_cast<std::uintptr_t>(address) % kAlignment == 0,
              "berth: ", size, " bytes at ", address, ": no block can be there");
  const LaneKey lane = lanes_.lane_of(stream);
  const PoolPointer routed = routes_.load() != 0 ? pool_for(stream.stream()) : nullptr;
  Allocator& allocator = (routed == nullptr ? main_ : *routed).allocator();
  // Whoever had these bytes before may still use them.
  const Status idle = lanes_.synchronize_all();
  TORCH_CHECK(idle.ok(), "berth: cannot wait for GPU ", index_,
              " to be done with memory that is asked for by its address: ", cuda_->describe(idle));
  allocator.process_events();
  if (history_.active()) pending_context = history_.gather(History::When::STATE);
  const bool served = allocator.allocate_at(address, size, lane);
  pending_context.reset();
  deliver();
  TORCH_CHECK(served, "berth: ", size, " bytes at ", address, " are not free in the pool of GPU ",
              index_);
  report(address, static_cast<std::int64_t>(size));
  return address;
}

void* Gpu::allocate_in(PrivatePool& pool, Bytes size, LaneKey lane) {
  // PyTorch's own words.
  TORCH_CHECK_WITH(OutOfMemoryError, size <= Bytes{1} << 60,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  if (history_.active()) [[unlikely]]
    pending_context = history_.gather(History::When::STATE);
  void* block = nullptr;
  if (size > kMaxBytes) {
    throw_out_of_memory(size, "no device has that much");
  } else {
    try {
      block = pool.allocator().allocate(size, lane, thread_tag());
    } catch (const OutOfMemory& error) {
      block = search_everywhere(pool, size, lane, error.what());
    } catch (const Error& error) {
      pending_context.reset();
      TORCH_CHECK(false, "berth: ", error.what());
    }
  }
  pending_context.reset();
  deliver();
  return block;
}

// The pool and the driver have nothing left: what others keep free comes next.
void* Gpu::search_everywhere(PrivatePool& pool, Bytes size, LaneKey lane,
                             const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    statistics_.retried();
    statistics_.synchronized();
  }
  deliver();
  const auto again = [&]() -> void* {
    try {
      return pool.allocator().allocate(size, lane, thread_tag());
    } catch (const OutOfMemory&) {
      return nullptr;
    }
  };
  bool freed = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
    freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  if (freed)
    if (void* const block = again()) return block;
  freed = release_unused_pools();
  if (&pool != &main_) {
    freed |= main_.allocator().trim() != 0;
    freed |= main_.allocator().retire_arena() != 0;
  }
  if (freed)
    if (void* const block = again()) return block;
  for (const PoolPointer& other : all_pools()) {
    if (!other->use_on_oom || other.get() == &pool) continue;
    try {
      return other->allocator().allocate(size, lane, thread_tag());
    } catch (const OutOfMemory&) {
    }
  }
  throw_out_of_memory(size, reason);
}

void Gpu::throw_out_of_memory(Bytes size, const std::string& reason) {
  const Bytes free = free_bytes();
  Bytes allocated = 0, reserved = 0;
  bool refused = false;
  {
    const std::lock_guard lock(mutex_);
    const Bytes limit = meter_.limit(), page = meter_.properties().page_bytes;
    refused = size > kMaxBytes ||
              (limit != 0 && align_up(size, page) > limit - std::min(limit, meter_.held()));
    statistics_.exhausted(refused);
    allocated = statistics_.allocated();
    reserved = statistics_.reserved();
    if (history_.active())
      history_.add(entry(Action::OOM, free, size, 0, {0, 0}, std::move(pending_context)));
  }
  deliver();
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_));
  c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(size), allocated, reserved, device);
  on_out_of_memory_({index_, size, reserved, total(), free, refused});
  using c10::CachingAllocator::format_size;
  const double fraction = memory_fraction();
  const std::string allowed =
      fraction >= 1.0
          ? std::string()
          : fmt::format("{} allowed; ",
                        format_size(static_cast<Bytes>(fraction * static_cast<double>(total()))));
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ",
                   format_size(size), ". GPU ", index_, " has a total capacity of ",
                   format_size(total()), " of which ", format_size(free), " is free. ", allowed,
                   "Of the memory that berth has, ", format_size(allocated), " is allocated and ",
                   format_size(reserved - std::min(reserved, allocated)),
                   " is reserved and free. berth: ", reason);
}

void Gpu::report(void* block, std::int64_t size) noexcept {
  if (!c10::memoryProfilingEnabled()) [[likely]]
    return;
  Bytes allocated = 0, reserved = 0;
  {
    const std::lock_guard lock(mutex_);
    allocated = statistics_.allocated();
    reserved = statistics_.reserved();
  }
  try {
    c10::reportMemoryUsageToProfiler(
        block, size, allocated, reserved,
        c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_)));
  } catch (...) {  // the profiler's loss
  }
}

// Trackers hear of what happened, with no lock held.
void Gpu::deliver() noexcept {
  if (!history_.undelivered()) [[likely]]
    return;
  History::Trackers trackers;
  std::vector<History::Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = history_.take_undelivered(&trackers);
  }
  if (trackers == nullptr) return;
  for (const History::Entry& one : entries) {
    for (const History::Tracker& tracker : *trackers) {
      try {
        tracker(one);
      } catch (...) {  // a tracker's own failure
      }
    }
  }
}

// --- Frees and uses -----------------------------------------------------------------------------

bool Gpu::free(void* block) noexcept {
  // Before the address can be handed out again.
  if (const c10::impl::PyInterpreter* const python = c10::impl::GPUTrace::get_trace()) [[unlikely]]
    if (contains(block))
      (*python)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(block));
  std::int64_t size = 0;
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    if (const auto info = find(block)) size = static_cast<std::int64_t>(info->requested);
  }
  if (history_.active()) [[unlikely]] {
    try {
      pending_context = history_.gather(History::When::ALL);
    } catch (...) {
    }
  }
  Allocator::FreeOutcome outcome = main_.allocator().free(block);
  if (outcome == Allocator::FreeOutcome::kForeign && has_private_pools_.load()) {
    for (const PoolPointer& pool : all_pools()) {
      outcome = pool->allocator().free(block);
      if (outcome != Allocator::FreeOutcome::kForeign) break;
    }
  }
  pending_context.reset();
  deliver();
  if (outcome == Allocator::FreeOutcome::kForeign) return free_uncached(block);
  if (outcome == Allocator::FreeOutcome::kUnknown) {
    warn_of_misuse(block);
  } else {
    report(block, -size);
  }
  return true;
}

void Gpu::warn_of_misuse(const void* block) noexcept {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  try {
    warn("double-free",
         fmt::format("{} was freed, but no live block of GPU {} starts there: it was freed before "
                     "or never handed out; berth leaves it alone and counts further ones",
                     block, index_));
  } catch (...) {  // no memory for the text
  }
}

bool Gpu::record_use(const void* block, const c10::cuda::CUDAStream& stream) {
  const bool planned = main_.allocator().contains(block);
  const PoolPointer pool = planned ? nullptr : pool_with(block);
  if (!planned && pool == nullptr) return false;
  try {
    const LaneKey lane = lanes_.lane_of_user(stream);
    std::optional<CudaStreamScope> scope;
    if (StreamLanes::foreign(lane)) scope.emplace(*cuda_, stream.stream());
    (planned ? main_ : *pool).allocator().record_use(block, lane);
  } catch (const Error& error) {
    TORCH_CHECK(false, "berth: ", error.what());
  }
  return true;
}

bool Gpu::contains(const void* address) const {
  if (main_.allocator().contains(address)) return true;
  if (!has_private_pools_.load()) return false;
  const auto pools = all_pools();
  return std::any_of(pools.begin(), pools.end(),
                     [&](const PoolPointer& pool) { return pool->allocator().contains(address); });
}

void Gpu::mark_step(const c10::cuda::CUDAStream& stream) noexcept {
  main_.allocator().mark_step(lanes_.lane_of(stream));
  deliver();
}

// --- Without caching ----------------------------------------------------------------------------

void* Gpu::allocate_uncached(Bytes size) {
  Status status;
  {
    const std::lock_guard lock(pools_mutex_);
    if (uncached_device_ == nullptr)
      uncached_device_ = make_cuda_device({.index = index_, .memory = CudaOptions::Memory::kPlain});
    const Bytes rounded = align_up(size, uncached_device_->properties().page_bytes);
    void* block = nullptr;
    status = uncached_device_->reserve(rounded, kAlignment, &block);
    if (status.ok()) {
      uncached_.emplace(block, rounded);
      uncached_count_.fetch_add(1);
      return block;
    }
  }
  throw_out_of_memory(size, "caching is off, and " + uncached_device_->describe(status));
}

bool Gpu::free_uncached(void* block) noexcept {
  if (uncached_count_.load() == 0) return false;
  const std::lock_guard lock(pools_mutex_);
  const auto it = uncached_.find(block);
  if (it == uncached_.end()) return false;
  (void)uncached_device_->release(block, it->second);
  uncached_.erase(it);
  uncached_count_.fetch_sub(1);
  return true;
}

// --- What the pools tell, under the lock --------------------------------------------------------

History::Entry Gpu::entry(Action action, std::size_t address, std::size_t size, LaneKey lane,
                          c10::MempoolId_t pool, History::Context context) const {
  const std::vector<std::string>& regions = compile_contexts();
  return {action,
          static_cast<c10::DeviceIndex>(index_),
          address,
          size,
          lanes_.stream_of(lane),
          pool,
          c10::getApproximateTime(),
          history_.for_entries() ? std::move(context) : nullptr,
          regions.empty() ? "N/A" : regions.back(),
          user_metadata()};
}

void Gpu::served(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept {
  statistics_.served(block);
  if (!history_.active()) [[likely]]
    return;
  history_.keep_context(block.pointer, pending_context);
  history_.add(entry(Action::ALLOC, reinterpret_cast<std::size_t>(block.pointer), block.requested,
                     block.lane, pool, pending_context));
}

void Gpu::freed(c10::MempoolId_t pool, const BlockListener::Block& block, bool waiting) noexcept {
  statistics_.freed(block, waiting);
  if (!history_.active()) [[likely]]
    return;
  const auto address = reinterpret_cast<std::size_t>(block.pointer);
  // Of the free where that is gathered, else of the request.
  const History::Context context =
      pending_context != nullptr ? pending_context : history_.context_of(block.pointer);
  history_.add(entry(Action::FREE_REQUESTED, address, block.requested, block.lane, pool, context));
  if (waiting) return;
  history_.add(entry(Action::FREE_COMPLETED, address, block.requested, block.lane, pool, context));
  (void)history_.forget_context(block.pointer);
}

void Gpu::completed(c10::MempoolId_t pool, const BlockListener::Block& block) noexcept {
  statistics_.completed(block);
  if (!history_.active()) [[likely]]
    return;
  history_.add(entry(Action::FREE_COMPLETED, reinterpret_cast<std::size_t>(block.pointer),
                     block.requested, block.lane, pool, history_.forget_context(block.pointer)));
}

void Gpu::came(c10::MempoolId_t pool, void* base, Bytes size, bool whole) noexcept {
  statistics_.came(pool, size);
  if (history_.active())
    history_.add(entry(whole ? Action::SEGMENT_ALLOC : Action::SEGMENT_MAP,
                       reinterpret_cast<std::size_t>(base), size, 0, pool, pending_context));
}

void Gpu::goes(c10::MempoolId_t pool, void* base, Bytes size, bool whole) noexcept {
  statistics_.goes(pool, size);
  if (history_.active())
    history_.add_and_tell(entry(whole ? Action::SEGMENT_FREE : Action::SEGMENT_UNMAP,
                                reinterpret_cast<std::size_t>(base), size, 0, pool,
                                pending_context));
}

// --- Fork ---------------------------------------------------------------------------------------

void Gpu::before_fork() noexcept {
  pools_mutex_.lock();
  mutex_.lock();
  lanes_.before_fork();
}

void Gpu::after_fork() noexcept {
  lanes_.after_fork();
  mutex_.unlock();
  pools_mutex_.unlock();
}

// --- Statistics and limits ----------------------------------------------------------------------

c10::CachingDeviceAllocator::DeviceStats Gpu::statistics() {
  std::uint64_t holes = main_.allocator().holes();
  for (const PoolPointer& pool : all_pools()) holes += pool->allocator().holes();
  const std::lock_guard lock(mutex_);
  return statistics_.get(holes);
}

void Gpu::reset_accumulated() {
  const std::lock_guard lock(mutex_);
  statistics_.reset_accumulated();
}

void Gpu::reset_peak() {
  const std::lock_guard lock(mutex_);
  statistics_.reset_peak();
}

void Gpu::set_memory_fraction(double fraction) {
  fraction_.store(fraction, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  meter_.set_limit(fraction >= 1.0 ? 0
                                   : static_cast<Bytes>(fraction * static_cast<double>(total())));
}

Bytes Gpu::free_bytes() noexcept {
  Bytes free = 0;
  const std::lock_guard lock(mutex_);
  return meter_.free_bytes(&free).ok() ? free : 0;
}

Bytes Gpu::largest_block() {
  Bytes largest = 0;
  const auto look = [&](const PoolStretch& stretch, bool) {
    for (const PoolStretch::Piece& piece : stretch.pieces)
      if (piece.kind == PoolStretch::Piece::Kind::kHole) largest = std::max(largest, piece.size);
  };
  main_.allocator().for_each_stretch(look);
  return largest;
}

void Gpu::empty_cache(c10::MempoolId_t id) {
  if (history_.active()) [[unlikely]]
    pending_context = history_.gather(History::When::ALL);
  if (id == c10::MempoolId_t{0, 0}) {
    (void)main_.allocator().trim();
    for (const PoolPointer& pool : all_pools()) pool->allocator().process_events();
    const std::lock_guard lock(mutex_);
    statistics_.synchronized();
  }
  // What is free in a pool that is in use stays: replays of captured graphs use it.
  (void)release_unused_pools();
  pending_context.reset();
  deliver();
}

void* Gpu::base_of(const void* address, std::size_t* size) {
  void* base = nullptr;
  const auto look = [&](const PoolStretch& stretch, bool) {
    const auto* first = static_cast<const std::byte*>(stretch.base);
    if (address < first || address >= first + stretch.size) return;
    base = const_cast<void*>(stretch.base);
    if (size != nullptr) *size = stretch.size;
  };
  main_.allocator().for_each_stretch(look);
  if (base == nullptr)
    for (const PoolPointer& pool : all_pools()) pool->allocator().for_each_stretch(look);
  return base;
}

CudaSharedMemory Gpu::share(const void* block) {
  const auto info = find(block);
  TORCH_CHECK(info, "berth: ", block, " is no live block of GPU ", index_);
  CudaSharedMemory shared;
  const Status status = cuda_->share(block, info->requested, &shared);
  TORCH_CHECK(status.ok(), "berth: cannot share a block of GPU ", index_,
              " with another process: ", cuda_->describe(status));
  return shared;
}

}  // namespace berth::torch
