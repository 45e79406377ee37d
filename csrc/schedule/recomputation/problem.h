#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

// What to keep from one stage of a step to the next, and what to recompute.
//
// Stage 0 runs the forward part; each later stage ends with one closing operator, as a rule of the
// backward part, and begins with what is recomputed for it. Which values are kept at the beginning
// of each stage, and which alternative each closing operator takes: that is a whole plan. What is
// recomputed, by which alternative and when it is released follows by rule.
namespace berth::schedule {

using StageNode = std::uint32_t;  // an operator that can run in any stage, in the order that it has
using StageValue = std::uint32_t;  // a result of one

// Whose account of memory and time counts.
enum class StageRules : std::uint8_t {
  kExact,      // ours: liveness to the byte. The only one whose plans are run
  kCheckmate,  // Jain et al. 2020: one stage an operator, no workspace
  kMonet,      // Shah et al. 2021, inequalities as published: with workspaces, in place, algorithms
};

// An alternative to run an operator, as it is counted: cost in the problem's unit of time,
// workspace in its unit of bytes. MONeT's workspaces may be negative.
struct StageAlternative {
  std::int64_t cost = 0;
  std::int64_t workspace = 0;
  std::uint32_t tag = 0;  // the caller's
  friend bool operator==(const StageAlternative&, const StageAlternative&) = default;
};

// Plain data, checked by violation().
struct StageProblem {
  // Of an operator that must not be recomputed.
  static constexpr std::int64_t kNever = std::int64_t{1} << 45;
  static constexpr std::int64_t kMostBytes = std::int64_t{1} << 52;
  static constexpr std::size_t kMostNodes = 16'384, kMostStages = 16'384;
  // Rows of bits, one a stage: 128 MiB at most.
  static constexpr std::size_t kMostCells = std::size_t{1} << 30;

  struct ValueOf {
    std::int64_t bytes = 0;
    StageNode maker = 0;
    // Whether it can be there when a later stage begins: not where its bytes are written over.
    bool keepable = true;
  };
  struct NodeOf {
    std::vector<StageValue> reads, makes;  // each once, reads ascending
    std::vector<StageAlternative> first,
        again;               // in stage 0, and in a later one; empty: as `first`
    bool only_once = false;  // it must not be recomputed
    // Nor in a later stage than this one, at whose end something that it reads changes.
    std::uint32_t last_stage = std::numeric_limits<std::uint32_t>::max();
    // A read whose bytes its first result can take over, where nobody needs them any more, and the
    // alternatives that do so. With kExact both count all the same, so that the workspace of such
    // an alternative is less by the bytes that it takes over.
    std::optional<StageValue> over;
    std::vector<StageAlternative> in_place;
    bool always_in_place = false;  // it has no other alternative
    // It is a further result of the node just before it, of which it takes the alternative (MONeT's
    // masks and indices): runs with it alone, in place where that does.
    bool with_previous = false;
    // kMonet: values that are counted beside it whatever it reads, ascending, and their sum.
    std::vector<StageValue> local;
    std::int64_t local_bytes = 0;
  };
  // Those that read the same values.
  struct AlternativesOf {
    std::vector<StageValue> reads;  // of values of nodes, ascending, each once
    std::vector<StageAlternative> all;
  };
  // What a stage must do, and the operator that ends it.
  struct StageOf {
    std::int64_t fixed = 0;    // alive all through the stage, whatever is kept
    std::int64_t closing = 0;  // in its place while the closing operator runs: with its results
    std::vector<StageNode> must_run;
    std::vector<AlternativesOf> alternatives;  // of the closing operator; empty: there is none
  };

  StageRules rules = StageRules::kExact;
  std::vector<ValueOf> values;
  std::vector<NodeOf> nodes;
  std::vector<StageOf> stages;
  std::int64_t budget = std::numeric_limits<std::int64_t>::max() / 4;
  std::int64_t unit_bytes = 1;  // of all sizes here
  std::int64_t unit_ns = 1;     // of all costs

  // Why this is no problem, in one line; empty where it is one.
  [[nodiscard]] std::string violation() const;
};

}  // namespace berth::schedule
