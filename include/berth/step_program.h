#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace at {
class Tensor;
}

// A training step that berth runs by a schedule.
namespace berth::torch {

struct StepProgramOptions {
  // Who plans the step, a name of schedule::step_engines(): "auto", or "berth", is all of berth,
  // "order", or "olla", keeps everything and orders, which is what OLLA does. "release" keeps the
  // order, too; "eager" runs steps as they are. Those of others, "chen", "checkmate", "knapsack"
  // and "monet", want a budget, "vdnn" and "dymem" a copy_rate as well.
  std::string engine = "auto";
  // Bytes on the device that a step may take at most, everything counted; 0: as few as it takes
  // without running an operator twice.
  std::uint64_t memory_budget = 0;
  // The same as a share of what the step takes as recorded, above 0 and at most 1; 0: none.
  double memory_share = 0;
  // How much more time than as recorded the operators may take, e.g. 0.1: the schedule that needs
  // least memory within it, of those that are found; below 0: none. At most one of the three.
  double time_budget = -1;
  // How many bytes a second the device copies to the host and back: then what does not fit the
  // budget is also copied away, on streams of its own, and fetched again. 0: nothing is. On the CPU
  // the host is memory like any other.
  std::uint64_t copy_rate = 0;
  // A file by `berth schedule`, of save_graph()'s graph or of a trace with operators of a run in
  // which a step program had this step: a step that it is for is run by it, without a search.
  // Empty: what BERTH_SCHEDULE says.
  std::string schedule = {};
  // Whether libraries' algorithms may be taken that give other bits than the operator as written:
  // faster ones, or ones with less workspace, as with torch.backends.cudnn.benchmark.
  bool other_bits = false;
  // Whether the schedule runs on a second thread, right behind the checks, where the body reads
  // nothing back for a while: what cannot be taken back, draws and what the body still has wait for
  // the first one. Hides the body's own time where a core is free for it; not where kernels take
  // all of them, and not under berth's allocator on the CPU, whose plans are by thread.
  bool second_thread = false;
  // Of different steps (training, evaluation, a last batch); the oldest one goes for a new one.
  std::uint32_t max_programs = 128;
};

struct StepProgramStats {
  std::uint64_t steps = 0;      // all
  std::uint64_t scheduled = 0;  // run by a schedule
  std::uint64_t diverged = 0;   // began as a program and went another way: run as they were
  std::uint64_t refused = 0;    // could not be made a program
  std::uint64_t recovered = 0;  // ran out of memory in the schedule, and were run all the same
  std::uint64_t programs = 0;   // different steps that are known
  std::uint64_t made = 0;       // schedules so far, also of steps that are known no more
  std::uint64_t refined = 0;    // of steps that were planned once more by measured times
  std::uint64_t operators = 0;  // of the last scheduled step
  // What its schedule takes, bytes: all that the step touches, and what of it is there between
  // steps, too. And as the step was recorded, each value released after its last use.
  std::uint64_t predicted_peak = 0, resident = 0, recorded_peak = 0;
  // What its operators take, by the times of the record, or by those of scheduled steps where it
  // was planned once more; no schedule takes less than the bound.
  std::uint64_t predicted_ns = 0, recorded_ns = 0, bound_ns = 0;
  // What the last scheduled step took: all of it, and its schedule on the body's thread. The
  // difference is what the body takes without kernels, and the checks.
  std::uint64_t step_ns = 0, schedule_ns = 0;
  std::uint64_t ran_beside = 0;  // instructions that ran on the second thread
  std::uint64_t runs_again = 0;  // operators that its schedule runs more than once
  // Operators that a library has other algorithms for (cuDNN, for convolutions), and runs that take
  // one of those.
  std::uint64_t choices = 0, chosen = 0;
  std::uint64_t copied_out = 0, host_peak = 0;  // bytes a step, and most of them at one time
  // Calls of the last scheduled step that ran when they were called, once all before had run, since
  // nobody knows what they do or what their result's shape will be: "my::op 2, aten::nonzero 1".
  std::uint64_t barriers = 0;
  std::string barrier_operators;
  std::string last_divergence;     // operator and difference
  std::string last_refusal;        // operator and reason
  std::string budget_not_met;      // why, and the least that would do; empty where it is
  std::string schedule_not_taken;  // why the file's is not; empty where it is, or there is none

