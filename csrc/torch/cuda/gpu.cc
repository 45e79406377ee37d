#include "csrc/torch/cuda/gpu.h"

#include "csrc/facts/rounding.h"
#include "csrc/plan/folder.h"
#include "csrc/torch/cuda/pool_state.h"
#include "csrc/torch/cuda/segments.h"
#include "csrc/torch/installation.h"
#include "csrc/torch/shared/program.h"
#include "csrc/torch/shared/range_numbers.h"
#include "csrc/torch/shared/room.h"
#include "csrc/trace/known_ranges.h"

#include <berth/error.h>
#include <berth/warnings.h>

#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

namespace berth::torch {
namespace {

using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;
using PoolPointer = PrivatePools::PoolPointer;

using facts::kCudaUnit;

// Puts a range of no length where the trace is, if one is recorded.
void note_in_trace(Allocator& allocator, std::string_view name) {
  if (Recorder* const recorder = allocator.recorder())
    recorder->append(
        trace::RangeEnd{.range = begin_range(*recorder, name, trace::RangeKind::kUser)});
}

// PyTorch's setting roundup_power2_divisions: sizes in so many steps between powers of two.
Bytes round_to_division(Bytes size) {
  if (size > kMaxBytes) return size;
  const std::size_t divisions =
      c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions(size);
  if (divisions <= 1 || size <= kCudaUnit * divisions) return size;
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
  if (!PlanFolder::is_named_by(config.plan)) config.plan = name_for(config.plan, index);
  config.stats = name_for(config.stats, index);
  return config;
}

}  // namespace

Gpu::Gpu(int index, const Config& config, AddressTable& addresses, Observer on_out_of_memory)
    : index_(index),
      config_(config_for(config, index)),
      on_out_of_memory_(std::move(on_out_of_memory)),
      cuda_(make_cuda_device({.index = index, .memory = config.memory})),
      lanes_(*cuda_),
      store_(lanes_),
      reports_(index, mutex_, lanes_, addresses),
      pools_(
          [this](c10::MempoolId_t id, PrivatePool::Source source, bool whole) {
            return std::make_shared<PrivatePool>(id, store_, *cuda_, options(config_, false),
                                                 reports_, std::move(source), whole);
          },
          [this](cudaStream_t stream) {
            const LaneKey lane = lanes_.lane_of(stream);
            if (StreamLanes::foreign(lane)) return true;  // it may be gone
            bool capturing = false;
            return !lanes_.capturing(lane, &capturing).ok() || capturing;
          }),
      main_(store_, options(config_, true), reports_),
      uncached_(*cuda_, addresses) {}

Allocator::Options Gpu::options(const Config& config, bool main) {
  Allocator::Options options;
  options.config = config;
  options.program = this_program(config, store_.properties());
  options.alignment = kCudaUnit;
  options.device_index = index_;
  options.lock = &mutex_;
  options.captures = &pools_.captures();
  const DeviceProperties& properties = store_.properties();
  options.pool.growth_bytes = std::max(properties.page_bytes, Bytes{2} << 20);
  options.pool.segment_bytes = Bytes{20} << 20;  // as PyTorch's
  options.free_pages = main ? Allocator::FreePages::kGoWhenExhausted : Allocator::FreePages::kStay;
  if (!main) {
    // Plain memory is as PyTorch's, which has no other.
    if (properties.maps_pages) options.pool.large_segment_bytes = Bytes{64} << 20;
    options.config.mode = Mode::kOff;
    options.has_steps = false;
    options.config.verbose = false;  // the line at exit is the main allocator's
  }
  return options;
}

// --- Requests -----------------------------------------------------------------------------------

void* Gpu::allocate(std::size_t size, const c10::cuda::CUDAStream& stream) {
  if (size == 0) return nullptr;
  const LaneKey lane = lanes_.lane_of(stream);
  // The handle costs a look-up: only who routes by it, or must hold the stream, needs it.
  const bool needs_stream = pools_.routed() || StreamLanes::foreign(lane);
  return allocate_on(size, lane, needs_stream ? stream.stream() : nullptr);
}

void* Gpu::allocate(std::size_t size, cudaStream_t stream) {
  return size == 0 ? nullptr : allocate_on(size, lanes_.lane_of(stream), stream);
}

void* Gpu::allocate_on(std::size_t asked, LaneKey lane, cudaStream_t stream) {
  TORCH_CHECK(!History::inside_tracker(),
              "berth: a tracker of allocations asked for memory on the GPU that it was told of");
  if (!caching_.load(std::memory_order_relaxed)) [[unlikely]] {
    if (asked > kMaxBytes) throw_out_of_memory(asked, "no device has that much");
    void* block = nullptr;
    const Status status = uncached_.allocate(asked, &block);
    if (status.ok()) return block;
    const std::string reason = "caching is off, and " + cuda_->describe(status);
    TORCH_CHECK(status.code() == Status::Code::kOutOfMemory, "berth: ", reason);
    throw_out_of_memory(asked, reason);
  }
  std::optional<CudaStreamScope> scope;
  if (StreamLanes::foreign(lane)) [[unlikely]]
    scope.emplace(*cuda_, stream);
  void* block = nullptr;
  if (pools_.routed() && !PrivatePool::inside_source_of_any()) [[unlikely]] {
    const PoolPointer pool = pools_.routed_for(stream);
    if (pool != nullptr && !pool->captured) {
      bool capturing = false;
      if (!lanes_.capturing(lane, &capturing).ok() || capturing) pool->captured = true;
    }
    block = allocate_in(pool == nullptr ? main_ : *pool, asked, lane);
  } else {
    block = allocate_in(main_, asked, lane);
  }
  if (c10::memoryProfilingEnabled()) [[unlikely]]
    reports_.tell_profiler(block, size_of(block));
  if (const c10::impl::PyInterpreter* const python = c10::impl::GPUTrace::get_trace()) [[unlikely]]
    (*python)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(block));
  return block;
}

