#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace at {
class Tensor;
}

// Step programs: a training step that berth captures and then runs by a schedule.
namespace berth::torch {

struct StepProgramOptions {
  // The planner of the step, a name of schedule::step_engines(). "auto" (or "berth") uses all of
  // berth's searches. "order" (or "olla") orders the operators without recomputation, as OLLA does.
  // "release" keeps the recorded order, and "eager" runs steps as written. The planners of papers
  // "chen", "checkmate", "knapsack" and "monet" need a budget, "vdnn" and "dymem" also a copy_rate.
  std::string engine = "auto";
  // The most bytes that a step may take on the device, everything counted. 0: as few as possible
  // without recomputation.
  std::uint64_t memory_budget = 0;
  // The same as a share, above 0 and at most 1; 0: none. The share is of the bytes that the
  // recorded step adds to those between steps: activations, gradients, workspaces.
  double memory_share = 0;
  // The share of time by which the schedule's operators may exceed the recorded ones, e.g. 0.1. Of
  // the schedules within it berth takes the one with the least memory. Below 0: no limit. At most
  // one of the three budgets is set.
  double time_budget = -1;
  // Bytes a second that the device copies to the host and back. With it schedules also offload:
  // they copy bytes to the host and back on streams of their own. 0: no offload. kOffloadIfNeeded:
  // only where memory_budget or memory_share is not met without offload, as if the device did 20 GB
  // a second, 4 GB on the CPU. On the CPU the host is memory like any other.
  static constexpr std::uint64_t kOffloadIfNeeded = ~std::uint64_t{0};
  std::uint64_t copy_rate = 0;
  // The most bytes on the host for spills and for offload, together. A spill copies tensors to the
  // host when a request finds no room on the device. With it a step larger than the device runs:
  // the device needs room for the operands and results of the largest operator. With copy_rate the
  // schedule itself keeps parameters and optimizer state on the host between their uses, if the
  // budget requires it. 0: such a step ends in out of memory. See csrc/torch/step/README.md,
  // "Spills".
  std::uint64_t host_memory = 0;
  // A file of `berth schedule`. A step that matches it runs by it, without a search. The planned
  // graph comes from save_graph(), or from a trace with operators of a program with this step
  // program. Empty: the file of BERTH_SCHEDULE.
  std::string schedule = {};
  // True: a schedule may use library algorithms with other bits than the operator as written, as
  // torch.backends.cudnn.benchmark does. They are faster, or need less workspace.
  bool other_bits = false;
  // True: the schedule runs on a second thread, right behind the checks, while the body reads
  // nothing back. Operators that cannot be undone, draws, and values that the body holds stay on
  // the body's thread. This hides the body's own time if a core is free. It gains nothing if
  // kernels use all cores, or under berth's CPU allocator, whose plans are by thread.
  bool second_thread = false;
  // Seconds that the loop waits for plans, in all its steps together. Infinity: it waits for each
  // plan. Until its plan is ready, a step runs in the order of its record and releases each value
  // after its last use.
  double plan_wait_seconds = 0.3;
  // The most different steps that are kept (training, evaluation, a last batch). A new step
  // replaces the oldest one.
  std::uint32_t max_programs = 128;
  // True: other threads of the program may call operators on the step's tensors, see
  // watch_threads(). false saves each operator outside of steps some 0.3 us of the host's time.
  bool other_threads = true;
};

struct StepProgramStats {
  std::uint64_t steps = 0;      // all
  std::uint64_t scheduled = 0;  // run by a schedule
  std::uint64_t diverged = 0;   // began like a program and then differed; run as written
  std::uint64_t refused = 0;    // could not become a program
  std::uint64_t recovered = 0;  // ran out of memory in the schedule, and ran as written
  std::uint64_t programs = 0;   // different steps that berth knows
  std::uint64_t planning = 0;   // of those, the ones that are being planned
  std::uint64_t made = 0;       // schedules so far, also of steps that were replaced
  // Schedules of steps that were planned once more: by measured times, or within less memory after
  // spills.
  std::uint64_t refined = 0;
  std::uint64_t operators = 0;  // of the last scheduled step
  // Bytes: the schedule's peak, everything counted; the part of it that lives between steps; the
  // peak of the recorded step with each value released after its last use.
  std::uint64_t predicted_peak = 0, resident = 0, recorded_peak = 0;
  // Times of the operators: of the schedule, of the recorded step, and the bound of any schedule.
  // They are the record's, or those of scheduled steps where it was planned once more.
  std::uint64_t predicted_ns = 0, recorded_ns = 0, bound_ns = 0;
  // Time of the last scheduled step: all of it, and its schedule on the body's thread. The
  // difference is the body without kernels, and the checks.
  std::uint64_t step_ns = 0, schedule_ns = 0;
  std::uint64_t ran_beside = 0;  // instructions that ran on the second thread
  std::uint64_t recomputed = 0;  // operators that its schedule runs more than once
  // Operators for which a library has other algorithms (cuDNN, for convolutions), and runs that use
  // one of these.
  std::uint64_t alternatives = 0, chosen = 0;
  // Bytes that a step offloads, and the most of them there at one time.
  std::uint64_t offloaded_bytes = 0, host_peak = 0;
  // Spills of the process so far: bytes that went to the host because a request found no room, and
  // bytes that came back. The most bytes on the host at one time. The time that the program waited.
  std::uint64_t spilled_out = 0, spilled_in = 0, spilled_peak = 0, spill_ns = 0;
  // Barriers of the last scheduled step: calls that ran when they were called, after all before
  // them, because their effects or shapes are unknown. E.g. "my::op 2, aten::nonzero 1".
  std::uint64_t barriers = 0;
  std::string barrier_operators;
  std::string last_divergence;     // operator and difference
  std::string last_refusal;        // operator and reason
  std::string budget_not_met;      // why not, and the least share that may be met; empty: it is met
  std::string schedule_not_taken;  // why the file's schedule is not used; empty: it is, or no file

