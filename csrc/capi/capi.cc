#include "csrc/capi/devices.h"
#include "csrc/core/check.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/settings.h"

#include <berth/berth.h>
#include <berth/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace berth::capi {
namespace {

std::string& last_error() noexcept {
  thread_local std::string text;
  return text;
}

void note_error(const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {  // no memory for the text
  }
}

berth_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kUsage:
      return BERTH_USAGE;
    case ErrorKind::kInput:
      return BERTH_INPUT;
    case ErrorKind::kSystem:
      return BERTH_SYSTEM;
    case ErrorKind::kOutOfMemory:
      return BERTH_OUT_OF_MEMORY;
  }
  return BERTH_SYSTEM;
}

// False where no live block starts there.
bool record_use(DeviceOfProcess& here, void* block, void* stream) {
  if (block == nullptr || !here.allocator().find(block)) return false;
  const auto held = here.hold(stream);
  // mutant: s1-capi
  here.allocator().record_use(block, here.lane_of(stream));
  here.graphs().note_use(block, stream);
  return true;
}

// What `act` throws becomes a code and a text.
template <class Act>
berth_status guarded(Act act) noexcept {
  try {
    return act();
  } catch (const Error& error) {
    note_error(error.what());
    return status_of(error.kind());
  } catch (const std::bad_alloc&) {
    note_error("the host has no memory left");
    return BERTH_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    note_error(error.what());
    return BERTH_SYSTEM;
  }
}

void* allocate(std::size_t size, int index, void* stream) {
  if (size == 0) return nullptr;
  DeviceOfProcess& here = device(index);
  const auto held = here.hold(stream);
  return here.graphs().allocate(here.allocator(), size, here.lane_of(stream), stream);
}

berth_status release(void* block, std::size_t size, int index, void* stream) {
  if (block == nullptr || in_forked_child()) return BERTH_OK;
  DeviceOfProcess* const here = existing_device(index);
  BERTH_CHECK(here != nullptr, kUsage, "{} was freed on device {}, which has handed out nothing",
              block, index);
  if (size != 0) {
    if (const auto info = here->allocator().find(block)) {
      BERTH_CHECK(info->requested == size, kUsage,
                  "{} was freed as a block of {} bytes, it has {}: it stays", block, size,
                  info->requested);
    }
  }
  if (here->graphs().keep(block, stream)) return BERTH_OK;
  const auto held = here->hold(stream);
  // mutant: s6-capi
  switch (here->allocator().free(block, here->lane_of(stream))) {
    case Allocator::FreeOutcome::kDone:
      return BERTH_OK;
    case Allocator::FreeOutcome::kUnknown:
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} was freed, but no live block of device {} starts there: it was "
                              "freed before or never handed out",
                              block, index));
    case Allocator::FreeOutcome::kForeign:
      break;
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("{} was freed, which lies in no memory of device {}", block, index));
}

// Made by this library, not PyTorch's.
Graphs::Id own_graph(std::uint64_t number) noexcept { return {~std::uint64_t{0}, number}; }

berth_status end_capture(int index, Graphs::Id id) {
  DeviceOfProcess* const here = existing_device(index);
  if (here == nullptr) return BERTH_NO;
  here->graphs().end(id, here->allocator(), here->device());
  return BERTH_OK;
}

berth_status release_graph(int index, Graphs::Id id) {
  DeviceOfProcess* const here = existing_device(index);
  if (here == nullptr) return BERTH_NO;
  here->graphs().release(id, here->allocator(), here->device());
  return BERTH_OK;
}

