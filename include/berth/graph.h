#pragma once

#include <berth/bytes.h>
#include <berth/role.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A step as operators that read and make values: the input of the planners of steps. Plain data,
// integers only: bytes, nanoseconds. Without threads and streams: several threads may read one
// graph.
namespace berth::graph {

using StorageId = std::uint32_t;
using OperatorId = std::uint32_t;

enum class StorageClass : std::uint8_t {
  kStep,      // born in the step, by its first write
  kInput,     // born before the step's first operator
  kResident,  // there all the time, counted once and never moved: weights, optimizer state, buffers
};

struct Storage {
  Bytes bytes = 0;  // rounded as the allocator rounds
  StorageClass kind = StorageClass::kStep;
  trace::RoleKind role = trace::RoleKind::kUnknown;
  friend bool operator==(const Storage&, const Storage&) = default;
};

// Each write to a storage makes a value: (storage, version). Version 0 is what an input or a
// resident holds at the beginning; the first write to another storage makes version 1.
struct ValueId {
  StorageId storage = 0;
  std::uint32_t version = 0;
  friend auto operator<=>(const ValueId&, const ValueId&) = default;
};

struct Read {
  ValueId value;
  Bytes offset = 0, bytes = 0;  // the part that is read; a view is a read of its base
  friend bool operator==(const Read&, const Read&) = default;
};

// One way to run an operator.
struct Alternative {
  std::uint64_t ns = 0;
  Bytes workspace = 0;
  std::vector<Read> reads;
  std::vector<ValueId> writes;
  // Pairs of an input and a result that may use the input's bytes, if no later operator reads the
  // input.
  std::vector<std::pair<ValueId, ValueId>> in_place;
  std::string algorithm = {};  // its name, for people; empty: unknown
  friend bool operator==(const Alternative&, const Alternative&) = default;
};

enum class Phase : std::uint8_t { kForward, kLoss, kBackward, kOptimizer };

struct Traits {
  bool random = false;
  bool changes_state = false;
  bool host_sync = false;
  bool collective = false;
  bool draws_again = false;  // random, but drawn again from the generator's state of the first run
  // True if the operator must not be recomputed.
  [[nodiscard]] bool only_once() const noexcept {
    // mutant: referee-again, referee-drawn-again
    return (random && !draws_again) || changes_state || host_sync || collective;
  }
  friend bool operator==(const Traits&, const Traits&) = default;
};

struct Operator {
  std::string name;
  Phase phase = Phase::kForward;
  Traits traits;
  std::optional<OperatorId> forward;      // the operator whose gradient it computes
  std::vector<Alternative> alternatives;  // the first is the one that was recorded
  friend bool operator==(const Operator&, const Operator&) = default;
};

struct Graph {
  // Caps, so that no file makes us allocate or search without end.
  static constexpr std::size_t kMaxOperators = std::size_t{1} << 20;
  static constexpr std::size_t kMaxStorages = std::size_t{1} << 22;
  static constexpr std::size_t kMaxAlternatives = 64;  // of one operator

  std::vector<Storage> storages;
  std::vector<Operator> operators;
  std::vector<std::pair<OperatorId, OperatorId>> control;  // (earlier, later), without bytes
  std::vector<OperatorId> order;                           // as recorded; empty: by number
  friend bool operator==(const Graph&, const Graph&) = default;
};

// The first violation of the rules of a graph, in one line that names the operator or storage;
// empty if there is none. Indices are in range, each value has one maker, versions have no holes,
// sums of sizes do not overflow, and there is no cycle. Every value that an operator reads has a
// maker, or exists at the beginning.
[[nodiscard]] std::string violation(const Graph& graph);

// Reads a graph and recognizes its form by the content. The form is berth's own, binary or JSON
// (plans/README.md), or a trace with operators whose step repeats. After use_papers() it may also
// be a graph of dnn-partitioning, MONeT or Moccasin, a log of DTR, or a profile of PipeDream (its
// graph.txt, or JSON). Trusts nothing: throws Error(kInput) that names the file and the fault, for
// a violation() too. 10 MB in 0.2 s.
[[nodiscard]] Graph read_graph(const std::string& path);
// The same for a text in memory, in any text form; errors name it `name`.
[[nodiscard]] Graph parse_graph(std::string_view text, const std::string& name);

// Writes a graph, atomically: as JSON where the name ends in .json, else as the binary file. Both
// read back as the same graph. Throws Error(kUsage) for a violation(), Error(kSystem) if the file
// cannot be written.
void write_graph(const std::string& path, const Graph& graph);

}  // namespace berth::graph
