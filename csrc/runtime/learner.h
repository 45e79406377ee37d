#pragma once

#include "csrc/device/device.h"
#include "csrc/runtime/mark_history.h"
#include "csrc/runtime/run_record.h"
#include "csrc/runtime/seen_kinds.h"
#include "csrc/runtime/size_watch.h"
#include "csrc/trace/trace.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace berth {

// Listens to what a run asks for, and says when its record is worth searching for a step: when the
// requests between the marks of a lane repeat, when a kind of step came twice that the plan has not
// got, or, for runs without marks that help, whenever twice as much is known as at the search
// before.
//
// A search may be in vain. At marks the next one then waits for 1, 2, 4, .. repeats more; of the
// other kind there are kMostSearches at most, and none after one of a record in its whole length.
// Then it gives up: it records nothing and only watches for a change (steps between marks that
// repeat and did not before, the first mark of all, other sizes: see size_watch.h), and records
// from there on. Each time that it gave up it is deaf for longer; where it knows steps that are no
// news (see watch()), other ones are heard at once.
//
// While a plan serves it records what comes beside the plan's kinds of steps, until kPatience steps
// brought nothing new.
//
// A step, or a cycle of several, is learned where the record holds two of it in a row: one of more
// than kLongestStep entries (each request, free, use on another lane and mark is one) never is.
// Where such steps repeat it gives up, too, and says so (too_long()).
//
// Keeps the record (run_record.h: 32 MiB at most) and 50 KiB beside it, whatever comes; where a
// chunk does not come in time, or there are more than kMostLanes, the record starts again. Nothing
// allocates or throws but an Excerpt, which is made without the lock. Not thread-safe: the
// allocator's lock covers it. O(1) a request, O(lanes) where the lane is another than before.
class Learner {
 public:
  static constexpr std::size_t kMostLanes = 256, kMostMarkingLanes = 8;
  static constexpr unsigned kMostSearches = 11, kManySearches = 6;
  static constexpr std::uint64_t kLongestStep = RunRecord::kHeldEntries / 2;  // entries

  // Records from here on, and takes what comes for news, whatever a plan has.
  void start() noexcept;
  // The same, and other steps come than before: what marks showed is over, and no search waits for
  // what was searched in vain.
  void begin_anew() noexcept;
  // Records from here on what a plan does not have.
  void look_for_kinds() noexcept;
  // A plan that has these kinds, in turns or in a cycle, came of the last search.
  void plan_taken(std::span<const KnownKind> kinds, bool cycle) noexcept;
  // It serves. Goes on recording where other kinds may come again, or there are several.
  void plan_serves() noexcept;
  // Neither records nor watches.
  void stop() noexcept;
  // Records no more, and watches for other steps than the last ones.
  void watch() noexcept;

  [[nodiscard]] bool records() const noexcept { return state_ == State::kRecords; }
  // Whether it wants to hear of requests.
  [[nodiscard]] bool listens() const noexcept { return state_ != State::kOff; }

  void request(trace::BlockId id, Bytes bytes, LaneKey lane, trace::Tag tag) noexcept;
  void free(trace::BlockId id) noexcept;
  void use(trace::BlockId id, LaneKey lane) noexcept;
  enum class Search : std::uint8_t {
    kAtMarks,   // for the steps that repeat in the end
    kCycle,     // the same, of kinds that the plan has, which come in the same turns for long
    kKinds,     // for kinds of steps
    kByPeriod,  // for a period of the requests
  };
  // How much of a step its plan served: all but a few of its requests, most of them, or fewer.
  enum class Fit : std::uint8_t { kAll, kMost, kLittle };
  // A step of the lane ends. Returns what is to be
  // looked for, and the position of the record from which on it is to be; nothing where nothing is
  // worth it.
  struct Find {
    std::uint64_t from = 0;
    Search search = Search::kAtMarks;
  };
  [[nodiscard]] std::optional<Find> mark(LaneKey lane, Fit fit = Fit::kAll) noexcept;

  // Whether enough has come since the last search to look for a period in the requests themselves.
  [[nodiscard]] bool worth_searching() const noexcept {
    return records() && record_.end() - began_ >= next_search_;
  }
  // Whether the marks that come may yet show a step: not so many came without a repeat, nor were
  // searches where they repeat in vain so often.
  [[nodiscard]] bool marks_may_help() const noexcept {
    return marks_without_repeat_ < 2 * MarkHistory::kMostPattern &&
           vain_at_marks_ < kMostVainAtMarks;
  }
  // Whether it looked so often for a period in vain that there may be none; not taken back.
  [[nodiscard]] bool finds_no_period() const noexcept { return finds_no_period_; }
  // After how many requests the steps between marks repeat, where that is too long to be learned; 0
  // while it is not. Not taken back.
  [[nodiscard]] std::uint64_t too_long() const noexcept { return too_long_; }
  // A search begins.
  void searching(Search search) noexcept;
  // No plan came of the last search.
  void in_vain() noexcept;