// The value of that name; the first where there is no text.
template <class Value, std::size_t kCount>
Value value_of(const char* option, const char* text,
               const std::pair<std::string_view, Value> (&known)[kCount]) {
  if (text == nullptr) return known[0].second;
  std::string names;
  for (const auto& [name, value] : known) {
    if (name == text) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  throw Error(ErrorKind::kUsage, fmt::format("berth_options.{} is '{}': there are {}", option,
                                             std::string_view(text), names));
}

Settings settings_of(const berth_options* options) {
  if (options == nullptr) return {Config::from_environment(), false};
  constexpr std::size_t kFirstSize = offsetof(berth_options, memory);
  BERTH_CHECK(options->size >= kFirstSize, kUsage,
              "berth_options.size is {}, its first version has {} bytes", options->size,
              kFirstSize);
  berth_options given{};  // what an older caller does not know is 0
  std::memcpy(&given, options, std::min(options->size, sizeof given));
  Settings settings;
  Config& config = settings.config;
  config.mode = value_of<Mode>("mode", given.mode,
                               {{"learn", Mode::kLearn},
                                {"record", Mode::kRecord},
                                {"serve", Mode::kServe},
                                {"off", Mode::kOff}});
  if (given.plan != nullptr) config.plan = given.plan;
  if (given.trace != nullptr) config.trace = given.trace;
  config.memory_limit = given.memory_limit;
  config.memory = value_of<MemoryKind>("memory", given.memory,
                                       {{"auto", MemoryKind::kAuto},
                                        {"virtual", MemoryKind::kVirtual},
                                        {"plain", MemoryKind::kPlain}});
  config.handle = given.handle;
  settings.streams_may_end = given.streams_may_end != 0;
  BERTH_CHECK(config.mode != Mode::kServe || given.plan != nullptr, kUsage,
              "the mode is serve, and no plan is given");
  return settings;
}

}  // namespace
}  // namespace berth::capi

using namespace berth;
using namespace berth::capi;

