// The serving rule on small plans: whatever a program does in its first few operations, with every
// kind of step and bucket, and with pages that come, move, are lent and go at any of them.
//
// The runtime itself is driven: what it leaves out shows here (tests/mutants). Sequences of
// operations that end in the same state, as far as it shows from outside, are followed once.

#include "csrc/core/interval_map.h"
#include "csrc/device/host_device.h"
#include "csrc/device/page_store.h"
#include "csrc/plan/verify.h"
#include "csrc/pool/pool.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/arena.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/lone_arena.h"
#include "tests/support/random_kinds.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"
#include "tests/support/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

using namespace berth;

namespace {

using Operations = std::vector<std::uint8_t>;

// Calls run(operations) for every sequence of up to `depth` of the operations; what it returns
// names the state at the end, empty where the last one cannot be. Returns how many states there
// are.
template <std::size_t kCount, class Run>
std::size_t explore(const char* const (&names)[kCount], std::size_t depth, Run&& run) {
  std::unordered_set<std::string> states{run(Operations{})};
  std::vector<Operations> ends{{}};
  for (std::size_t length = 1; length <= depth; ++length) {
    std::vector<Operations> next;
    for (const Operations& end : ends) {
      for (std::uint8_t operation = 0; operation < kCount; ++operation) {
        Operations operations = end;
        operations.push_back(operation);
        std::string state;
        try {
          state = run(std::as_const(operations));
        } catch (...) {
          std::string text;
          for (const std::uint8_t one : operations) text += fmt::format("{}; ", names[one]);
          WARN("after: " << text);
          throw;
        }
        if (!state.empty() && states.insert(std::move(state)).second)
          next.push_back(std::move(operations));
      }
    }
    ends = std::move(next);
  }
  return states.size();
}

// --- Kinds and buckets --------------------------------------------------------------------------

StepKind::Request request_of(Bytes bytes, std::uint32_t length) {
  StepKind::Request request;
  request.bytes = request.least = bytes;
  request.length = length;
  request.seen = 2;
  return request;
}

// All kinds of steps of `count` requests that are one of: one that is freed before the next; a
// larger one; one that lives to the step's end; one that outlives its step; one of a bucket.
std::vector<StepKind> all_kinds(std::size_t count) {
  std::size_t number = 1;
  for (std::size_t k = 0; k < count; ++k) number *= 5;
  std::vector<StepKind> kinds(number);
  for (std::size_t i = 0; i < number; ++i) {
    kinds[i].hash = i + 1;
    kinds[i].seen = 2;
    std::size_t rest = i;
    for (std::size_t k = 0; k < count; ++k, rest /= 5) {
      const auto left = static_cast<std::uint32_t>(count - k);
      StepKind::Request request = request_of(rest % 5 == 1 ? 128 : 64, rest % 5 < 2 ? 1 : left);
      if (rest % 5 == 3) {
        request.outlives = true;
        request.wrapped = 1;
      } else if (rest % 5 == 4) {
        request = request_of(192, 1);
        request.least = 64;
      }
      kinds[i].requests.push_back(request);
    }
  }
  return kinds;
}

// A program on one arena: its live blocks, none of which shares a byte with another.
class OnArena {
 public:
  static constexpr const char* kNames[] = {
      "64",  "100", "128", "192", "free the oldest", "free the second oldest", "free the newest",
      "mark"};
  static constexpr Bytes kSizes[] = {64, 100, 128, 192};
  static constexpr std::size_t kMostLive = 4;

