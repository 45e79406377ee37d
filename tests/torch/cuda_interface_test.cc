// What C++ programs count on of libtorch's CUDA allocator, and no Python call reaches: trackers of
// allocations, copies between GPUs, what newer libtorches ask. Runs on the stand-in with two GPUs,
// under the allocator that TEST_ALLOCATOR names; cases with [berth] under berth alone.
#include "csrc/standin/control.h"
#include "csrc/torch/cuda/cuda_allocator.h"

#include <berth/torch.h>
#include <berth/torch_cuda.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

// libtorch has one of its own.
#undef CHECK
#include "tests/catch.h"

namespace {

namespace cuda = c10::cuda;
namespace allocator = c10::cuda::CUDACachingAllocator;
using Entry = c10::CachingDeviceAllocator::TraceEntry;
using berth::torch::CudaAllocator;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Before CUDA is used, as in any program. Initialises CUDA too.
// berth on cudaMalloc throughout.
const bool is_plain = [] {
  const char* const memory = std::getenv("BERTH_MEMORY");
  return memory != nullptr && std::string_view(memory) == "plain";
}();
const bool is_berth = [] {
  const char* const name = std::getenv("TEST_ALLOCATOR");
  if (name != nullptr && std::string_view(name) == "berth") berth::torch::install_cuda();
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return berth::torch::cuda_installed();
}();

// A function of the stand-in, which is preloaded and never linked.
template <class Function>
Function* standin(const char* name, Function*) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}
#define STANDIN(name) standin(#name, static_cast<decltype(&berth::standin::name)>(nullptr))

at::Tensor bytes(std::int64_t size, int device = 0) {
  return at::empty({size}, at::TensorOptions(c10::Device(c10::kCUDA, device)).dtype(at::kByte));
}

at::Tensor pattern(std::int64_t size, int first) {
  return at::arange(first, first + size, at::kInt).to(at::kByte);
}

// All that trackers hear of: one for the process, since none can be detached.
std::vector<Entry>& heard() {
  static std::vector<Entry>* const entries = [] {
    auto* const made = new std::vector<Entry>;
    allocator::attachAllocatorTraceTracker([made](const Entry& entry) { made->push_back(entry); });
    return made;
  }();
  return *entries;
}

const Entry* find(const std::vector<Entry>& entries, std::vector<Entry::Action> actions,
                  const void* address = nullptr) {
  const auto at = reinterpret_cast<std::size_t>(address);
  for (const Entry& entry : entries)
    for (const Entry::Action action : actions)
      if (entry.action_ == action &&
          (at == 0 || (entry.addr_ <= at && at < entry.addr_ + entry.size_)))
        return &entry;
  return nullptr;
}