  // One JSON object with the names above.
  [[nodiscard]] std::string to_json() const;
};

// Runs the step inside a scope by a schedule, with the bits of the step as written and in no more
// memory. The model and the loop stay as they are:
//
//     berth::torch::StepProgram program;
//     for (...) {
//       auto step = program.step();
//       ... zero_grad, forward, backward, optimizer, as ever ...
//     }
//
// The first steps run as written and are recorded. After two equal steps the body runs without
// kernels. berth checks each of its operators against the record, and the schedule does the work.
// The schedule runs up to a value when the body reads it back (item()), and to its end when the
// scope ends. After the step the program finds the state that the step as written leaves. A step
// that calls something else runs as written from its beginning. If it comes again, it becomes a
// program of its own. So a difference costs time only.
//
// A program is planned after its second step, on another thread: in 4 seconds at most, or 14 with a
// budget of time. If no schedule fits a budget of memory in that time, the search continues for up
// to five times as long, with a copy_rate for ten times. Until then the program runs by a schedule
// in the order of its record. The loop waits for plan_wait_seconds at most. With a budget berth
// also times the schedule's operators in three more steps. If they differ from the record by a
// tenth, berth plans the program once more, for as long, starting from its schedule. The loop's
// thread measures algorithms of libraries. The end of a step program or of the process cancels
// planning.
//
// An operator that is not known to be safe later is a barrier: it runs when it is called, after all
// operators before it. Barriers are operators that are neither libtorch's own nor declared pure(),
// shapes that depend on data, and bytes that others may use.
//
// Inside the scope the step's tensors have no bytes behind libtorch's operators: data_ptr() of a
// result throws c10::Error. Parameters have the bytes of the step's beginning. read_bytes() and
// share_bytes() provide the true ones.
//
// With berth as the allocator the scope's end marks the step, unless the program marks steps
// itself. Once a schedule takes over, berth drops its plan of the steps as written. A plan of the
// schedule's own requests takes its place, so its first step finds its blocks at planned addresses.
//
// One step at a time in a process; further ones run as they are. Not thread-safe: a program belongs
// to the thread that trains. Costs some microseconds an operator of the body.
class StepProgram {
 public:
  // Throws Error(kUsage) for options out of range, for more than one budget, and for an engine
  // without the budget or copy_rate that it needs.
  explicit StepProgram(const StepProgramOptions& options = {});
  ~StepProgram();
  StepProgram(StepProgram&&) noexcept;
  StepProgram& operator=(StepProgram&&) noexcept;