  void start(const std::shared_ptr<const PlanLookup>& plan) {
    free_all();
    arena_.deactivate();
    REQUIRE(arena_.off_schedule() == 0);
    REQUIRE(arena_.activate(plan, Arena::Pages::kNow).ok());
    arena_.mark(0);
  }
  // False where it changes nothing.
  bool apply(std::uint8_t operation) {
    if (operation < std::size(kSizes)) {
      if (live_.size() == kMostLive) return false;
      (void)request(kSizes[operation]);
      return true;
    }
    if (operation == 7) {
      arena_.mark(0);
      return true;
    }
    const std::size_t index = operation == 4 ? 0 : operation == 5 ? 1 : live_.size() - 1;
    if (index >= live_.size() || (operation == 6 && index < 2)) return false;
    free(index);
    return true;
  }
  Served request(Bytes size) {
    const Arena::Outcome outcome = arena_.allocate(size, 0, 1);
    last_ = outcome.served;
    if (outcome.pointer == nullptr) return outcome.served;
    const auto first = reinterpret_cast<Bytes>(outcome.pointer);
    REQUIRE(outcome.size == align_up(size, 64));
    REQUIRE(ledger_.insert({first, first + outcome.size}, size));
    live_.push_back({outcome.pointer, size, outcome.served});
    ++hand_outs_[static_cast<std::size_t>(outcome.served)];
    return outcome.served;
  }
  void free(std::size_t index) {
    const Live block = live_[index];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    const Arena::Freed freed = arena_.free(block.pointer);
    REQUIRE(freed.found);
    REQUIRE(freed.requested == block.size);
    ledger_.erase(reinterpret_cast<Bytes>(block.pointer));
  }
  void free_all() {
    while (!live_.empty()) free(live_.size() - 1);
  }
  // A step of the kind as it was recorded, from a mark on: how many requests missed.
  std::size_t misses(const StepKind& kind) {
    free_all();
    arena_.mark(0);
    std::size_t count = 0;
    for (const StepKind::Request& request : kind.requests) {
      const Served served = this->request(request.bytes);
      count += served != Served::kHit && served != Served::kBucket;
      if (request.length == 1 && !request.outlives && !live_.empty()) free(live_.size() - 1);
    }
    return count;
  }
  [[nodiscard]] std::string state() {
    REQUIRE(arena_.is_valid() == "");
    const auto expected = arena_.expected(0, Served::kMissSize);
    std::string text = fmt::format("{} {} {} {} {};", expected ? expected->kind : 0,
                                   expected ? expected->index : 0, arena_.aligned(0),
                                   arena_.off_schedule(), static_cast<int>(last_));
    for (const Live& block : live_)
      text += fmt::format(" {} {} {}", block.pointer, block.size, static_cast<int>(block.served));
    return text;
  }

  [[nodiscard]] std::uint64_t count(Served served) const {
    return hand_outs_[static_cast<std::size_t>(served)];
  }

 private:
  struct Live {
    void* pointer = nullptr;
    Bytes size = 0;
    Served served = Served::kHit;
  };
  std::unique_ptr<Device> device_ = make_host_device(Bytes{1} << 30);
  test::LoneArena arena_{*device_, 64};
  IntervalMap<Bytes> ledger_;
  std::vector<Live> live_;
  Served last_ = Served::kHit;
  std::array<std::uint64_t, 16> hand_outs_{};
};

// --- Pages --------------------------------------------------------------------------------------

// A program on an arena and a pool that share the pages of one device, where there are few: its
// blocks are ordered on the device by whoever had their memory before, and keep their contents, and
// so do those that a captured graph uses.
class OnPages {
 public:
  static constexpr const char* kNames[] = {"half a page",
                                           "a page",
                                           "one and a half pages",
                                           "two pages on another lane",
                                           "free the oldest",
                                           "free the newest",
                                           "the other lane uses the newest",
                                           "a graph uses the newest, or its blocks go",
                                           "mark",
                                           "give back",
                                           "the device has done its work"};
  static constexpr Bytes kPage = 4096;
  static constexpr std::size_t kMostLive = 4;

  OnPages(const std::shared_ptr<const PlanLookup>& plan, Bytes limit) {
    store_.set_limit(limit);
    pool_.borrow_from(&arena_);
    REQUIRE(arena_.activate(plan, Arena::Pages::kAsUsed).ok());
    arena_.mark(0);
  }
  ~OnPages() {
    unpin();
    while (!live_.empty()) free(0);
  }
  OnPages(const OnPages&) = delete;
  OnPages& operator=(const OnPages&) = delete;

  bool apply(std::uint8_t operation) {
    const bool done = act(operation);
    // As an allocator tells its arena.
    if (synchronizations_ != events_.synchronizations()) {
      arena_.synchronized();
      synchronizations_ = events_.synchronizations();
    }
    return done;
  }
  [[nodiscard]] std::string state() {
    REQUIRE(arena_.is_valid() == "");
    REQUIRE(pool_.is_valid() == "");
    REQUIRE(device_.violations() == std::vector<std::string>{});
    REQUIRE(store_.held() == device_.committed());
    REQUIRE(store_.held() <= store_.limit());
    REQUIRE(arena_.committed() + pool_.reserved() == store_.held());
    for (const Block& block : live_) check(block);
    for (const Block& block : pinned_) check(block);
    const auto expected = arena_.expected(0, Served::kMissSize);
    std::string text =
        fmt::format("{} {} {} {} {} {} {} {};", expected ? expected->kind : 0,
                    expected ? expected->index : 0, arena_.aligned(0), arena_.off_schedule(),
                    arena_.guards(), events_.held(), device_.busy(0), device_.busy(kOther));
    for (const Block& block : live_)
      text += fmt::format(" {} {} {}", where(block.pointer), block.size, block.used);
    for (const Block& block : pinned_)
      text += fmt::format(" p{} {}", where(block.pointer), block.size);
    for (const Stretch& stretch : arena_.stretches())
      text += fmt::format(" a{} {}", where(stretch.base), stretch.size);
    std::vector<std::string> pool;
    pool_.for_each_stretch([&](const Stretch& stretch) {
      pool.push_back(fmt::format(" s{} {}", where(stretch.base), stretch.size));
      for (const Stretch::Piece& piece : stretch.pieces)
        pool.back() += fmt::format("/{} {}", piece.size, static_cast<int>(piece.kind));
    });
    std::sort(pool.begin(), pool.end());
    for (const std::string& one : pool) text += one;
    return text;
  }
  // Frees all, and gives all back.
  void end() {
    unpin();
    while (!live_.empty()) free(0);
    REQUIRE(events_.synchronize());
    arena_.synchronized();
    (void)pool_.process_events();
    (void)arena_.give_back();
    (void)pool_.trim();
    REQUIRE(device_.committed() == 0);
    REQUIRE(store_.held() == 0);
    REQUIRE(device_.violations() == std::vector<std::string>{});
  }