// Under berth with a plan learned: from a step that repeats, a block that the plan serves.
at::Tensor planned_block(std::int64_t size, int device) {
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  for (int i = 0; i < 400; ++i) {
    const auto before = berth::torch::cuda_stats(device).hits;
    at::Tensor large = bytes(size, device);
    if (berth::torch::cuda_stats(device).hits > before) return large;
    { const at::Tensor other = bytes(size / 2, device); }
    large.reset();
    berth::torch::mark_step();
    if (i > 20) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

void copy_between(const at::Tensor& to, const at::Tensor& from, bool p2p) {
  const c10::DeviceGuard guard(from.device());
  const auto stream = cuda::getCurrentCUDAStream();
  REQUIRE(allocator::memcpyAsync(to.data_ptr(), to.device().index(), from.data_ptr(),
                                 from.device().index(), from.nbytes(), stream, p2p) == cudaSuccess);
  stream.unwrap().synchronize();
}

}  // namespace

TEST_CASE("An unused GPU's emptied cache counts as a synchronisation", "[statistics]") {
  const auto before = allocator::getDeviceStats(1).num_sync_all_streams;
  allocator::emptyCache();
  CHECK(allocator::getDeviceStats(1).num_sync_all_streams == before + 1);
  { const at::Tensor used = bytes(512, 1); }
  allocator::emptyCache();
  CHECK(allocator::getDeviceStats(1).num_sync_all_streams == before + 2);
  allocator::resetAccumulatedStats(1);
  CHECK(allocator::getDeviceStats(1).num_sync_all_streams == 0);
}

TEST_CASE("Trackers hear of memory before its blocks and of each block's life", "[trackers]") {
  allocator::emptyCache();
  std::vector<Entry>& entries = heard();
  entries.clear();
  const void* address = nullptr;
  {
    const at::Tensor block = bytes(64 * kMiB);
    address = block.data_ptr();
    const Entry* const memory = find(entries, {Entry::SEGMENT_ALLOC, Entry::SEGMENT_MAP}, address);
    REQUIRE(memory != nullptr);
    const Entry* const request = find(entries, {Entry::ALLOC}, address);
    REQUIRE(request != nullptr);
    CHECK(memory < request);
    CHECK(request->size_ == 64 * kMiB);
    CHECK(request->device_ == 0);
    CHECK(find(entries, {Entry::FREE_REQUESTED}) == nullptr);
  }
  CHECK(find(entries, {Entry::FREE_REQUESTED}, address) != nullptr);
  CHECK(find(entries, {Entry::FREE_COMPLETED}, address) != nullptr);
  entries.clear();
  allocator::emptyCache();
  CHECK(find(entries, {Entry::SEGMENT_FREE, Entry::SEGMENT_UNMAP}, address) != nullptr);
}

TEST_CASE("What trackers heard, the snapshot and the statistics are of the same memory",
          "[trackers]") {
  allocator::emptyCache();
  std::vector<Entry>& entries = heard();
  entries.clear();
  const auto reserved = [] { return allocator::getDeviceStats(0).reserved_bytes[0].current; };
  const auto base = reserved();
  std::size_t followed = 0;
  const auto check = [&](const char* when) {
    CAPTURE(when);
    auto heard_of = base;
    for (const Entry& entry : entries) {
      if (entry.device_ != 0) continue;
      const auto size = static_cast<std::int64_t>(entry.size_);
      if (entry.action_ == Entry::SEGMENT_ALLOC || entry.action_ == Entry::SEGMENT_MAP)
        heard_of += size;
      if (entry.action_ == Entry::SEGMENT_FREE || entry.action_ == Entry::SEGMENT_UNMAP)
        heard_of -= size;
      CHECK(heard_of >= 0);
    }
    std::int64_t shown = 0, count = 0;
    for (const auto& segment : allocator::snapshot().segments) {
      if (segment.device != 0) continue;
      ++count;
      shown += static_cast<std::int64_t>(segment.total_size);
    }
    const auto stats = allocator::getDeviceStats(0);
    CHECK(heard_of == shown);
    CHECK(stats.reserved_bytes[0].current == shown);
    CHECK(stats.segment[0].current == count);
    CHECK(stats.inactive_split_bytes[0].current >= 0);
    ++followed;
  };
  std::vector<at::Tensor> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(bytes(20 * kMiB));
  check("blocks");
  for (std::size_t i = 0; i < blocks.size(); i += 2) blocks[i].reset();
  blocks.push_back(bytes(75 * kMiB));
  check("one that no hole holds");
  if (is_berth) {
    for (const bool keep : {false, true}) {
      const auto live = allocator::getDeviceStats(0).allocated_bytes[0].current;
      if (keep && is_plain) {  // what lives there cannot leave its addresses
        CHECK_THROWS_AS(berth::torch::cuda_release_memory(0, keep), std::exception);
        continue;
      }
      CHECK(berth::torch::cuda_release_memory(0, keep) <= 400 * kMiB);
      check("released");
      if (keep) CHECK(reserved() < live);
      { const at::Tensor meanwhile = bytes(8 * kMiB); }
      check("while it is away");
      if (keep) blocks.back().reset();
      (void)berth::torch::cuda_resume_memory(0);
      check("it is back");
    }
  }
  blocks.clear();
  allocator::emptyCache();
  check("all is freed");
  CHECK(reserved() <= base);
  CHECK(followed >= 3);
}

TEST_CASE("Trackers hear of running out", "[trackers]") {
  std::vector<Entry>& entries = heard();
  entries.clear();
  CHECK_THROWS_AS(bytes(std::int64_t{1} << 50), c10::OutOfMemoryError);
  const Entry* const out = find(entries, {Entry::OOM});
  REQUIRE(out != nullptr);
  CHECK(out->size_ == std::size_t{1} << 50);
}

TEST_CASE("Trackers hear that a recorded block came free once its stream was done", "[trackers]") {
  STANDIN(berth_standin_set_pace)(1);
  std::vector<Entry>& entries = heard();
  const auto side = cuda::getStreamFromPool();
  at::Tensor block = bytes(4 * kMiB);
  const void* const address = block.data_ptr();
  {
    const c10::StreamGuard on_side(side.unwrap());
    block.fill_(1);
  }
  block.record_stream(side);
  entries.clear();
  block.reset();
  CHECK(find(entries, {Entry::FREE_REQUESTED}, address) != nullptr);
  CHECK(find(entries, {Entry::FREE_COMPLETED}, address) == nullptr);
  side.unwrap().synchronize();
  { const at::Tensor next = bytes(512 * kMiB); }  // no hole serves it: streams are looked at
  CHECK(find(entries, {Entry::FREE_COMPLETED}, address) != nullptr);
  STANDIN(berth_standin_set_pace)(2);
}

TEST_CASE("Two GPUs reach each other's memory", "[peers]") {
  constexpr std::int64_t kSize = 300000;
  allocator::enablePeerAccess(0, 1);
  allocator::enablePeerAccess(1, 0);
  allocator::enablePeerAccess(0, 1);  // that it is on already is no error
  for (const bool p2p : {true, false}) {
    const at::Tensor first = bytes(kSize, 0), second = bytes(kSize, 1), third = bytes(kSize, 0);
    first.copy_(pattern(kSize, p2p ? 3 : 4));
    copy_between(second, first, p2p);
    CHECK(at::equal(second.cpu(), pattern(kSize, p2p ? 3 : 4)));
    copy_between(third, second, p2p);
    CHECK(at::equal(third.cpu(), pattern(kSize, p2p ? 3 : 4)));
  }
  // Memory that came after the access was given is reached as well.
  const at::Tensor late = bytes(96 * kMiB, 1), other = bytes(96 * kMiB, 0);
  late.narrow(0, 0, kSize).copy_(pattern(kSize, 5));
  copy_between(other, late, true);
  CHECK(at::equal(other.narrow(0, 0, kSize).cpu(), pattern(kSize, 5)));
}

TEST_CASE("A tracker that asks for memory while memory goes gets an error", "[berth][trackers]") {
  static bool asks = false;
  static bool refused = false;
  CudaAllocator::get()->attachAllocatorTraceTracker([](const Entry& entry) {
    if (!asks || (entry.action_ != Entry::SEGMENT_UNMAP && entry.action_ != Entry::SEGMENT_FREE))
      return;
    try {
      (void)allocator::get()->allocate(512);
    } catch (const c10::Error&) {
      refused = true;
    }
  });
  { const at::Tensor block = bytes(64 * kMiB); }
  asks = true;
  allocator::emptyCache();
  asks = false;
  CHECK(refused);
  CHECK(bytes(512).defined());
}

TEST_CASE("A free waits for no lock of another GPU", "[berth]") {
  static std::function<void()> under_the_lock;  // of GPU 0
  CudaAllocator::get()->attachAllocatorTraceTracker([](const Entry& entry) {
    const bool goes = entry.action_ == Entry::SEGMENT_UNMAP || entry.action_ == Entry::SEGMENT_FREE;
    if (goes && entry.device_ == 0)
      if (const auto act = std::exchange(under_the_lock, nullptr)) act();
  });
  { const at::Tensor block = bytes(64 * kMiB, 0); }
  at::Tensor other = bytes(kMiB, 1);
  std::future<void> freed;
  bool freed_in_time = false;
  under_the_lock = [&] {
    freed = std::async(std::launch::async, [&] { other.reset(); });
    freed_in_time = freed.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  };
  allocator::emptyCache();
  freed.get();
  CHECK(freed_in_time);
}

TEST_CASE("A request that the memory fraction refuses is told apart from the driver's",
          "[berth][newer]") {
  struct Refusal {
    std::int64_t device;
    std::size_t asked, held, total;
  };
  static std::vector<Refusal> refusals;
  CudaAllocator& berth = *CudaAllocator::get();
  berth.observe_refusals(
      [](std::int64_t device, std::size_t asked, std::size_t held, std::size_t total) {
        refusals.push_back({device, asked, held, total});
      });
  const auto [free, total] = berth.getMemoryInfo(0);
  CHECK_THROWS_AS(bytes(static_cast<std::int64_t>(total)), c10::OutOfMemoryError);
  CHECK(refusals.empty());  // the driver's word

  allocator::emptyCache();
  allocator::setMemoryFraction(0.25, 0);
  const at::Tensor held = bytes(static_cast<std::int64_t>(total / 8));
  const auto size = static_cast<std::int64_t>(total / 5);
  CHECK_THROWS_AS(bytes(size), c10::OutOfMemoryError);
  allocator::setMemoryFraction(1.0, 0);
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].device == 0);
  CHECK(refusals[0].asked == static_cast<std::size_t>(size));
  CHECK(refusals[0].held >= total / 8);
  CHECK(refusals[0].total == total);
}

