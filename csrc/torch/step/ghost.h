#pragma once

#include "csrc/core/follower.h"
#include "csrc/torch/step/aside.h"
#include "csrc/torch/step/current_streams.h"
#include "csrc/torch/step/executor.h"
#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/left_behind.h"
#include "csrc/torch/step/outside_memory.h"
#include "csrc/torch/step/program.h"
#include "csrc/torch/step/recorder.h"
#include "csrc/torch/step/tap.h"

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth::torch::step {

// A step whose body runs without kernels: each operator is checked against a program, its results
// are tensors without bytes, and an executor does the work.
//
// When the body reads a value back, the schedule runs up to it, so the value is true. If the body
// calls something that no program has, the executor runs the calls so far as recorded. The body's
// tensors get their bytes, and the step continues as written, recorded from its beginning. Storages
// that outlive the step are written only when the body has ended as recorded, leaves the program,
// or reads back a value that depends on them.
//
// With a follower the schedule runs on the follower's thread, behind the check, while the body
// reads nothing back. It runs as far as it can be undone. The leader gives its facts to the
// executor, and notes them here, before the follower hears of a call.
//
// Thread-safe as the recorder is. O(operands) an operator.
class Ghost final : public OperatorListener {
 public:
  // Checks against `first`, and, where the body leaves that, against each of the others that begins
  // with what it has called. They outlive it, and so do the follower, if any, and `memory`,
  // where its tables are. `looks_at_bytes`: what the body's operators take from outside is found to
  // be the same when they run. `left`: by the step before.
  Ghost(const Scheduled& first, std::vector<const Scheduled*> others, Follower* follower,
        std::pmr::memory_resource* memory, bool looks_at_bytes, LeftBehind left);
  ~Ghost() override;

  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) override;

  void called_elsewhere(const c10::OperatorHandle& op, const c10::Stack& stack) override;

  [[nodiscard]] std::uint64_t point() override;
  [[nodiscard]] bool had_effects(std::uint64_t since) override;

  // The body has ended: the rest of the schedule runs, and tensors that are still there get their
  // bytes. To be called once, after the tap is gone.
  void finish();
  // The body has failed: what it called runs, as if there were no ghost. Instead of finish().
  void fail();

  // The program that it is checked against.
  [[nodiscard]] const Scheduled& scheduled() const noexcept { return *scheduled_; }
  [[nodiscard]] bool diverged() const noexcept { return recorder_ != nullptr; }
  // Of a step that diverged: its record, and in words where it did.
  [[nodiscard]] StepRecord take_record() { return recorder_->take(); }
  [[nodiscard]] const std::string& divergence() const noexcept { return divergence_; }
  // Of a step that did not: when what the step before had left went.
  [[nodiscard]] std::vector<StepRecord::Left> take_left() { return left_.take(); }
  // That the schedule took so far.
  [[nodiscard]] std::uint64_t schedule_ns() const noexcept { return schedule_ns_; }
  // Instructions that ran beside the body.
  [[nodiscard]] std::size_t ran_beside() const noexcept {
    return ran_beside_ + executor_->ran_beside();
  }
  // Whether memory was exhausted, and the step was run all the same.
  [[nodiscard]] bool recovered() const noexcept { return recovered_; }
  // Whether it diverged because another thread called an operator on the step's tensors.
  [[nodiscard]] bool called_elsewhere() const noexcept { return called_elsewhere_; }

 private:
  static c10::weak_intrusive_ptr<c10::StorageImpl> no_storage() {
    return c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());
  }
  // Lets the schedule run behind the check, or go on.
  void follow();
  // The executor is this thread's again.
  void stop_following() noexcept;
  // Goes on with another program that begins with the calls so far, and takes `other` for itself.
  // Where something has run already, the rest runs as it was recorded. Whether it was possible.
  bool change_program(const Scheduled*& other);
  // Forgets the storages that a call has bound which turned out to be another one.
  void forget_bound();
  // Whether it is the program's call; else why not. `device`: of the arguments, the first one but
  // the CPU.
  bool check(const Call& expected, const c10::OperatorHandle& op,
             c10::ArrayRef<c10::IValue> arguments, c10::Device device, std::string* why);
  bool check_tensor(const Operand& expected, const at::Tensor& tensor, std::string* why);
  // Runs a call with the body, once all before it has run where it is a barrier, and goes on as
  // written where its results are others than the program's.
  void run_with_body(std::unique_lock<std::mutex>& lock, const c10::OperatorHandle& op,
                     c10::DispatchKeySet keys, c10::Stack* stack);
  // A storage that a call writes, before it runs.
  struct Written {
    std::uint32_t operand = 0;
    c10::Storage storage;
    std::size_t bytes = 0;  // before the call
  };
  std::vector<Written> written_by(const Call& call) const;
  // The call has given the storage another size, and so another number.
  void forget_size(StorageNumber old);
  // An operator is called inside of a barrier.
  void note_within(const c10::OperatorHandle& op, const c10::Stack& stack);
  // Whether the results are those of the program's call; notes their storages then. Else why not.
  bool take_results(const Call& expected, c10::ArrayRef<c10::IValue> arguments,
                    c10::ArrayRef<c10::IValue> results, std::string_view* why);
  // Has the executor take the small foreign bytes that the call takes as they are now.
  void copy_foreign(const Call& expected, c10::ArrayRef<c10::IValue> arguments);
  // Has the executor compare the bytes that the call takes from outside.
  void expect_bytes(const Call& expected);
  // Whether a call that the body has made writes it.
  [[nodiscard]] bool was_written(StorageNumber storage) const;
  // Whether the generator is the program's own, and no call that the body has made draws from it.
  [[nodiscard]] bool draws_apart(const at::Generator& generator) const;
  // Gives the body's storage with this number the bytes that the schedule has there; whether it has
  // some then.
  bool lend(StorageNumber number, const c10::Storage* real);
  // Of a call that draws, where the step sets generators: tells the executor what it draws from,
  // and moves the generator on as the call would.
  void draw(const Call& expected, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
            const c10::Stack& stack);
  // Does what runs the schedule, with generators as the schedule left them. `at_call`: only what
  // the body has called, in a step that puts nothing off.
  template <typename Run>
  void run(const Run& how, bool at_call = false);
  // Another executor begins again.
  void take_back(std::unique_ptr<Executor> next);
  // After memory was exhausted: whether to go on, from the beginning as the step was recorded, or
  // with what has failed once more.
  bool recover();
  // `read`: what a host read found.
  void make_results(const Call& expected, c10::Stack* stack, c10::Stack read);
  // The body uses the bytes of the call's operands itself.
  void show_bytes(const Call& call);
  // Runs a call that gives a tensor another storage, either of which may be without bytes.
  void give_storage(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);
  // Lets the body compare the tensor's storage, until it calls an operator with the tensor.
  void let_compare(const at::Tensor& tensor);
  void end_compare(c10::ArrayRef<c10::IValue> arguments);
  // Runs what the body has called, gives the tensors that it holds their bytes.
  void catch_up();
  // The same for a thread that is not the step's: what is run leaves no trace in it, such as
  // libtorch's number of threads, which a thread's first large operator sets.
  void catch_up_elsewhere();
  void diverge(std::string why);
  // Goes on as written: all that was called has run.
  void go_on_as_written(std::string_view why);
  void give_bytes();
  // Whether the program holds what the step made there.
  [[nodiscard]] bool held(StorageNumber storage) const {
    return !program().storages[storage].of_body() && seen_[storage] &&
           storages_[storage].use_count() > 0 && !executor_->gives(storage);
  }
  // Notes the storage that has this number in this step.
  void see(StorageNumber number, const c10::Storage& storage);

  [[nodiscard]] const Program& program() const noexcept { return scheduled_->program; }

  std::mutex mutex_;
  const Scheduled* scheduled_;
  std::vector<const Scheduled*> others_;
  std::pmr::memory_resource* memory_;
  std::unique_ptr<Executor> executor_;
  std::uint32_t next_ = 0;  // call
  std::pmr::unordered_map<const c10::StorageImpl*, StorageNumber> numbers_;
  // By number, of those seen; weakly, so that their addresses stay theirs.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  // No bits: the follower reads those of other storages meanwhile.
  std::pmr::vector<std::uint8_t> seen_;
  OutsideMemory outside_;
  CurrentStreams streams_;
  // While a barrier runs.
  struct Barrier {
    std::vector<StorageNumber> wrote;  // by its operators
    bool strayed = false;  // one of them took what was not there: the step goes on as written
  };
  Barrier* barrier_ = nullptr;
  const bool looks_at_bytes_;
  LeftBehind left_;
  GeneratorStates generators_;  // as they are as long as nothing was drawn
  bool drew_ = false;
  bool set_between_draws_ = false;  // a generator, where the program knows nothing of it
  std::unique_ptr<Recorder> recorder_;
  std::string divergence_;
  std::uint64_t schedule_ns_ = 0;
  bool ran_ = false, recovered_ = false;
  bool called_elsewhere_ = false;
  bool over_ = false;  // the body's tensors have their bytes
  Follower* follower_;
  std::uint32_t follow_from_ = 0;  // call: up to there the body reads back too often
  std::size_t ran_beside_ = 0;     // by executors that are gone
  std::exception_ptr failed_;      // what the follower's part of the schedule threw
  // Of steps that were taken back, or went on by another program; the last one is in use.
  std::list<Instructions> as_recorded_;
  Aside aside_;
  std::vector<StorageNumber> bound_;  // by the call that is checked
  // Storages that barriers made and the body has: where the executor has their bytes.
  std::vector<std::pair<StorageNumber, c10::weak_intrusive_ptr<c10::StorageImpl>>> apart_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> compared_;
};

}  // namespace berth::torch::step