  // One object with the names above.
  [[nodiscard]] std::string to_json() const;
};

// Runs the step inside of a scope by a schedule, with the results of the step as written, to the
// bit, and in no more memory. The model and the loop stay as they are:
//
//     berth::torch::StepProgram program;
//     for (...) {
//       auto step = program.step();
//       ... zero_grad, forward, backward, optimizer, as ever ...
//     }
//
// The first steps run as they are and are recorded. Once two were the same, the body runs without
// kernels: each operator is checked against the record, and the schedule does the work, up to what
// the body reads back (item()), the rest at the end of the scope. What a program can see after the
// step is what it would see without. A step that calls something else is run as written from where
// it began, and becomes a program of its own where it comes again. So what differs costs time only.
//
// A program is planned at the end of its second step: in 4 seconds at most, with a budget of time
// in 14; where nothing is found in that which fits a budget of memory, in up to five times as long
// more, with a copy_rate in ten times. With a budget what its operators take is measured in three
// more steps, where the schedule runs them; if that is a tenth more or less than in the record, it
// is planned once more, for as long, from what it has.
//
// What is not known to be safe later runs when it is called, once all that was called before has
// run: operators that are not libtorch's own and not declared pure(), shapes that data decide,
// bytes that others may use.
//
// Bytes that are asked for behind libtorch's operators (data_ptr() of what the step made, inside of
// the scope) are not there: that throws c10::Error. Those of parameters are what they were when the
// step began. read_bytes() and share_bytes() bring them.
//
// With berth as the allocator the scope's end marks the step (unless the program has marked steps
// itself), and once a schedule takes over, what was learned of the steps as written is let go of:
// from its fourth step on the schedule finds every block at its planned address.
//
// One step at a time in a process; further ones run as they are. Not thread-safe: a program belongs
// to the thread that trains. Costs some microseconds an operator of the body.
class StepProgram {
 public:
  // Throws Error(kUsage) for options out of range, for more than one budget, and for an engine that
  // wants a budget or a copy_rate where there is none.
  explicit StepProgram(const StepProgramOptions& options = {});
  ~StepProgram();
  StepProgram(StepProgram&&) noexcept;
  StepProgram& operator=(StepProgram&&) noexcept;

  class Step {
   public:
    // Ends the step. Throws what the operators of the schedule throw. Where the scope is left by an
    // exception, what the body had called is there as it would be without us.
    ~Step() noexcept(false);
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    friend class StepProgram;
    explicit Step(StepProgram& program);
    StepProgram* program_;
    int exceptions_;  // that were under way at the beginning
  };
  // The step is what happens as long as the result lives. Ends on the thread where it began.
  [[nodiscard]] Step step() { return Step(*this); }
  // The same in two calls. `failed`: the body was left by an exception.
  void begin();
  void end(bool failed = false);

  [[nodiscard]] StepProgramStats stats() const;
  // Writes the step that came last as a graph, for `berth graph`, `berth schedule`: as step
  // programs plan it, lists taken apart and results in the bytes of operands that nobody needs any
  // more, or `as_written`, which is what a trace with operators gives. Throws Error(kUsage) where
  // no step is known yet, Error(kSystem) where it cannot be written.
  void save_graph(const std::string& path, bool as_written = false) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Inside of a step, before the body reads the bytes of a tensor by a pointer: they are what they
// would be in the step as written. Reads that come later want another call. Nothing elsewhere. The
// tensor is on the CPU. Costs the schedule up to here.
void read_bytes(const at::Tensor& tensor);
// The same where the body reads or writes them as long as it has the tensor: what uses the tensor
// from then on runs when it is called.
void share_bytes(const at::Tensor& tensor);

// Declares an operator pure, "my::op" with all its overloads or "my::op.overload": its results
// depend on its arguments alone, it does nothing that its schema does not tell, and the shapes of
// its results do not depend on what its arguments hold. Schedules may then run it later than it was
// called, in another order, and again. Operators that are not libtorch's own run when they are
// called otherwise, once all that was called before has run. Thread-safe; for the whole process;
// steps that are known already stay as they are. Throws Error(kUsage) for a name without "::".
void pure(std::string_view name);

}  // namespace berth::torch
