#pragma once

#include "csrc/graph/graph.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

// A step's calls as a graph: the one set of rules for a step program's own calls, for those of its
// trace, so that a schedule of the one is one of the other, and for the step of any recorded run.
namespace berth::graph {

inline constexpr std::uint32_t kNoNumber = std::numeric_limits<std::uint32_t>::max();

// What a call takes, by the step's own number of the storage; kNoNumber: no tensor.
struct CallOperand {
  std::uint32_t storage = kNoNumber;
  Bytes offset = 0, bytes = 0;  // the part of it
  bool writes = false;
  bool reads = true;  // what was there before the call
  // State that no result depends on, as a batch norm's running statistics in training.
  bool aside = false;
};

// An operator that a step called.
struct StepCall {
  std::string name;
  bool backward = false;      // ran within autograd's backward
  bool in_optimizer = false;  // within a range that an optimizer made around its step
  bool random = false;
  bool host_read = false;   // the host gets something that what it calls next may depend on
  bool collective = false;  // runs on all ranks together
  bool barrier = false;     // runs once all that was called before has run
  bool checked = false;     // runs when it is called: it may fail, and nothing behind it runs then
  std::uint64_t ns = 0;
  Bytes workspace = 0;
  std::optional<OperatorId> forward = {};  // whose gradient it takes
  std::vector<CallOperand> operands;
  std::vector<std::uint32_t> results;  // storages; kNoNumber: no tensor
};

// What a storage is to a step.
struct StepStorage {
  Bytes bytes = 0;
  StorageClass kind = StorageClass::kStep;
  bool same = false;                // in every step, as parameters are
  std::uint32_t maker = kNoNumber;  // the call; kNoNumber: from outside
  bool outlives = false;            // the step
  Bytes outliving_bytes = 0;        // of it
  trace::RoleKind role = trace::RoleKind::kUnknown;
};

// Whose graph it is.
enum class StepForm : std::uint8_t {
  kProgram,    // a step program's, which runs by a schedule of it
  kRecording,  // a recorded run's, as it was: its workspaces are measured, and blocks have roles
};

// Adds a step's operators in turn: a call is one, or several that each do a part of it.
//
// Versions of a storage are counted as calls write them. Control edges keep draws from generators
// in turn, and collectives and reads of the host; behind a value that the host reads all that was
// called after it, but where what it reads says so; before a barrier all that was called before.
// What writes something that was there before the step changes state. State that no result depends
// on and nobody else uses is no operand, and those that write it stay in turn.
//
// In a program's graph such state is the workspace of what writes it, phases follow what depends on
// what (phases.h), and the last operator is the end of the step, which takes what outlives it. In a
// recording's the writes go where they went, phases follow roles, and there is no end.
class StepGraph {
 public:
  // `rooms`: by storage, the storage of the graph whose bytes it has; those of several are one.
  // `storages` and `calls` outlive it.
  StepGraph(const std::vector<StepStorage>& storages, const std::vector<StepCall>& calls,
            std::vector<StorageId> rooms, StepForm form = StepForm::kProgram);

  // What became of the operands and results of an operator.
  struct Added {
    std::vector<std::uint32_t> reads;   // by operand: which of its reads; kNoNumber: none
    std::vector<std::uint32_t> writes;  // by result: which of its writes; kNoNumber: none
    std::vector<std::uint32_t> made;    // by write: the storage whose version it makes
  };
  // The part of a call that takes these operands and gives these results, by their numbers in it,
  // ascending, and has this share of its time and workspace. What the host reads is one part.
  Added add(std::uint32_t call, const std::vector<std::uint32_t>& operands,
            const std::vector<std::uint32_t>& results, double share);
  // All of it.
  Added add(std::uint32_t call);
  // The operator that was added last, to give it other alternatives.
  [[nodiscard]] Operator& last() { return graph_.operators.back(); }

  // The graph with its phases, and a program's with its end.
  [[nodiscard]] Graph finish() &&;

 private:
  void find_aside();
  [[nodiscard]] std::uint32_t add_read(Alternative& to, const CallOperand& operand) const;
  void write(OperatorId id, Alternative& alternative, std::uint32_t storage);
  void add_control(OperatorId id, const StepCall& call, OperatorId last_made);
  void follow(OperatorId& before, OperatorId id);
  void add_end();

  const std::vector<StepStorage>& storages_;
  const std::vector<StepCall>& calls_;
  const std::vector<StorageId> rooms_;
  const StepForm form_;
  Graph graph_;
  std::vector<std::uint32_t> call_of_;   // by operator
  std::vector<std::uint32_t> versions_;  // by storage of the graph
  std::vector<OperatorId> makers_;       // of those versions
  std::vector<bool> aside_;              // by storage
  std::map<std::uint32_t, OperatorId> last_aside_;
  OperatorId last_host_read_ = kNoNumber, last_random_ = kNoNumber, last_in_step_ = kNoNumber;
  OperatorId since_barrier_ = 0;  // the first operator behind the last barrier
};

// The graph of all calls, each in one part, with all storages apart.
[[nodiscard]] Graph graph_of(const std::vector<StepStorage>& storages,
                             const std::vector<StepCall>& calls, StepForm form);

}  // namespace berth::graph
