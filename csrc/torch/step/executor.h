#pragma once

#include "csrc/core/follower.h"
#include "csrc/torch/step/buffers.h"
#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/host_copies.h"
#include "csrc/torch/step/instructions.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory_resource>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace berth::torch::step {

// Runs one step of a program by its instructions, below autograd.
//
// The caller binds storages from outside, and gives numbers that change, before the first call that
// uses them runs. The calls make all other storages. Not thread-safe: one thread at a time. An
// instruction costs O(operands) besides its kernel.
class Executor {
 public:
  // All outlive the executor, whose tables are in `memory`. What calls take is noted in `times`,
  // unless it is null.
  Executor(const Program& program, const Instructions& instructions,
           std::pmr::memory_resource* memory, KernelTimes* times = nullptr);

  // Takes over what `other` was given, whose program begins with the same calls, for the first
  // `calls` of them. Requires: other has run nothing, or may be taken back.
  void take_over(Executor& other, std::uint32_t calls);
  // Begins behind the first `calls` calls, which have run elsewhere: `there` has what they left
  // that somebody needs, by storage. Requires: has run nothing; each call's instruction stands
  // where the step called it.
  using There = std::unordered_map<StorageNumber, c10::Storage>;
  void begin_behind(std::uint32_t calls, const There& there,
                    const std::function<bool(StorageNumber)>& needed);

  // After something has thrown: whether nothing that was there before has been written or let go
  // of, so that all may begin again; and whether it was a call that writes nothing but results, so
  // that it may be tried again, which is said once of each.
  [[nodiscard]] bool may_be_taken_back() const noexcept { return !left_traces_; }
  [[nodiscard]] bool may_try_again();

  // The storage from outside that has this number.
  void bind(StorageNumber number, c10::Storage storage);
  // A number that may be another in each step.
  void set_value(std::uint32_t call, std::uint32_t argument, c10::IValue value);
  // Where an operand that moves lies in its storage in this step, in elements.
  void set_offset(std::uint32_t call, std::uint32_t operand, std::int64_t offset);

  // What an operand is to be taken from, whose storage others may write.
  void set_copy(std::uint32_t call, std::uint32_t operand, at::Tensor copy);

  // What the bytes of an operand from outside are hashed to where the call is checked: it throws
  // where they are others when it runs.
  void expect_bytes(std::uint32_t call, std::uint32_t operand, std::uint64_t hash);

  // The state of the call's generator before it draws. Such a call leaves the generator as it found
  // it; one that is told none draws from the generator as it is.
  void set_generator_state(std::uint32_t call, GeneratorState state);

  // Runs what stands before the call and then the call itself: what it returns is in the stack.
  // `needed` says whether somebody still has a storage: it is not released then.
  using Needed = std::function<bool(StorageNumber)>;
  void run_through(std::uint32_t call, const Needed& needed, c10::Stack* results);
  // Runs what stands before the call, a barrier, which the body runs then.
  void run_before(std::uint32_t call, const Needed& needed);
  // Where that barrier's operand with this number is; null where nowhere.
  [[nodiscard]] c10::Storage* operand(std::uint32_t number);
  // Notes that the body has run that barrier.
  void note_barrier(c10::ArrayRef<c10::IValue> results);
  // The same of one whose results are none of the program's: only catch_up() may follow.
  void skip_barrier();
  // Runs the rest.
  void finish(const Needed& needed);
  // Runs what is left of the first `calls` calls, so that all is there that is needed.
  void catch_up(std::uint32_t calls, const Needed& needed);

  // Runs instructions beside a body that has not ended, of which so many calls were checked as the
  // turn says, until it is over: only what can be taken back. What writes to the outside waits, but
  // for small state that nothing else of the step takes, which is written when one of the three
  // above is called. So do draws, what the body reads back, and where the body still has what is to
  // go. What the calls are given may be told meanwhile by another thread, call by call.
  void run_beside(const Follower::Turn& turn, const Needed& needed);
  // Does what was put off there, of a step that goes no further.
  void settle(const Needed& needed);
  // Instructions that were run so.
  [[nodiscard]] std::size_t ran_beside() const noexcept { return ran_beside_; }

  // The call whose instruction is next; null behind the last one, or where it runs none.
  [[nodiscard]] const Call* next_call() const;

  // Where the storage's last version is; none where it is not there.
  [[nodiscard]] c10::Storage* holder(StorageNumber number);

