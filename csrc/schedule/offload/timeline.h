#pragma once

#include "csrc/schedule/offload/offload_plan.h"
#include "csrc/schedule/offload/problem.h"

#include <optional>
#include <string>
#include <vector>

namespace berth::schedule::offload {

// What a step with a plan takes.
struct Outcome {
  std::uint64_t ns = 0;        // from the first operator's start to the last one's end
  std::uint64_t stall_ns = 0;  // of them, compute waits
  Bytes device_peak = 0;       // residents included
  Bytes excess = 0;            // the most that an operator is above the budget; 0: it fits
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct RunTime {
  // What an operator waited for last.
  enum class Cause : std::uint8_t { kPrevious, kReload, kRoom, kDrain };
  Index op = 0;
  bool again = false;
  std::uint64_t start = 0, end = 0, stall = 0;  // ns; stall: from the end of the one before
  Bytes live = 0;                               // on the device while it runs
  Cause cause = Cause::kPrevious;
  Value awaited = kNobody;  // whose reload, or whose offload
};

struct CopyTime {
  // kOperator: the operator it begins with, or after; kEngine: the copy before it on its engine;
  // kSource: its own copy to the host; kRoom: another value's, whose bytes it takes.
  enum class Cause : std::uint8_t { kOperator, kEngine, kSource, kRoom };
  std::uint64_t start = 0, end = 0;
  Cause cause = Cause::kOperator;
  Index run = kNobody;     // of kOperator
  Value before = kNobody;  // of kEngine and kRoom
};

struct ChainLink {
  enum class Kind : std::uint8_t { kRun, kOut, kIn } kind = Kind::kRun;
  Index index = 0;  // of the run, or the value
  friend bool operator==(const ChainLink&, const ChainLink&) = default;
};

struct Report {
  Outcome outcome;
  std::vector<RunTime> runs;
  std::vector<std::optional<CopyTime>> out, in;  // by value
  std::uint64_t compute_ns = 0, again_ns = 0;    // all runs; those that make a value again
  Bytes host_peak = 0, out_bytes = 0, in_bytes = 0;
  double overlap = 1;            // share of all copying during which an operator runs
  std::vector<ChainLink> chain;  // what the end waited for, backwards, first thing first
};

// Plays a plan on one compute queue and two copy engines, and is the judge of every plan.
//
// Operators run one by one, each at the latest of: the end of the one before, the end of the
// reloads of what it reads, and room within the budget for its workspace, what it makes and the
// reloads that it triggers. Where there is no room it waits for copies to the host to end; where
// none is on its way it runs over the budget.
//
// An operator that triggers a reload that it reads itself takes the room for that first, waits for
// it, and only then takes its other room.
//
// A copy to the host is queued as the last reader before the border starts, or at the end of that
// operator where it writes the value or the machine asks for that; its bytes are free when both
// have ended. A reload has its bytes from the start of its trigger on and is queued there, by first
// use, behind those queued before; it waits for its own copy to the host. Both engines serve their
// queues in order; while
// both copy, each has its loaded rate, so that a copy that runs is timed again. Bytes have no
// addresses here: what a destination was used for before is over when there is room.
//
// Not for threads. Refers to the problem and the machine, which must outlive it. 10^5 operators and
// copies in 0.1 s.
class Timeline {
 public:
  // Throws Error(kUsage) for rates that are not legal, Error(kInput) where all copies one after the
  // other would take more than 2^61 ns.
  Timeline(const Problem& problem, const Machine& machine);

  // Throws Error(kUsage) for a plan that is none: a fate that a value may not have, a trigger that
  // comes too early or too late. O(operators + reads + copies).
  Outcome play(const OffloadPlan& plan);

  // Of the last play.
  [[nodiscard]] Report report() const;
  [[nodiscard]] const std::vector<RunTime>& runs() const noexcept { return runs_; }
  [[nodiscard]] const Execution& execution() const noexcept { return execution_; }

 private:
  __extension__ using Wide = unsigned __int128;
  struct Engine {
    std::vector<Value> queue;
    std::size_t head = 0;  // of those that wait
    Value running = kNobody;
    Value last = kNobody;  // the copy before
    Wide left = 0;         // bytes of the running copy, times 10^9, at `since`
    std::uint64_t since = 0, end = 0, speed = 0;
    [[nodiscard]] bool idle() const noexcept { return running == kNobody; }
    [[nodiscard]] bool empty() const noexcept { return idle() && head == queue.size(); }
    void clear();
    void begin(Value value, Bytes bytes, std::uint64_t now, std::uint64_t rate);
    void set_speed(std::uint64_t now, std::uint64_t rate);
  };
  enum class Place : std::uint8_t { kNever, kQueued, kDone };

  void order_reloads(const OffloadPlan& plan);
  void start_copies();
  bool step_engines(std::uint64_t until);
  void advance(std::uint64_t until);
  void wait_for_reloads(Index run, std::uint64_t& now);
  void take_room(Index run, Bytes wanted, std::uint64_t& now);
  [[nodiscard]] Bytes reload_bytes(Index run, bool own) const;
  void queue_reloads(Index run, bool own);
  void wait_for_engine(const Engine& engine, Index run, std::uint64_t& now);
  void queue_out(Index run, bool at_end, const std::vector<Value>& values);
  void end_uses(Index run);
  [[nodiscard]] std::vector<ChainLink> chain() const;
  [[nodiscard]] double overlap() const;

  const Problem& problem_;
  const Machine& machine_;
  Execution execution_;
  Engine out_, in_;
  std::uint64_t clock_ = 0;  // up to where both engines were played
  Bytes live_ = 0, host_ = 0, host_peak_ = 0;
  std::size_t leaving_ = 0;  // values out of use whose copy to the host has not ended
  std::vector<RunTime> runs_;
  std::vector<CopyTime> out_times_, in_times_;  // by value, where it was copied
  std::vector<Place> out_at_, in_at_;
  std::vector<bool> out_of_use_;
  std::vector<Index> first_reload_;  // of each run, into reloads_; one more at the end
  std::vector<Value> by_need_, reloads_;
  Outcome outcome_;
};

}  // namespace berth::schedule::offload
