#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/device/host_device.h"
#include "tests/support/page_file.h"
#include "tests/support/touch_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace berth::test {

// Calls of a device that can be told to fail.
enum class CallKind : std::uint8_t {
  kFreeBytes,
  kReserve,
  kCommit,
  kDecommit,
  kRelease,
  kAlias,
  kReservePinned,
  kReleasePinned,
  kCopy,
  kRecord,
  kQuery,
  kWait,
  kSynchronize,
  kSynchronizeAll,
  kCapturing,
};
inline constexpr std::size_t kCallKinds = 15;

// A device with lanes that run behind the host, for tests: host memory, whose pages may have
// several addresses, and
// - handles of several pages, where it is told to have them: what takes a part of one is refused;
// - a scheduler: an event completes only when complete_some() (at random), synchronize() or
//   synchronize_all() runs its lane up to it; copies move their bytes then;
// - fault injection: the n-th call, of any kind or of one, fails with a status of choice;
// - a happens-before checker with vector clocks: touch() says that work queued on a lane uses
//   bytes, hand_out() that bytes go to a request of a lane, which every earlier touch must happen
//   before, at whatever address it was. Giving addresses back checks for the host what used them at
//   these addresses;
// - a count of calls, and of events and ranges still held.
// What goes wrong is a line in violations(). Thread-safe.
class SimulatedDevice final : public Device {
 public:
  struct Options {
    Bytes total_bytes = Bytes{1} << 30;  // committed pages and pinned ranges count against it
    Bytes page_bytes = 4096;             // a multiple of the host's
    bool maps_pages = true;
    bool aliases = true;   // where it maps pages
    bool handles = false;  // memory comes in handles of several pages; else each is one
  };

  SimulatedDevice() : SimulatedDevice(Options{}) {}
  explicit SimulatedDevice(const Options& options)
      : options_(options),
        host_(make_host_device(options.total_bytes)),
        pages_(std::max(options.page_bytes, host_->properties().page_bytes)) {
    properties_ = host_->properties();
    properties_.name = "simulated";
    properties_.page_bytes = std::max(options.page_bytes, properties_.page_bytes);
    properties_.maps_pages = options.maps_pages;
    properties_.asynchronous = true;
    properties_.aliases = options.maps_pages && options.aliases;
    properties_.move_bytes = 0;
  }

  // --- Faults -----------------------------------------------------------------------------------

  // The n-th call from now (1 is the next) fails with `status`, once, or it and all later ones.
  // Without a kind every kind counts.
  void fail_call(std::uint64_t n, Status status, std::optional<CallKind> kind = {},
                 bool all_later = false) {
    const std::lock_guard lock(mutex_);
    fault_ = Fault{n, status, kind, all_later, false};
  }
  void fail_none() {
    const std::lock_guard lock(mutex_);
    fault_.reset();
  }
  // Whether the injected fault was met.
  [[nodiscard]] bool fault_met() const {
    const std::lock_guard lock(mutex_);
    return fault_ && fault_->met;
  }
  [[nodiscard]] std::uint64_t calls(CallKind kind) const {
    const std::lock_guard lock(mutex_);
    return calls_[static_cast<std::size_t>(kind)];
  }

  // --- Lanes ------------------------------------------------------------------------------------

  // Runs some of the queued work, chosen by `random`: each lane in order, waits obeyed.
  void complete_some(std::mt19937& random) {
    const std::lock_guard lock(mutex_);
    std::vector<LaneKey> keys;
    for (const auto& [key, lane] : lanes_) keys.push_back(key);
    if (keys.empty()) return;
    for (unsigned steps = random() % (4 * static_cast<unsigned>(keys.size()) + 1); steps > 0;
         --steps)
      (void)run_next(keys[random() % keys.size()]);
  }
  // Whether the lane has work that has not run.
  [[nodiscard]] bool busy(LaneKey lane) const {
    const std::lock_guard lock(mutex_);
    const auto it = lanes_.find(lane);
    return it != lanes_.end() && it->second.done < it->second.queued;
  }
  void set_capturing(LaneKey lane, bool capturing) {
    const std::lock_guard lock(mutex_);
    lane_of(lane).capturing = capturing;
  }
  // A stream of somebody else's, that may be gone: calls on it are kUnsupported.
  void set_foreign(LaneKey lane) {
    const std::lock_guard lock(mutex_);
    lane_of(lane).foreign = true;
  }