  class Step {
   public:
    // Ends the step. Throws what the operators of the schedule throw. Where an exception leaves the
    // scope, the operators that the body had called have run, as without berth.
    ~Step() noexcept(false);
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    friend class StepProgram;
    explicit Step(StepProgram& program);
    StepProgram* program_;
    int exceptions_;  // that were under way at the beginning
  };
  // The step lasts as long as the result lives. It must end on the thread where it began.
  [[nodiscard]] Step step() { return Step(*this); }
  // The same in two calls. `failed`: an exception left the body. end() returns true if another
  // schedule runs the next steps.
  void begin();
  bool end(bool failed = false);

  [[nodiscard]] StepProgramStats stats() const;
  // Writes the last step as a graph, for `berth graph` and `berth schedule`. By default it is the
  // graph that step programs plan: calls over lists are split, and a result may use the bytes of a
  // dead operand. `as_written` gives the graph of a trace with operators.
  // Throws Error(kUsage) where no step is known yet, Error(kSystem) where it cannot be written.
  void save_graph(const std::string& path, bool as_written = false) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Call it inside a step before the body reads the bytes of a CPU tensor by a pointer. It runs the
// schedule up to here, so that the bytes are those of the step as written. Later reads need another
// call. Outside a step it does nothing.
void read_bytes(const at::Tensor& tensor);
// The same for a body that reads or writes the bytes as long as it holds the tensor. From then on
// each operator that uses the tensor is a barrier.
void share_bytes(const at::Tensor& tensor);

// Permits spills to that many bytes of the host from now on: of tensors of the calling thread's
// operators, and of the steps of all step programs. StepProgramOptions::host_memory does this too.
// A program calls it before its first step if that one does not fit. Throws Error(kUsage) for 0.
void allow_spills(std::uint64_t host_memory);
// The bytes of tensors on a GPU that may spill; on the CPU if `device` is below 0. Other blocks,
// such as workspaces of libraries, never leave the device. O(known tensors).
[[nodiscard]] std::uint64_t known_to_spills(int device);

// berth sees the operators of all threads from now on. Another thread may take a tensor that a step
// has used. It finds the bytes that the step as written leaves there, and the rest of that step
// runs as written. While a step is recorded, such an operator that writes makes the step refused. A
// thread that draws random numbers counts too. Costs each operator outside of steps some 0.3 us.
// Thread-safe.
void watch_threads();
// The same for composite operators that the calling thread calls. Without it they are seen behind
// the thread's first other operator. Python does this for each of its threads. Thread-safe.
void watch_thread() noexcept;

// Declares an operator pure: "my::op" with all its overloads, or "my::op.overload". Its results
// depend on its arguments alone, and their shapes not on what the arguments hold. It has no effect
// that its schema does not name. Schedules may then run it later than it was called, in another
// order, and again. Otherwise an operator that is not libtorch's own is a barrier. Thread-safe, for
// the whole process; steps that are known already stay as they are. Throws Error(kUsage) for a name
// without "::".
void pure(std::string_view name);

// Says that the program has registered a kernel for one of libtorch's operators since its steps
// began. Such an operator is a barrier. Kernels of a library that was loaded since are found
// without this call, and so are kernels that torch.library registers. Thread-safe.
void note_kernels() noexcept;

}  // namespace berth::torch