TEST_CASE("A block can be had at the address of free memory and nowhere else", "[berth][newer]") {
  CudaAllocator& berth = *CudaAllocator::get();
  void* address = nullptr;
  { address = bytes(48 * kMiB).data_ptr(); }
  auto* const inside = static_cast<std::byte*>(address) + 8 * kMiB;
  {
    const c10::DataPtr block = berth.allocate_at(kMiB, inside);
    CHECK(block.get() == inside);
    CHECK(block.get_deleter() == berth.raw_deleter());
    CHECK_THROWS_AS(berth.allocate_at(kMiB, inside), c10::Error);
    CHECK_THROWS_AS(berth.allocate_at(kMiB, inside - 512), c10::Error);
    const at::Tensor other = bytes(48 * kMiB);
    const auto* const first = static_cast<const std::byte*>(other.data_ptr());
    CHECK((first >= inside + kMiB || first + 48 * kMiB <= inside));
  }
  CHECK(berth.allocate_at(kMiB, inside).get() == inside);
  CHECK(berth.allocate_at(0, inside).get() == nullptr);
  CHECK_THROWS_AS(berth.allocate_at(512, inside + 1), c10::Error);
  int outside = 0;
  CHECK_THROWS_AS(berth.allocate_at(512, &outside), c10::Error);
}