  struct Counts {
    std::uint64_t moved = 0, stitched = 0, pinned = 0;
  };
  [[nodiscard]] Counts counts() const {
    return {arena_.pages_moved(), pool_.stats().stitched, pins_};
  }

 private:
  static constexpr LaneKey kOther = 5;

  struct Block {
    std::byte* pointer = nullptr;
    Bytes size = 0;
    std::uint64_t contents = 0;
    LaneKey lane = 0;
    PoolBlock* pooled = nullptr;  // null: the arena's
    bool used = false;            // on the other lane
  };

  bool act(std::uint8_t operation) {
    switch (operation) {
      case 0:
        return request(kPage / 2, 0);
      case 1:
        return request(kPage, 0);
      case 2:
        return request(3 * kPage / 2, 0);
      case 3:
        return request(2 * kPage, kOther);
      case 4:
        if (live_.empty()) return false;
        free(0);
        return true;
      case 5:
        if (live_.size() < 2) return false;
        free(live_.size() - 1);
        return true;
      case 6:
        return use();
      case 7:
        return pinned_.empty() ? pin() : unpin();
      case 8:
        arena_.mark(0);
        (void)arena_.fill(true);
        return true;
      case 9:
        (void)arena_.give_back();
        (void)pool_.trim();
        return true;
      default:
        if (!device_.busy(0) && !device_.busy(kOther)) return false;
        while (device_.busy(0) || device_.busy(kOther)) device_.complete_some(random_);
        return true;
    }
  }
  bool request(Bytes size, LaneKey lane) {
    if (live_.size() == kMostLive) return false;
    Block block{.size = size, .contents = ++last_contents_, .lane = lane};
    if (lane == 0) block.pointer = static_cast<std::byte*>(arena_.allocate(size, 0, 1).pointer);
    if (block.pointer == nullptr) {
      block.pooled = pool_.allocate(size, lane, Mobility::kTemporary);
      if (block.pooled == nullptr) return true;
      block.pointer = static_cast<std::byte*>(block.pooled->pointer);
    }
    (void)device_.hand_out(lane, block.pointer, size);
    for (Bytes at = 0; at < size; at += kStride)
      std::memcpy(block.pointer + at, &block.contents, sizeof block.contents);
    live_.push_back(block);
    return true;
  }
  void check(const Block& block) {
    for (Bytes at = 0; at < block.size; at += kStride)
      REQUIRE(std::memcmp(block.pointer + at, &block.contents, sizeof block.contents) == 0);
  }
  void free(std::size_t index) {
    const Block block = live_[index];
    check(block);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    device_.touch(block.lane, block.pointer, block.size);
    if (block.pooled != nullptr)
      pool_.free(block.pooled);
    else
      REQUIRE(arena_.free(block.pointer).found);
  }
  bool use() {
    if (live_.empty() || live_.back().used || live_.back().lane == kOther) return false;
    Block& block = live_.back();
    if (block.pooled != nullptr)
      pool_.record_use(block.pooled, kOther);
    else
      arena_.record_use(block.pointer, kOther);
    DeviceEvent event = 0;
    REQUIRE(device_.record(0, &event).ok());
    REQUIRE(device_.wait(kOther, event).ok());
    device_.destroy(event);
    device_.touch(kOther, block.pointer, block.size);
    return block.used = true;
  }
  bool pin() {
    if (live_.empty()) return false;
    const Block& block = live_.back();
    if (block.pooled != nullptr)
      pool_.pin(block.pooled);
    else
      REQUIRE(arena_.pin(block.pointer));
    pinned_.push_back(block);
    ++pins_;
    return true;
  }
  bool unpin() {
    for (const Block& block : std::exchange(pinned_, {}))
      REQUIRE((block.pooled != nullptr ? pool_.unpin(block.pointer) : arena_.unpin(block.pointer)));
    return true;
  }
  // The same number for an address in every world.
  [[nodiscard]] Bytes where(const void* pointer) const {
    const auto at = reinterpret_cast<Bytes>(pointer);
    return at % (Bytes{1} << 20);
  }