extern "C" {

uint32_t berth_abi_version(void) { return (BERTH_ABI_MAJOR << 16) | BERTH_ABI_MINOR; }

const char* berth_last_error(void) { return last_error().c_str(); }

berth_status berth_init(const berth_options* options) {
  return guarded([&] {
    configure(settings_of(options));
    return BERTH_OK;
  });
}

void* berth_malloc(size_t size, int index, void* stream) {
  void* block = nullptr;
  (void)guarded([&] {
    block = allocate(size, index, stream);
    return BERTH_OK;
  });
  return block;
}

void* berth_malloc_or_throw(size_t size, int index, void* stream) {
  return allocate(size, index, stream);
}

void berth_free(void* block, size_t size, int index, void* stream) {
  (void)berth_release(block, size, index, stream);
}

berth_status berth_release(void* block, size_t size, int index, void* stream) {
  return guarded([&] { return release(block, size, index, stream); });
}

berth_status berth_record_stream(void* block, int index, void* stream) {
  return guarded([&] {
    DeviceOfProcess* const here = existing_device(index);
    return here != nullptr && record_use(*here, block, stream) ? BERTH_OK : BERTH_NO;
  });
}

void berth_use_on_stream(void* block, void* stream) {
  (void)guarded([&] {
    DeviceOfProcess* const likely = likely_device(block);
    if (likely != nullptr && record_use(*likely, block, stream)) return BERTH_OK;
    for (DeviceOfProcess* const here : existing_devices())
      if (here != likely && record_use(*here, block, stream)) break;
    return BERTH_OK;
  });
}

berth_status berth_forget_stream(int index, void* stream) {
  return guarded([&] {
    DeviceOfProcess* const here = existing_device(index);
    if (here == nullptr) return BERTH_NO;
    here->forget(stream);
    return BERTH_OK;
  });
}

berth_status berth_mark_step(int index, void* stream) {
  return guarded([&] {
    DeviceOfProcess* const here = existing_device(index);
    if (here == nullptr) return BERTH_NO;
    const auto held = here->hold(stream);
    here->allocator().mark_step(here->lane_of(stream));
    return BERTH_OK;
  });
}

berth_status berth_begin_capture(int index, void* stream, uint64_t* graph) {
  return guarded([&] {
    BERTH_CHECK(graph != nullptr, kUsage, "berth_begin_capture was given no place for the graph");
    BERTH_CHECK(index != BERTH_HOST, kUsage, "a capture was begun on the host, which has none");
    Graphs& graphs = device(index).graphs();
    const Graphs::Id id = *graph == 0 ? graphs.make_id() : own_graph(*graph);
    graphs.begin(id, [stream](void* asked) { return asked == stream; });
    *graph = id.second;
    return BERTH_OK;
  });
}

berth_status berth_end_capture(int index, uint64_t graph) {
  return guarded([&] { return end_capture(index, own_graph(graph)); });
}

berth_status berth_release_graph(int index, uint64_t graph) {
  return guarded([&] { return release_graph(index, own_graph(graph)); });
}

void berth_begin_pool(int index, berth_pool_id pool, const void* takes) {
  device(index).graphs().begin({pool.first, pool.second},
                               *static_cast<const Graphs::Takes*>(takes));
}

void berth_end_pool(int index, berth_pool_id pool) {
  (void)end_capture(index, {pool.first, pool.second});
}

void berth_release_pool(int index, berth_pool_id pool) {
  (void)release_graph(index, {pool.first, pool.second});
}

berth_status berth_load_plan(int index, const char* path) {
  return guarded([&] {
    BERTH_CHECK(path != nullptr, kUsage, "berth_load_plan was given no file");
    device(index).allocator().load_plan(read_plan(path));
    return BERTH_OK;
  });
}

berth_status berth_save_plan(int index, const char* path) {
  return guarded([&] {
    BERTH_CHECK(path != nullptr, kUsage, "berth_save_plan was given no file");
    DeviceOfProcess* const here = existing_device(index);
    const std::optional<Plan> plan = here == nullptr ? std::nullopt : here->allocator().plan();
    if (!plan) return BERTH_NO;
    write_plan(path, *plan);
    return BERTH_OK;
  });
}

berth_status berth_get_statistics(int index, berth_statistics* statistics) {
  return guarded([&] {
    BERTH_CHECK(statistics != nullptr && statistics->size >= sizeof(std::size_t), kUsage,
                "berth_statistics.size is not set");
    DeviceOfProcess* const here = existing_device(index);
    const Stats stats = here == nullptr ? Stats{} : here->allocator().stats();
    berth_statistics all{};
    all.size = std::min(statistics->size, sizeof all);
    all.requests = stats.requests;
    all.frees = stats.frees;
    all.hits = stats.hits;
    all.misses = stats.misses_size + stats.misses_busy + stats.misses_lane;
    all.live_bytes = stats.live;
    all.live_peak_bytes = stats.live_peak;
    all.reserved_bytes = stats.reserved;
    all.reserved_peak_bytes = stats.reserved_peak;
    all.arena_bytes = stats.arena;
    all.arena_bound_bytes = stats.arena_bound;
    all.steps = stats.steps;
    all.plans_learned = stats.plans_learned;
    all.driver_calls = stats.driver_calls;
    all.misuses = stats.misuses;
    std::memcpy(statistics, &all, all.size);
    return here == nullptr ? BERTH_NO : BERTH_OK;
  });
}

berth_status berth_statistics_json(int index, char* text, size_t size, size_t* needed) {
  return guarded([&] {
    DeviceOfProcess* const here = existing_device(index);
    const std::string all = (here == nullptr ? Stats{} : here->allocator().stats()).to_json();
    if (needed != nullptr) *needed = all.size() + 1;
    if (size != 0) {
      BERTH_CHECK(text != nullptr, kUsage, "berth_statistics_json was given no buffer");
      const std::size_t length = std::min(all.size(), size - 1);
      std::memcpy(text, all.data(), length);
      text[length] = '\0';
    }
    return here == nullptr ? BERTH_NO : BERTH_OK;
  });
}

berth_status berth_trim(int index) {
  return guarded([&] {
    DeviceOfProcess* const here = existing_device(index);
    if (here == nullptr) return BERTH_NO;
    (void)here->allocator().trim();
    return BERTH_OK;
  });
}

berth_status berth_release_memory(int index, int keep_contents, size_t* bytes) {
  return guarded([&] {
    if (bytes != nullptr) *bytes = 0;
    BERTH_CHECK(
        keep_contents == 0 || index != BERTH_HOST, kUsage,
        "contents of the host device are in host memory already: release its memory without");
    DeviceOfProcess* const here = existing_device(index);
    if (here == nullptr) return BERTH_NO;
    const Bytes given = here->allocator().release(keep_contents != 0);
    if (bytes != nullptr) *bytes = given;
    return BERTH_OK;
  });
}

berth_status berth_resume_memory(int index, size_t* bytes) {
  return guarded([&] {
    if (bytes != nullptr) *bytes = 0;
    DeviceOfProcess* const here = existing_device(index);
    if (here == nullptr) return BERTH_NO;
    const Bytes taken = here->allocator().resume();
    if (bytes != nullptr) *bytes = taken;
    return BERTH_OK;
  });
}

void berth_trim_all(void) {
  (void)guarded([] {
    for (DeviceOfProcess* const here : existing_devices()) (void)here->allocator().trim();
    return BERTH_OK;
  });
}

}  // extern "C"