void* Gpu::allocate_at(void* address, std::size_t size, const c10::cuda::CUDAStream& stream) {
  if (size == 0) return nullptr;
  TORCH_CHECK(size <= kMaxBytes && reinterpret_cast<std::uintptr_t>(address) % kCudaUnit == 0,
              "berth: ", size, " bytes at ", address, ": no block can be there");
  const LaneKey lane = lanes_.lane_of(stream);
  const PoolPointer routed = pools_.routed() ? pools_.routed_for(stream.stream()) : nullptr;
  Allocator& allocator = (routed == nullptr ? main_ : *routed).allocator();
  // Whoever had these bytes before may still use them.
  const Status idle = lanes_.synchronize_all();
  TORCH_CHECK(idle.ok(), "berth: cannot wait for GPU ", index_,
              " to be done with memory that is asked for by its address: ", cuda_->describe(idle));
  allocator.process_events();
  {
    const Reports::Call call(reports_, Reports::When::STATE);
    TORCH_CHECK(allocator.allocate_at(address, size, lane), "berth: ", size, " bytes at ", address,
                " are not free in the pool of GPU ", index_);
  }
  if (c10::memoryProfilingEnabled()) reports_.tell_profiler(address, size_of(address));
  return address;
}

void* Gpu::allocate_in(PrivatePool& pool, Bytes asked, LaneKey lane) {
  // PyTorch's own words.
  TORCH_CHECK_WITH(OutOfMemoryError, asked <= Bytes{1} << 60,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  const Bytes size = round_to_division(asked);
  const Reports::Call call(reports_, Reports::When::STATE, size == asked ? 0 : asked);
  if (size > kMaxBytes) throw_out_of_memory(size, "no device has that much");
  try {
    return pool.allocator().allocate(size, lane, thread_tag());
  } catch (const OutOfMemory& error) {
    return search_everywhere(pool, size, lane, error.what());
  } catch (const Error& error) {
    TORCH_CHECK(false, "berth: ", error.what());
  }
}

// The pool and the driver have nothing left: what others keep free comes next.
void* Gpu::search_everywhere(PrivatePool& pool, Bytes size, LaneKey lane,
                             const std::string& reason) {
  reports_.retried();
  reports_.deliver();
  pools_.end_void_captures();
  const auto ask = [&](PrivatePool& asked) -> void* {
    try {
      return asked.allocator().allocate(size, lane, thread_tag());
    } catch (const OutOfMemory&) {
      return nullptr;
    } catch (const Error& error) {
      TORCH_CHECK(false, "berth: ", error.what());
    }
  };
  bool freed = false;
  for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
    freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  if (freed)
    if (void* const block = ask(pool)) return block;
  freed = pools_.release_unused();
  if (&pool != &main_) {
    freed |= main_.allocator().trim() != 0;
    if (!pool.captured) freed |= pool.allocator().trim() != 0;
  }
  if (freed)
    if (void* const block = ask(pool)) return block;
  for (const PoolPointer& other : pools_.all())
    if (other->use_on_oom && other.get() != &pool)
      if (void* const block = ask(*other)) return block;
  RoomMaker* const maker = room_maker();
  if (maker == nullptr) throw_out_of_memory(size, reason);
  while (maker->make_room({c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_)}, size))
    if (void* const block = ask(pool)) return block;
  throw_out_of_memory(size, reason + "; " + maker->why_no_room());
}