  static constexpr Bytes kStride = 512;

  test::SimulatedDevice device_{{.total_bytes = 64 * kPage, .page_bytes = kPage}};
  PageStore store_{device_};
  LaneEvents events_{store_};
  Pool pool_{store_, events_,
             PoolOptions{
                 .range_bytes = 64 * kPage, .growth_bytes = kPage, .resident_growth_bytes = kPage}};
  Arena arena_{store_, events_, 64, &pool_};
  std::vector<Block> live_, pinned_;
  std::uint64_t last_contents_ = 0, synchronizations_ = 0, pins_ = 0;
  std::mt19937 random_{1};
};

// --- A limit ------------------------------------------------------------------------------------

// A program of whole pages on an allocator that may have few.
class WithinLimit {
 public:
  static constexpr const char* kNames[] = {"a page",
                                           "two pages",
                                           "three pages",
                                           "a page on another lane",
                                           "two pages on another lane",
                                           "free the oldest",
                                           "free the newest",
                                           "mark",
                                           "give back",
                                           "the device has done its work"};
  static constexpr Bytes kPage = OnPages::kPage;

  WithinLimit(const Plan& plan, Bytes limit) : limit_(limit) {
    allocator_.load_plan(plan);
    allocator_.mark_step(0);
  }
  ~WithinLimit() {
    while (!live_.empty()) free(0);
  }
  WithinLimit(const WithinLimit&) = delete;
  WithinLimit& operator=(const WithinLimit&) = delete;

  bool apply(std::uint8_t operation) {
    switch (operation) {
      case 0:
      case 1:
      case 2:
        return request((operation + Bytes{1}) * kPage, 0);
      case 3:
      case 4:
        return request((operation - Bytes{2}) * kPage, 5);
      case 5:
        if (live_.empty()) return false;
        free(0);
        return true;
      case 6:
        if (live_.size() < 2) return false;
        free(live_.size() - 1);
        return true;
      case 7:
        allocator_.mark_step(0);
        return true;
      case 8:
        return allocator_.trim() != 0;
      default:
        if (!device_.busy(0) && !device_.busy(5)) return false;
        while (device_.busy(0) || device_.busy(5)) device_.complete_some(random_);
        return true;
    }
  }
  [[nodiscard]] std::string state() {
    REQUIRE(allocator_.is_valid() == "");
    REQUIRE(device_.violations() == std::vector<std::string>{});
    REQUIRE(device_.committed() <= limit_);
    const Stats stats = allocator_.stats();
    std::string text = fmt::format("{} {} {} {};", stats.reserved, stats.pool_reserved,
                                   device_.busy(0), device_.busy(5));
    for (const auto& [pointer, size, lane] : live_)
      text += fmt::format(" {} {}", reinterpret_cast<Bytes>(pointer) % (Bytes{1} << 20), size);
    return text;
  }

 private:
  struct Block {
    void* pointer = nullptr;
    Bytes size = 0;
    LaneKey lane = 0;
  };
  [[nodiscard]] Allocator::Options options() const {
    Allocator::Options options;
    options.start_threads = false;
    options.config.mode = Mode::kOff;
    options.config.memory_limit = limit_;
    options.pool.range_bytes = 64 * kPage;
    options.pool.growth_bytes = kPage;
    options.pool.resident_growth_bytes = kPage;
    return options;
  }
  bool request(Bytes size, LaneKey lane) {
    if (bytes_ + size > limit_) return false;
    void* const pointer = allocator_.allocate(size, lane);  // throws where it is refused
    (void)device_.hand_out(lane, pointer, size);
    live_.push_back({pointer, size, lane});
    bytes_ += size;
    return true;
  }
  void free(std::size_t index) {
    const Block block = live_[index];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    device_.touch(block.lane, block.pointer, block.size);
    REQUIRE(allocator_.free(block.pointer) == Allocator::FreeOutcome::kDone);
    bytes_ -= block.size;
  }