TEST_CASE("The context of a block is where it was asked for", "[berth][newer]") {
  struct Context final : c10::GatheredContext {};
  CudaAllocator& berth = *CudaAllocator::get();
  const at::Tensor before = bytes(1000);
  berth.recordHistory(
      true, +[]() -> std::shared_ptr<c10::GatheredContext> { return std::make_shared<Context>(); },
      10, c10::CachingDeviceAllocator::RecordContext::STATE, true, {});
  const at::Tensor block = bytes(1000);
  CHECK(dynamic_cast<const Context*>(berth.context_of(block.data_ptr()).get()) != nullptr);
  CHECK(berth.context_of(before.data_ptr()) == nullptr);
  CHECK(berth.context_of(&berth) == nullptr);
  berth.annotate(block.data_ptr(), "weights");
  CHECK_THROWS_AS(berth.annotate(static_cast<std::byte*>(block.data_ptr()) + 512, "none"),
                  c10::Error);
  CHECK_THROWS_AS(berth.annotate(&berth, "none"), c10::Error);
  berth.recordHistory(false, nullptr, 1, c10::CachingDeviceAllocator::RecordContext::NEVER, true,
                      {});
}

// The last one: beside a plan free memory of the pool goes back to the driver soon.
TEST_CASE("A block of the plan is copied to another GPU and back", "[berth][peers]") {
  constexpr std::int64_t kSize = 3 * 1000 * 1000;
  const at::Tensor planned = planned_block(kSize, 0);
  REQUIRE(planned.defined());
  allocator::enablePeerAccess(0, 1);
  allocator::enablePeerAccess(1, 0);
  const at::Tensor there = bytes(kSize, 1);
  planned.copy_(pattern(kSize, 7));
  copy_between(there, planned, true);
  CHECK(at::equal(there.cpu(), pattern(kSize, 7)));
  there.copy_(pattern(kSize, 8));
  copy_between(planned, there, true);
  CHECK(at::equal(planned.cpu(), pattern(kSize, 8)));
}