void Gpu::throw_out_of_memory(Bytes size, const std::string& reason) {
  Bytes free = 0;
  if (!cuda_->free_bytes(&free).ok()) free = 0;
  const bool refused = size > kMaxBytes || [&] {
    const std::lock_guard lock(mutex_);
    const Bytes limit = store_.limit(), page = store_.properties().page_bytes;
    return limit != 0 && align_up(size, page) > limit - std::min(limit, store_.held());
  }();
  const Reports::Totals totals = reports_.exhausted(size, free, refused);
  reports_.deliver();
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_));
  c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(size), totals.allocated,
                                   totals.reserved, device);
  on_out_of_memory_({index_, size, totals.reserved, total(), free, refused});
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
                   "Of the memory that berth has, ", format_size(totals.allocated),
                   " is allocated and ",
                   format_size(totals.reserved - std::min(totals.reserved, totals.allocated)),
                   " is reserved and free. berth: ", reason);
}

// --- Frees and uses -----------------------------------------------------------------------------

Allocator::FreeOutcome Gpu::free(void* block) noexcept {
  using Outcome = Allocator::FreeOutcome;
  // Before the address can be handed out again.
  if (const c10::impl::PyInterpreter* const python = c10::impl::GPUTrace::get_trace()) [[unlikely]]
    if (contains(block))
      (*python)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<std::uintptr_t>(block));
  const bool profiled = c10::memoryProfilingEnabled();
  const std::int64_t size = profiled ? size_of(block) : 0;
  Outcome outcome = Outcome::kForeign;
  {
    const Reports::Call call(reports_, Reports::When::ALL);
    outcome = main_.allocator().free(block);
    if (outcome == Outcome::kForeign) [[unlikely]]
      if (const PoolPointer pool = pools_.with(block)) outcome = pool->allocator().free(block);
  }
  if (outcome == Outcome::kForeign && uncached_.free(block)) return Outcome::kDone;
  if (outcome == Outcome::kDone && profiled) reports_.tell_profiler(block, -size);
  return outcome;
}

// What a live block takes; 0 of what is none.
std::int64_t Gpu::size_of(const void* block) noexcept {
  const auto info = find(block);
  return info ? static_cast<std::int64_t>(align_up(info->requested, kCudaUnit)) : 0;
}

void Gpu::record_use(const void* block, const c10::cuda::CUDAStream& stream) {
  const PoolPointer pool = main_.allocator().contains(block) ? nullptr : pools_.with(block);
  try {
    const LaneKey lane = lanes_.lane_of_user(stream);
    std::optional<CudaStreamScope> scope;
    if (StreamLanes::foreign(lane)) scope.emplace(*cuda_, stream.stream());
    if (pool != nullptr) pools_.note_user(*pool);
    (pool == nullptr ? main_ : *pool).allocator().record_use(block, lane);
  } catch (const Error& error) {
    TORCH_CHECK(false, "berth: ", error.what());
  }
}

bool Gpu::contains(const void* address) const {
  return main_.allocator().contains(address) || pools_.with(address) != nullptr;
}

std::optional<Allocator::BlockInfo> Gpu::find(const void* block) {
  const PoolPointer pool = pools_.with(block);
  return (pool == nullptr ? main_ : *pool).allocator().find(block);
}

void Gpu::mark_step(const c10::cuda::CUDAStream& stream) noexcept {
  try {
    pools_.end_void_captures();
  } catch (...) {  // no memory: at the next mark
  }
  main_.allocator().mark_step(lanes_.lane_of(stream));
  reports_.deliver();
}

// --- Limits -------------------------------------------------------------------------------------