  // A stream of somebody else's that is still there.
  void set_may_go(LaneKey lane) {
    const std::lock_guard lock(mutex_);
    lane_of(lane).may_go = true;
  }

  // --- Happens before ---------------------------------------------------------------------------

  // Work queued now on `lane` uses these bytes.
  void touch(LaneKey lane, const void* pointer, Bytes size) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t now = tick(lane);
    touch(lane, range_of(pointer, size), now);
    queue(lane, Work{});
  }
  // The bytes go to a request of `lane`: false, and a violation, unless every earlier touch happens
  // before the work that `lane` queues from now on. Counts as a touch itself.
  bool hand_out(LaneKey lane, const void* pointer, Bytes size) {
    const std::lock_guard lock(mutex_);
    const ByteRange range = range_of(pointer, size);
    join(lane_of(lane).clock, host_clock_);
    const std::vector<ByteRange> memory = pages_.memory_of(range);
    const bool ordered = std::all_of(memory.begin(), memory.end(), [&](ByteRange part) {
      return check(by_memory_, part, lane_of(lane).clock, fmt::format("lane {}", lane));
    });
    const std::uint64_t now = tick(lane);
    by_address_.replace(range, lane, now);
    for (const ByteRange part : memory) by_memory_.replace(part, lane, now);
    queue(lane, Work{});
    return ordered;
  }
  // Bytes that nobody hands out any more and whose history shall not count.
  void forget(const void* pointer, Bytes size) {
    const std::lock_guard lock(mutex_);
    by_address_.forget(range_of(pointer, size));
    for (const ByteRange part : pages_.memory_of(range_of(pointer, size))) by_memory_.forget(part);
  }
  [[nodiscard]] std::vector<std::string> violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }

  // --- Leaks ------------------------------------------------------------------------------------

  [[nodiscard]] std::size_t live_events() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }
  [[nodiscard]] std::size_t live_ranges() const {
    const std::lock_guard lock(mutex_);
    return ranges_.size() + pinned_.size();
  }
  // Committed pages and pinned ranges.
  [[nodiscard]] Bytes committed() const {
    const std::lock_guard lock(mutex_);
    return options_.total_bytes - left();
  }

  // --- Device -----------------------------------------------------------------------------------

  const DeviceProperties& properties() const noexcept override { return properties_; }
  Status free_bytes(Bytes* free) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kFreeBytes); !status.ok()) return status;
    *free = left();
    return {};
  }
  std::string describe(const Status& status) const override { return host_->describe(status); }

  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    const std::lock_guard lock(mutex_);
    *base = nullptr;
    if (const Status status = enter(CallKind::kReserve); !status.ok()) return status;
    if (size % properties_.page_bytes != 0 || (alignment & (alignment - 1)) != 0)
      return {Status::Code::kFailed, "reserve", 22};
    if (const Status status =
            host_->reserve(size, std::max(alignment, properties_.page_bytes), base);
        !status.ok())
      return status;
    const Bytes first = reinterpret_cast<Bytes>(*base);
    if (!options_.maps_pages && size > left()) {
      (void)host_->release(*base, size);
      *base = nullptr;
      return {Status::Code::kOutOfMemory, "reserve", 12};
    }
    ranges_.emplace(first, size);
    pages_.add(first, size);
    if (!options_.maps_pages) pages_.map(first, size);
    return {};
  }
  using Device::commit;
  Status commit(void* base, Bytes size, Residency, Bytes most) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kCommit); !status.ok()) return status;
    const Bytes first = reinterpret_cast<Bytes>(base), page = properties_.page_bytes;
    if (!pages_.has(first, size) || most < page) return {Status::Code::kFailed, "commit", 22};
    if (pages_.missing(first, size) > left()) return {Status::Code::kOutOfMemory, "commit", 12};
    for (Bytes at = first, end = first; options_.handles && at < first + size; at = end) {
      end = at + page;
      if (pages_.missing(at, page) == 0) continue;
      while (end < first + size && end - at < align_down(most, page) &&
             pages_.missing(end, page) != 0)
        end += page;
      handles_[at] = end - at;
    }
    pages_.map(first, size);
    return {};
  }
  [[nodiscard]] ByteRange handle_at(const void* address) const noexcept override {
    const std::lock_guard lock(mutex_);
    const Bytes at = reinterpret_cast<Bytes>(address);
    if (!options_.handles) return Device::handle_at(address);
    const auto after = handles_.upper_bound(at);
    if (after != handles_.begin() && std::prev(after)->first + std::prev(after)->second > at)
      return {std::prev(after)->first, std::prev(after)->first + std::prev(after)->second};
    violations_.push_back(fmt::format("the handle of {:#x}, which has no memory", at));
    return Device::handle_at(address);
  }
  Status decommit(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kDecommit); !status.ok()) return status;
    if (!options_.maps_pages) return {Status::Code::kUnsupported, "decommit"};
    if (!pages_.has(reinterpret_cast<Bytes>(base), size))
      return {Status::Code::kFailed, "decommit", 22};
    for (const Bytes end : {reinterpret_cast<Bytes>(base), reinterpret_cast<Bytes>(base) + size}) {
      const auto it = handles_.lower_bound(end);
      if (it == handles_.begin() || std::prev(it)->first + std::prev(it)->second <= end) continue;
      violations_.push_back(fmt::format("decommit of a part of the handle at {:#x}, {} B",
                                        std::prev(it)->first, std::prev(it)->second));
      return {Status::Code::kFailed, "decommit", 22};
    }
    unmap(range_of(base, size), "decommit");
    return {};
  }
  Status release(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kRelease); !status.ok()) return status;
    const auto it = ranges_.find(reinterpret_cast<Bytes>(base));
    if (it == ranges_.end() || it->second != size) return {Status::Code::kFailed, "release", 22};
    unmap(range_of(base, size), "release");
    pages_.remove(it->first);
    ranges_.erase(it);
    return host_->release(base, size);
  }
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kAlias); !status.ok()) return status;
    if (!properties_.aliases) return {Status::Code::kUnsupported, "alias"};
    const Bytes page = properties_.page_bytes, first = reinterpret_cast<Bytes>(to);
    const auto committed = [&](const void* at) {
      return pages_.has(reinterpret_cast<Bytes>(at), page) &&
             pages_.missing(reinterpret_cast<Bytes>(at), page) == 0;
    };
    if (!pages_.has(first, pages * page) || pages_.missing(first, pages * page) != pages * page ||
        !std::all_of(from, from + pages, committed))
      return {Status::Code::kFailed, "alias", 22};
    std::map<Bytes, Bytes> made;
    for (std::size_t i = 0; options_.handles && i < pages;) {
      const Bytes source = reinterpret_cast<Bytes>(from[i]);
      const auto handle = handles_.find(source);
      const std::size_t count = handle == handles_.end() ? 0 : handle->second / page;
      bool whole = count != 0 && count <= pages - i;
      for (std::size_t k = 0; whole && k < count; ++k)
        whole = reinterpret_cast<Bytes>(from[i + k]) == source + k * page;
      if (!whole) {
        violations_.push_back(fmt::format("alias of a part of the handle of {:#x}", source));
        return {Status::Code::kFailed, "alias", 22};
      }
      made[first + i * page] = handle->second;
      i += count;
    }
    handles_.merge(made);
    for (std::size_t i = 0; i < pages; ++i)
      pages_.alias(first + i * page, reinterpret_cast<Bytes>(from[i]));
    return {};
  }

  Status reserve_pinned(Bytes size, void** base) noexcept override {
    const std::lock_guard lock(mutex_);
    *base = nullptr;
    if (const Status status = enter(CallKind::kReservePinned); !status.ok()) return status;
    if (size <= kMaxBytes && align_up(size, host_->properties().page_bytes) > left())
      return {Status::Code::kOutOfMemory, "reserve_pinned", 12};
    const Status status = host_->reserve_pinned(size, base);
    if (status.ok()) pinned_.insert(reinterpret_cast<Bytes>(*base));
    return status;
  }
  Status release_pinned(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kReleasePinned); !status.ok()) return status;
    check(by_address_, range_of(base, size), host_clock_, "release_pinned");
    const Status status = host_->release_pinned(base, size);
    if (status.ok()) pinned_.erase(reinterpret_cast<Bytes>(base));
    return status;
  }

  Status copy(void* to, const void* from, Bytes size, LaneKey lane,
              DeviceEvent* done) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kCopy); !status.ok()) return status;
    const std::uint64_t now = tick(lane);
    touch(lane, range_of(to, size), now);
    touch(lane, range_of(from, size), now);
    queue(lane, Work{.copy_to = to, .copy_from = from, .copy_size = size});
    if (done != nullptr) *done = make_event(lane);
    return {};
  }

  Status record(LaneKey lane, DeviceEvent* event) noexcept override {
    const std::lock_guard lock(mutex_);
    *event = 0;
    if (const Status status = enter(CallKind::kRecord); !status.ok()) return status;
    if (lane_of(lane).foreign) return kForeign;
    *event = make_event(lane);
    return {};
  }
  Status query(DeviceEvent event, bool* complete) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kQuery); !status.ok()) return status;
    *complete = true;
    if (event == 0) return {};
    const Event* known = find_event(event, "query");
    if (known == nullptr) return {Status::Code::kFailed, "query", 22};
    if (lane_of(known->lane).capturing)
      violations_.push_back(
          fmt::format("query of an event of lane {}, which captures", known->lane));
    *complete = lane_of(known->lane).done >= known->position;
    if (*complete) join(host_clock_, known->clock);
    return {};
  }
  Status wait(LaneKey lane, DeviceEvent event) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kWait); !status.ok()) return status;
    if (lane_of(lane).foreign) return kForeign;
    if (event == 0) return {};
    const Event* known = find_event(event, "wait");
    if (known == nullptr) return {Status::Code::kFailed, "wait", 22};
    join(lane_of(lane).clock, known->clock);
    queue(lane, Work{.wait_lane = known->lane, .wait_position = known->position});
    return {};
  }
  Status synchronize(DeviceEvent event) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kSynchronize); !status.ok()) return status;
    if (event == 0) return {};
    const Event* known = find_event(event, "synchronize");
    if (known == nullptr) return {Status::Code::kFailed, "synchronize", 22};
    run_until(known->lane, known->position);
    join(host_clock_, known->clock);
    return {};
  }
  Status synchronize_all() noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kSynchronizeAll); !status.ok()) return status;
    for (auto& [key, lane] : lanes_) {
      run_until(key, lane.queued);
      join(host_clock_, lane.clock);
    }
    return {};
  }
  void destroy(DeviceEvent event) noexcept override {
    const std::lock_guard lock(mutex_);
    if (event != 0 && find_event(event, "destroy") != nullptr) events_.erase(event);
  }
  Status capturing(LaneKey lane, bool* capturing) noexcept override {
    const std::lock_guard lock(mutex_);
    if (const Status status = enter(CallKind::kCapturing); !status.ok()) return status;
    *capturing = lane_of(lane).capturing;
    return lane_of(lane).foreign ? kForeign : Status();
  }
  bool may_go(LaneKey lane) const noexcept override {
    const std::lock_guard lock(mutex_);
    const auto known = lanes_.find(lane);
    return known != lanes_.end() && (known->second.may_go || known->second.foreign);
  }
  std::uint64_t driver_calls() const noexcept override {
    const std::lock_guard lock(mutex_);
    return entered_;
  }

 private:
  static constexpr Status kForeign{Status::Code::kUnsupported, "a stream of somebody else's"};

  struct Fault {
    std::uint64_t n = 0;
    Status status;
    std::optional<CallKind> kind;
    bool all_later = false;
    bool met = false;
  };
  struct Event {
    LaneKey lane = 0;
    std::uint64_t position = 0;  // the lane's work up to here
    VectorClock clock;
  };
  // One piece of work: nothing to see, a copy, or a wait for another lane's work.
  struct Work {
    void* copy_to = nullptr;
    const void* copy_from = nullptr;
    Bytes copy_size = 0;
    LaneKey wait_lane = 0;
    std::uint64_t wait_position = 0;
  };
  struct Lane {
    std::deque<Work> work;     // queued, not yet run
    std::uint64_t queued = 0;  // positions: pieces of work ever queued, ever run
    std::uint64_t done = 0;
    bool capturing = false;
    bool foreign = false;
    bool may_go = false;
    VectorClock clock;  // what happens before the next work of the lane
  };

  static ByteRange range_of(const void* pointer, Bytes size) {
    const Bytes first = reinterpret_cast<Bytes>(pointer);
    return {first, first + size};
  }
  static void join(VectorClock& into, const VectorClock& from) {
    for (const auto& [lane, count] : from) into[lane] = std::max(into[lane], count);
  }
  // Bytes that could still be committed.
  [[nodiscard]] Bytes left() const {
    Bytes left = 0;
    (void)host_->free_bytes(&left);
    return left - pages_.held();
  }

  Status enter(CallKind kind) {
    ++entered_;
    ++calls_[static_cast<std::size_t>(kind)];
    if (!fault_ || (fault_->kind && *fault_->kind != kind)) return {};
    if (fault_->n > 1) {
      --fault_->n;
      return {};
    }
    if (fault_->met && !fault_->all_later) return {};
    fault_->met = true;
    return fault_->status;
  }

  Lane& lane_of(LaneKey key) { return lanes_[key]; }
  std::uint64_t tick(LaneKey key) {
    Lane& lane = lane_of(key);
    join(lane.clock, host_clock_);
    return ++lane.clock[key];
  }
  void queue(LaneKey key, const Work& work) {
    Lane& lane = lane_of(key);
    lane.work.push_back(work);
    ++lane.queued;
  }
  DeviceEvent make_event(LaneKey key) {
    tick(key);
    queue(key, Work{});
    const Lane& lane = lane_of(key);
    events_.emplace(++last_event_, Event{key, lane.queued, lane.clock});
    return last_event_;
  }
  Event* find_event(DeviceEvent event, const char* call) {
    const auto it = events_.find(event);
    if (it != events_.end()) return &it->second;
    violations_.push_back(fmt::format("{} of event {}, which is not there", call, event));
    return nullptr;
  }

  // Runs the lane's next work unless it waits. Work of a lane only waits for what was queued
  // before, so some lane can always run.
  bool run_next(LaneKey key) {
    Lane& lane = lane_of(key);
    if (lane.work.empty()) return false;
    const Work work = lane.work.front();
    if (lane_of(work.wait_lane).done < work.wait_position) return false;
    if (work.copy_size != 0) std::memmove(work.copy_to, work.copy_from, work.copy_size);
    lane.work.pop_front();
    ++lane.done;
    return true;
  }
  void run_until(LaneKey key, std::uint64_t position) {
    while (lane_of(key).done < position) {
      const Work& work = lane_of(key).work.front();
      run_until(work.wait_lane, work.wait_position);
      (void)run_next(key);
    }
  }

  void touch(LaneKey lane, ByteRange range, std::uint64_t now) {
    by_address_.touch(range, lane, now);
    for (const ByteRange part : pages_.memory_of(range)) by_memory_.touch(part, lane, now);
  }
  bool check(TouchHistory& history, ByteRange range, const VectorClock& clock,
             const std::string& who) {
    const auto use = history.used_after(range, clock);
    if (!use) return true;
    violations_.push_back(fmt::format("{} takes bytes {:#x}..{:#x} that lane {} may still use", who,
                                      use->bytes.first, use->bytes.last, use->lane));
    return false;
  }
  void unmap(ByteRange range, const char* call) {
    check(by_address_, range, host_clock_, call);
    by_address_.forget(range);
    handles_.erase(handles_.lower_bound(range.first), handles_.lower_bound(range.last));
    pages_.unmap(range.first, range.size(), [&](ByteRange gone) { by_memory_.forget(gone); });
  }

  mutable std::recursive_mutex mutex_;
  Options options_;
  DeviceProperties properties_;
  std::unique_ptr<Device> host_;  // whose addresses these are
  PageFile pages_;
  std::optional<Fault> fault_;
  std::array<std::uint64_t, kCallKinds> calls_{};
  std::uint64_t entered_ = 0;
  std::map<LaneKey, Lane> lanes_;
  std::map<DeviceEvent, Event> events_;
  DeviceEvent last_event_ = 0;
  VectorClock host_clock_;
  TouchHistory by_address_, by_memory_;  // of bytes without memory of pages the same
  std::map<Bytes, Bytes> ranges_;
  std::map<Bytes, Bytes> handles_;  // where they begin -> bytes
  std::set<Bytes> pinned_;
  mutable std::vector<std::string> violations_;
};

}  // namespace berth::test