  // Whether the body has the storage itself (Instructions::given). The executor then has it only
  // while it runs a call: references of its own would change whether autograd adds in place.
  [[nodiscard]] bool gives(StorageNumber number) const noexcept {
    return !instructions_.given.empty() && instructions_.given[number] != kNoBuffer;
  }
  // The one that the call has made which run_through() has run. Requires: gives(number).
  [[nodiscard]] c10::Storage give(StorageNumber number);
  // For the call that the body calls, until end_lending(). Nothing where it does not give it.
  void lend(StorageNumber number, const c10::Storage& storage);
  void end_lending();

 private:
  class Below;
  class Drawing;
  void step(const Instruction& instruction, const Needed& needed, c10::Stack* results);
  void run(const Instruction& instruction, const Needed& needed, c10::Stack* stack);
  // Throws c10::Error where the bytes of an operand are not those that were expected.
  void check_bytes(const Instruction& instruction) const;
  // Throws c10::Error where a call gave something else than it was recorded to give.
  void check_results(const Call& call, c10::ArrayRef<c10::IValue> results) const;
  // What is where after an instruction has run its call.
  void note_run(const Instruction& instruction, c10::ArrayRef<c10::IValue> results);
  void push_arguments(const Instruction& instruction, bool again, c10::Stack* stack);
  at::Tensor tensor(std::uint32_t call, std::uint32_t operand, BufferNumber buffer) const;
  void release(const Instruction& instruction, const Needed& needed);
  // Puts the bytes aside that the instruction lets go of, or has written over, where they may still
  // be asked for. Whether they may.
  bool keep(const Instruction& instruction, const Needed& needed);
  enum class Beside : std::uint8_t { kRun, kPostpone, kWait, kEnd };
  [[nodiscard]] Beside beside(const Instruction& instruction, std::uint32_t calls,
                              const Needed& needed) const;
  [[nodiscard]] bool is_small_state(StorageNumber storage) const;
  // Does what was put off beside the body.
  void make_up(const Needed& needed);
  // Waits for copies to the CPU: the body may have waited for them before they were begun.
  void wait_for_host();
  void drop(BufferNumber buffer);
  void copy_out(const Instruction& instruction);
  void copy_in(const Instruction& instruction);
  void copy_in(BufferNumber buffer);
  // A storage that is the same in every step, also before the body has used it in this one; none
  // where it is not known yet.
  [[nodiscard]] c10::Storage resident(StorageNumber number) const;
  // What is needed comes back from the host, the current stream has waited for all copies.
  void end_copies(const Needed& needed);

  const Program& program_;
  const Instructions& instructions_;
  KernelTimes* const times_;
  std::size_t next_ = 0;  // instruction
  std::size_t tried_again_ = ~std::size_t{0};
  bool left_traces_ = false;  // outside of the step
  bool beside_ = false;       // runs beside the body
  std::size_t ran_beside_ = 0;
  std::deque<const Instruction*> postponed_;
  // State from outside that is written later: beside the body another tensor is written instead,
  // none where the instruction is postponed.
  struct Shadow {
    at::Tensor real, instead;
  };
  std::unordered_map<BufferNumber, Shadow> shadows_;
  Buffers<c10::Storage> buffers_;
  std::pmr::vector<std::uint8_t> ran_;  // by call
  // By call, the values that were given for this step.
  std::pmr::vector<std::pmr::vector<std::pair<std::uint32_t, c10::IValue>>> values_;
  // By call, where operands that move lie; none where all lie at 0.
  std::pmr::vector<std::pmr::vector<std::pair<std::uint32_t, std::int64_t>>> offsets_;
  // By call, what was given in place of operands; none where the program copies nothing.
  std::pmr::vector<std::pmr::vector<std::pair<std::uint32_t, at::Tensor>>> taken_;
  // By call: those that were given, and those that calls had which run again.
  std::unordered_map<std::uint32_t, GeneratorState> generator_states_;
  std::optional<c10::Device> copied_from_;  // since the host has waited
  Below* below_ = nullptr;                  // while instructions are run
  struct ExpectedBytes {
    std::uint32_t operand = 0;
    std::uint64_t hash = 0;
  };
  std::unordered_map<std::uint32_t, std::vector<ExpectedBytes>> expected_bytes_;  // by call
  HostCopies copies_;
  c10::Stack stack_;
  std::vector<BufferNumber> lent_;
};

}  // namespace berth::torch::step