void Gpu::set_memory_fraction(double fraction) {
  fraction_.store(fraction, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  store_.set_limit(fraction >= 1.0 ? 0
                                   : static_cast<Bytes>(fraction * static_cast<double>(total())));
}

Bytes Gpu::free_bytes() noexcept {
  Bytes free = 0;
  const std::lock_guard lock(mutex_);
  return store_.free_bytes(&free).ok() ? free : 0;
}

Bytes Gpu::largest_block() {
  Bytes largest = 0;
  main_.allocator().for_each_stretch([&](const Stretch& stretch, bool) {
    for (const Stretch::Piece& piece : stretch.pieces)
      if (piece.kind == Stretch::Piece::Kind::kHole) largest = std::max(largest, piece.size);
  });
  return largest;
}

void Gpu::empty_cache(c10::MempoolId_t id) {
  pools_.end_void_captures();
  const Reports::Call call(reports_, Reports::When::ALL);
  if (id == c10::MempoolId_t{0, 0}) {
    note_in_trace(main_.allocator(), trace::kEmptyCacheRange);
    trim();
  }
  // What is free in a pool that is in use stays: replays of captured graphs use it.
  (void)pools_.release_unused();
}

void Gpu::trim() {
  const Reports::Call call(reports_, Reports::When::ALL);
  (void)main_.allocator().trim();
  pools_.process_events();
  reports_.synchronized();
}

Bytes Gpu::release_memory(bool keep_contents) {
  const std::lock_guard lock(leaving_);
  const Reports::Call call(reports_, Reports::When::ALL);
  (void)pools_.release_unused();
  const Bytes given = main_.allocator().release(keep_contents);
  if (main_.allocator().parked()) pools_.divert(true);
  reports_.synchronized();
  return given;
}

Bytes Gpu::resume_memory() {
  const std::lock_guard lock(leaving_);
  const Reports::Call call(reports_, Reports::When::ALL);
  if (const PoolPointer meanwhile = pools_.find(PrivatePools::kMeanwhile))
    (void)meanwhile->allocator().trim();
  const Bytes taken = main_.allocator().resume();
  pools_.divert(false);
  (void)pools_.release_unused();
  return taken;
}

// --- Private pools ------------------------------------------------------------------------------

void Gpu::begin_pool(c10::MempoolId_t id, PrivatePools::Filter filter) {
  static std::atomic<bool> warned{false};
  using Settings = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
  if (Settings::graph_capture_record_stream_reuse() && !warned.exchange(true))
    warn("settings-ignored",
         "PYTORCH_ALLOC_CONF asks for graph_capture_record_stream_reuse, which berth's CUDA "
         "allocator does not have: what other streams used comes back after the capture");
  // If a capture begins now it is this stream's, which then must be known (StreamLanes).
  const auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index_));
  (void)lanes_.lane_of(stream);
  note_in_trace(main_.allocator(), trace::kPrivatePoolRange);
  pools_.begin(id, std::move(filter), stream.stream());
}

void Gpu::note_capture(bool ended) {
  pools_.note_capture(ended);
  if (ended) main_.allocator().process_events();
}

CheckpointDelta Gpu::restore_pool(const AllocatorState& state, c10::DeleterFnPtr deleter) {
  const PoolPointer pool = pools_.find(pool_of(state));
  TORCH_CHECK(pool != nullptr, "berth: the memory pool of this state is gone");
  CheckpointDelta delta =
      restore(*pool, state,
              c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index_)), deleter);
  reports_.deliver();
  return delta;
}

// --- What is told -------------------------------------------------------------------------------

c10::CachingDeviceAllocator::DeviceStats Gpu::statistics() {
  std::uint64_t holes = main_.allocator().holes();
  for (const PoolPointer& pool : pools_.all()) holes += pool->allocator().holes();
  return reports_.statistics(holes);
}

void Gpu::add_segments(std::optional<c10::MempoolId_t> wanted,
                       std::vector<c10::CachingDeviceAllocator::SegmentInfo>* segments) {
  const auto add = [&](const PrivatePool& pool) {
    if (!wanted || *wanted == pool.id)
      berth::torch::add_segments(pool, index_, lanes_, reports_, segments);
  };
  add(main_);
  for (const PoolPointer& pool : pools_.all()) add(*pool);
}

void Gpu::annotate(const void* block, const std::string& text) {
  const auto info = find(block);
  TORCH_CHECK(info, "berth: ", block, " is no live block of GPU ", index_);
  reports_.annotate(block, info->requested, info->lane, text);
}

// --- Other processes ----------------------------------------------------------------------------

void* Gpu::base_of(const void* address, std::size_t* size) {
  void* base = nullptr;
  const auto look = [&](const Stretch& stretch, bool) {
    const auto* first = static_cast<const std::byte*>(stretch.base);
    if (address < first || address >= first + stretch.size) return;
    base = const_cast<void*>(stretch.base);
    if (size != nullptr) *size = stretch.size;
  };
  main_.allocator().for_each_stretch(look);
  if (base == nullptr)
    if (const PoolPointer pool = pools_.with(address)) pool->allocator().for_each_stretch(look);
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

void Gpu::before_fork() noexcept {
  uncached_.before_fork();
  pools_.before_fork();
  mutex_.lock();
  lanes_.before_fork();
}

void Gpu::after_fork() noexcept {
  lanes_.after_fork();
  mutex_.unlock();
  pools_.after_fork();
  uncached_.after_fork();
}

}  // namespace berth::torch
