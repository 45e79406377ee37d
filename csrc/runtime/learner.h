#pragma once

#include "csrc/device/device.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <vector>

namespace berth {

// Remembers what a run asks for, until a step repeats: the recording of mode learn, in memory.
//
// An entry takes 32 bytes; what lies further back than a few steps is dropped. Not thread-safe: the
// allocator's lock covers it.
class Learner {
 public:
  explicit Learner(Bytes alignment) : alignment_(alignment) {}

  void start();
  void stop() noexcept;
  [[nodiscard]] bool active() const noexcept { return active_; }

  void request(trace::BlockId id, Bytes bytes, LaneKey lane, trace::Tag tag);
  void free(trace::BlockId id);
  void use(trace::BlockId id, LaneKey lane);

  // A step ends. Returns whether the marking lane asked for the same in the last two steps.
  [[nodiscard]] bool mark(LaneKey lane);

  // Whether there are no marks and so much has come since the last look that the sequence itself is
  // worth searching for its period.
  [[nodiscard]] bool worth_searching() const noexcept {
    return active_ && marks_ == 0 && items_.size() >= next_search_;
  }
  // A search or a plan is under way or was in vain: look again when twice as much is known.
  void search_later() noexcept { next_search_ = 2 * items_.size(); }

  // What was remembered, as a trace.
  [[nodiscard]] Trace snapshot(const trace::Program& program) const;

 private:
  enum class Kind : std::uint8_t { kRequest, kFree, kUse, kMark };
  struct Item {
    trace::BlockId id = 0;
    Bytes bytes = 0;
    std::uint32_t lane = 0;
    trace::Tag tag = 0;
    Kind kind = Kind::kRequest;
  };
  static_assert(sizeof(Item) == 32);
  static constexpr std::size_t kFirstSearch = 1024;
  static constexpr std::size_t kMostItems = std::size_t{1} << 20;
  static constexpr std::size_t kKeptSteps = 4;

  std::uint32_t lane_index(LaneKey key);
  void add(Item item);
  void drop_old();

  const Bytes alignment_;
  bool active_ = false;
  std::vector<Item> items_;
  std::vector<LaneKey> lanes_;
  std::vector<std::uint64_t> lane_hashes_;      // of the requests since the last mark
  std::vector<std::uint64_t> previous_hashes_;  // of those between the last two marks
  std::vector<std::size_t> mark_positions_;     // in items_
  std::size_t marks_ = 0;
  std::size_t next_search_ = kFirstSearch;
};

}  // namespace berth