  // The record from a position on, and the lanes that it names.
  struct Excerpt {
    RunRecord::Share share;
    std::vector<LaneKey> lanes = std::vector<LaneKey>(kMostLanes);
    [[nodiscard]] Trace trace(const trace::Program& program, Bytes alignment) const;
  };
  void excerpt(std::uint64_t from, Excerpt& into) noexcept;
  [[nodiscard]] const RunRecord& record() const noexcept { return record_; }

  [[nodiscard]] bool wants_chunk() const noexcept { return records() && record_.wants_chunk(); }
  void supply(std::shared_ptr<RunRecord::Chunk>& chunk) noexcept {
    if (wants_chunk()) record_.supply(chunk);
  }
  // A record that is not needed any more, to be destroyed without the lock.
  [[nodiscard]] bool has_waste() const noexcept { return !records() && record_.chunk_count() != 0; }
  [[nodiscard]] RunRecord take_waste() noexcept { return std::exchange(record_, RunRecord()); }

 private:
  enum class State : std::uint8_t { kOff, kRecords, kWatches };
  static constexpr std::uint64_t kNotRecorded = ~std::uint64_t{0};
  struct Lane {
    LaneKey key = 0;
    std::uint64_t hash = 0;              // of its requests since its last mark
    std::uint64_t requests = 0;          // so many
    std::uint64_t began = kNotRecorded;  // position of the record after that mark
  };
  struct MarkingLane {
    std::uint32_t lane = 0;
    std::uint64_t whole = 0;  // of the last intervals, so many are recorded
    MarkHistory history;
  };
  static constexpr std::uint64_t kFirstSearch = 1024;      // entries
  static constexpr std::uint64_t kShortestDeaf = 1 << 16;  // requests
  static constexpr unsigned kMostDoublings = 6;
  static constexpr unsigned kMostVainAtMarks = 4;
  // In so many marks in a row the record did not hold the steps that repeat: kinds of steps that it
  // holds were learned by then.
  static constexpr unsigned kMostTooLong = 3;
  static constexpr std::uint64_t kPatience = 256;  // steps
  static constexpr std::uint64_t kLongCycle = 16;  // steps, beyond those that a history keeps
  // How often a kind is seen before it is planned: a cycle of steps shows as soon as all of it came
  // twice, and lets what crosses its marks be planned better.
  static constexpr std::uint32_t kEnough = 3, kEnoughBesidePlan = 2;
  static constexpr unsigned kFreeKindSearches = StepKinds::kMostKinds;

  [[nodiscard]] std::uint32_t lane_index(LaneKey key) noexcept;
  [[nodiscard]] MarkingLane* marking_lane(std::uint32_t lane) noexcept;
  void add(const RunRecord::Entry& entry) noexcept;
  void start_again() noexcept;
  void fall_silent() noexcept;
  void record_again() noexcept;
  [[nodiscard]] std::optional<std::uint64_t> new_kind(const MarkingLane& marking,
                                                      const KnownKind& step, Fit fit) noexcept;
  [[nodiscard]] std::uint64_t oldest_step(const MarkingLane& marking,
                                          std::uint64_t most) const noexcept;
  [[nodiscard]] bool known(const MarkingLane& marking, std::uint32_t pattern) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> repeats(const MarkingLane& marking,
                                                     std::uint32_t pattern) const noexcept;
  [[nodiscard]] bool outgrows_record(const MarkingLane& marking,
                                     std::uint32_t pattern) const noexcept;

  State state_ = State::kOff;
  RunRecord record_;
  std::array<Lane, kMostLanes> lanes_;
  std::uint32_t lane_count_ = 0, last_lane_ = 0;
  std::array<MarkingLane, kMostMarkingLanes> marking_;
  std::uint32_t marking_count_ = 0;

  std::uint64_t began_ = 0;                   // position of the record where it started (again)
  std::uint64_t next_search_ = kFirstSearch;  // entries since then
  unsigned searches_ = 0;                     // by period
  bool searched_all_ = false;                 // the last of them had a record in its whole length
  bool finds_no_period_ = false;
  unsigned marks_too_long_ = 0;  // in a row, of steps that the record does not hold
  std::uint64_t too_long_ = 0;
  std::uint64_t marks_without_repeat_ = 0;
  unsigned vain_at_marks_ = 0;
  std::uint64_t marks_to_wait_ = 0;
  Search last_search_ = Search::kAtMarks;

  SeenKinds seen_;
  bool beside_plan_ = false;  // what it records is beside a plan
  bool others_ = false;       // there may be more to learn beside the plan
  bool turns_ = false;        // its kinds may come in any
  std::uint64_t marks_in_cycle_ = 0;
  unsigned cycles_tried_ = 0;
  std::uint64_t marks_without_news_ = 0;
  unsigned kind_searches_ = 0;
  std::uint64_t missed_known_ = 0, search_missed_ = 1;  // steps of the plan's kinds

  std::array<std::uint64_t, MarkHistory::kMostPattern>
      known_{};  // hashes of steps that are no news
  SizeWatch sizes_;
  std::uint64_t deaf_ = 0;  // requests to come in which nothing is a change
  unsigned silences_ = 0;
};

}  // namespace berth