  const Bytes limit_;
  test::SimulatedDevice device_{{.total_bytes = 64 * kPage, .page_bytes = kPage}};
  test::CheckedAllocator allocator_{device_, options()};
  std::vector<Block> live_;
  Bytes bytes_ = 0;
  std::mt19937 random_{1};
};

}  // namespace

TEST_CASE("No operations on a small plan with kinds and buckets let two blocks share a byte",
          "[arena][small_plans]") {
  std::vector<std::vector<StepKind>> programs;
  const std::vector<StepKind> short_kinds = all_kinds(2), long_kinds = all_kinds(3);
  for (std::size_t first = 0; first < short_kinds.size(); ++first) {
    for (std::size_t second = first + 1; second < short_kinds.size(); ++second)
      programs.push_back({short_kinds[first], short_kinds[second]});
  }
  for (std::size_t i = 0; i < long_kinds.size(); ++i)
    programs.push_back({long_kinds[i], long_kinds[(7 * i + 31) % long_kinds.size()],
                        short_kinds[i % short_kinds.size()]});
  OnArena program;
  std::size_t states = 0;
  for (const std::vector<StepKind>& kinds : programs) {
    const auto plan = std::make_shared<const PlanLookup>(test::planned(kinds));
    states += explore(OnArena::kNames, 5, [&](const Operations& operations) -> std::string {
      program.start(plan);
      for (const std::uint8_t operation : operations) {
        if (!program.apply(operation)) return {};
      }
      std::string state = program.state();
      // What was asked for before costs no more than speed: all is freed, a mark comes, and each
      // kind is served. But kinds that begin alike are told apart by their third request only.
      for (const StepKind& kind : kinds) REQUIRE(program.misses(kind) <= kind.requests.size() - 2);
      return state;
    });
  }
  CHECK(states > 50000);
  CHECK(program.count(Served::kBucket) > 100000);
  CHECK(program.count(Served::kLent) > 50000);
}

TEST_CASE("Pages come and move and go at any operation and no block loses its bytes",
          "[arena][small_plans]") {
  constexpr Bytes kPage = OnPages::kPage;
  // Two kinds that begin alike, and a bucket.
  std::vector<StepKind> kinds(3);
  for (std::size_t k = 0; k < kinds.size(); ++k) kinds[k].hash = k + 1;
  kinds[0].requests = {request_of(kPage / 2, 2), request_of(kPage, 1)};
  kinds[1].requests = {request_of(kPage / 2, 1), request_of(3 * kPage / 2, 1)};
  kinds[2].requests = {request_of(3 * kPage / 2, 1)};
  kinds[2].requests[0].least = kPage;
  const Plan plan = test::planned(kinds);
  REQUIRE(verify(plan) == std::nullopt);
  const auto lookup = std::make_shared<const PlanLookup>(plan);
  // Where the program stands before: nothing is there yet; the pages lie in the pool and were
  // another lane's; they lie in the arena, which was served once.
  const Operations starts[] = {{}, {3, 4}, {0, 1, 4, 4, 8}};
  OnPages::Counts counts;
  std::size_t states = 0;
  for (const Operations& start : starts) {
    for (const Bytes pages : {2, 3, 4}) {
      states += explore(OnPages::kNames, 4, [&](const Operations& operations) -> std::string {
        OnPages program(lookup, pages * kPage);
        for (const std::uint8_t operation : start) REQUIRE(program.apply(operation));
        for (const std::uint8_t operation : operations) {
          if (!program.apply(operation)) return {};
        }
        std::string state = program.state();
        program.end();
        const OnPages::Counts more = program.counts();
        counts.moved += more.moved;
        counts.stitched += more.stitched;
        counts.pinned += more.pinned;
        return state;
      });
    }
  }
  CHECK(states > 10000);
  CHECK(counts.moved > 5000);
  CHECK(counts.stitched > 1000);
  CHECK(counts.pinned > 5000);
}

TEST_CASE("Whole pages are never refused while what lives fits the limit",
          "[arena][small_plans][limit]") {
  constexpr Bytes kPage = WithinLimit::kPage;
  const Plan plan =
      test::plan_of({test::sequence_of({{0, kPage, 2}, {kPage, 2 * kPage, 1}, {kPage, kPage, 1}})});
  const test::Warnings warnings;  // that the plan does not fit is one
  std::size_t states = 0;
  for (const Bytes pages : {4, 5}) {
    states += explore(WithinLimit::kNames, 5, [&](const Operations& operations) -> std::string {
      WithinLimit program(plan, pages * kPage);
      for (const std::uint8_t operation : operations) {
        if (!program.apply(operation)) return {};
      }
      return program.state();
    });
  }
  CHECK(states > 1000);
}
