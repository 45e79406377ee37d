#pragma once

#include "csrc/torch/step/aside.h"
#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/hidden_writes.h"
#include "csrc/torch/step/kernel_cost.h"
#include "csrc/torch/step/left_behind.h"
#include "csrc/torch/step/outside_memory.h"
#include "csrc/torch/step/program.h"
#include "csrc/torch/step/record.h"
#include "csrc/torch/step/streams.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/written_rooms.h"

#include <c10/core/StorageImpl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth::torch::step {

// Runs a step as it is and writes down what it calls.
//
// It keeps no bytes alive: it holds storages weakly, so autograd decides as without it. An operator
// that no program may have makes the record refused, and the step continues. Thread-safe:
// autograd's threads call one at a time. An operator costs O(operands + live storages) besides its
// kernel, and the cost of observing its allocations.
class Recorder final : public OperatorListener {
 public:
  // Of the run's step with this number; `before` is an earlier one, or null. `looks_at_bytes`: what
  // is written without being said is found, and refused.
  explicit Recorder(std::uint64_t step = 0, const StepRecord* before = nullptr,
                    bool looks_at_bytes = false);
  // Goes on after the first `calls` calls of a program, in which `storages` have occurred, the
  // first ones by number. `left`: by the step before.
  Recorder(const Program& program, std::size_t calls,
           std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages, LeftBehind left);

  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) override;
  void called_elsewhere(const c10::OperatorHandle& op, const c10::Stack& stack) override;
  [[nodiscard]] std::uint64_t point() override { return effects_; }
  [[nodiscard]] bool had_effects(std::uint64_t since) override { return effects_ != since; }
  // Writes down a call that has run already when it was called, with the arguments that it took,
  // the results that it gave and what it wrote beside them: the first one of a step that goes on
  // here.
  void add_run(const Call& like, c10::ArrayRef<c10::IValue> arguments,
               c10::ArrayRef<c10::IValue> results, const std::vector<StorageNumber>& wrote);
  // What was recorded. To be called when the step has ended; the recorder is empty after it.
  [[nodiscard]] StepRecord take();
  // Says of a step that goes on here that it has set a generator before.
  void note_generators_set() { record_.sets_generators = true; }
  // Of a step that goes on here: the streams on which it called what it has called so far, where
  // that has been queued now.
  void go_on_behind(const std::vector<c10::Stream>& own);

 private:
  StorageNumber number_of(const at::Tensor& tensor, std::uint32_t maker);
  // Lets go of storages that nobody has any more, whose address another may get now.
  void drop_dead();
  void refuse(const c10::OperatorHandle& op, std::string_view why);
  // Fills in arguments and operands.
  void describe_arguments(Call& call, c10::ArrayRef<c10::IValue> arguments);
  // Fills in what else a barrier wrote.
  void describe_wrote(Call& call, const std::vector<StorageNumber>& wrote) const;
  // Which of its operands' storages the call, which has run, has given another size.
  void find_resized(Call& call) const;
  // The call has given storages another size: from now on they are other storages, which the call
  // makes.
  void forget_sizes(const Call& call);
  // Whether the call has given a tensor that it takes another shape. `written`: such tensors that
  // it does not return.
  bool changes_shapes(const Call& call, c10::ArrayRef<c10::IValue> results,
                      const std::vector<at::TensorImpl*>& operands,
                      const std::vector<std::pair<std::uint32_t, at::Tensor>>& written) const;
  // Decides when the call may run, by what it takes.
  void decide(Call& call);
  // Whether the call, which takes foreign bytes, may run later with copies of them: notes which.
  bool copy_foreign(Call& call);
  // Inside of a barrier operators have returned these.
  void note_made_within(c10::ArrayRef<c10::IValue> results);
  // The barrier has run: which of its requests are what it leaves to later calls; with null none
  // is known.
  void note_left_within(const KernelCost* cost);
  // The storage, which is from outside, is what a barrier left.
  void note_kept(const c10::StorageImpl* storage, StorageNumber number);
  // An operator is called inside of a barrier.
  void note_within(const c10::OperatorHandle& op, const c10::Stack& stack);
  // Adds the call, which has run.
  void add(Call call);
  void describe_results(Call& call, c10::ArrayRef<c10::IValue> results,
                        const std::vector<at::TensorImpl*>& operands);

  std::mutex mutex_;
  GeneratorStates generators_;
  std::shared_ptr<const Modes> modes_;  // of the last call
  StepRecord record_;
  std::atomic<std::uint64_t> effects_{0};
  std::optional<HiddenWrites> hidden_;
  std::unordered_map<const c10::StorageImpl*, StorageNumber> numbers_;
  // By number; keeps addresses from being used again as long as somebody has the storage. What is
  // held longer stands between the blocks of the heap, which then grows.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> held_;
  std::vector<Bytes> sizes_;          // by number, in this step
  std::vector<StorageNumber> alive_;  // of those that were when last looked at
  LeftBehind left_;
  OutsideMemory outside_;
  StreamsOfCalls streams_;
  std::size_t settled_ = 0;  // calls whose streams have the numbers of a record that has ended
  OrderedBehind behind_;
  // By storage: whether others may use its bytes, from outside or since the body asked for them,
  // and whether a call has written it that runs later than it was called.
  std::vector<std::uint8_t> foreign_, pending_;
  Bytes copied_ = 0;  // of foreign storages
  Aside aside_;
  // While a barrier runs: what its operators write.
  std::vector<StorageNumber>* wrote_ = nullptr;
  // What operators inside of barriers made, at most KernelCost::kMostRequests, and the request of a
  // call that each is. Their weak references keep the addresses theirs.
  struct Within {
    static constexpr std::uint32_t kNone = KernelRequest::kNone;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::uint32_t call = kNone, request = kNone;  // kNone: not known
  };
  std::unordered_map<const c10::StorageImpl*, Within> within_;
  WrittenRooms rooms_;
};

}  // namespace berth::torch::step
