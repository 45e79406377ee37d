#pragma once

#include "csrc/schedule/offload/problem.h"

#include <vector>

namespace berth::schedule::offload {

// What becomes of a value between its last use before the border and its first use after it.
enum class Fate : std::uint8_t {
  kKeep,
  kOffload,    // to the host, and back before it is used
  kRecompute,  // dropped; its maker is recomputed right before the operator that uses it
};

// One choice a value. Choices for values that are not used after the border say nothing.
struct OffloadPlan {
  struct Choice {
    Fate fate = Fate::kKeep;
    // Of kOffload: the operator with whose start the reload gets its bytes, and from which on it
    // may run. From the last use ahead of the border to the first after it: that one waits for it.
    Index trigger = kNobody;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  // What compute waits for beside the reloads and the room that it needs.
  enum class Waits : std::uint8_t {
    kNoWait,
    kEachOperator,  // for the copies that began with it, at its end
    kBorder,        // for all copies to the host, before the backward part
  };
  std::vector<Choice> choices;
  Waits waits = Waits::kNoWait;
  friend bool operator==(const OffloadPlan&, const OffloadPlan&) = default;
};

// All kept.
[[nodiscard]] OffloadPlan keep_all(const Problem& problem);

// Whether a value may have that fate: it is movable, used on both sides of the border and, for
// kRecompute, all results of its maker come from an operator that can be recomputed.
[[nodiscard]] bool may(const Problem& problem, Value value, Fate fate);

// The operators of a step in the order in which they run, those that are recomputed included, and
// where among them each value is used. What is recomputed serves all later uses.
class Execution {
 public:
  struct Run {
    Index op = 0;
    bool again = false;
  };

  // Throws Error(kUsage) for a fate that a value may not have. O(operators + reads); keeps its room
  // between calls.
  void expand(const Problem& problem, const OffloadPlan& plan);

  std::vector<Run> runs;
  std::vector<Index> run_of;  // of each operator, when it runs first
  // Of each value, indices of runs; kNobody: there is none.
  std::vector<Index> last_before, first_after;  // uses on both sides of the border; a maker is one
  std::vector<Index> last_use, recomputed_at;
  // What becomes of it: kKeep where it is not used after the border.
  std::vector<Fate> fate;

 private:
  void emit(const Problem& problem, Index op, bool again);

  struct Frame {
    Index op = 0;
    std::size_t next_read = 0;
  };
  std::vector<Frame> stack_;
};

}  // namespace berth::schedule::offload
