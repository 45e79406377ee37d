#include "csrc/torch/operator_recorder.h"

#include "csrc/core/setup_mutex.h"
#include "csrc/torch/backend.h"
#include "csrc/torch/block_roles.h"
#include "csrc/torch/module_ranges.h"
#include "csrc/torch/operator_traits.h"
#include "csrc/torch/per_recorder.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace berth::torch {

namespace {

using trace::Access;
using trace::BlockId;

class OperatorRecorder;

// State of one operator between its begin and its end.
struct Open : at::ObserverContext {
  OperatorRecorder* recorder = nullptr;
  std::uint64_t op = 0;
  BlockRoles::Operator roles;
  bool backward = false;
  bool accumulates_gradient = false;
  c10::SmallVector<BlockId, 8> arguments;
};

// Backward operators open on this thread, and those among them that store gradients.
thread_local int backward_depth = 0;
thread_local int accumulating_depth = 0;

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) visit(element.toTensor());
  }
}

class OperatorRecorder {
 public:
  OperatorRecorder(Allocator& allocator, Recorder& recorder, c10::Device device)
      : allocator_(allocator), recorder_(recorder), device_(device) {}

  // Whether another process made it, which this one was forked from: its locks may be held for
  // ever.
  [[nodiscard]] bool of_parent() const noexcept { return fork_count() != forks_; }
  [[nodiscard]] bool records(const Allocator& allocator) const noexcept {
    return &allocator_ == &allocator;
  }

  std::unique_ptr<Open> begin(const at::RecordFunction& function) {
    const OperatorTraits& traits = traits_of(function, recorder_);
    auto open = std::make_unique<Open>();
    open->recorder = this;
    open->op = last_op_.fetch_add(1, std::memory_order_relaxed) + 1;
    open->backward = traits.backward;
    open->accumulates_gradient = traits.accumulates_gradient;
    recorder_.append(trace::OperatorBegin{.op = open->op,
                                          .name = traits.name,
                                          .sequence = function.seqNr(),
                                          .forward_thread = forward_thread(function),
                                          .backward = open->backward || backward_depth > 0,
                                          .random = traits.random,
                                          .changes_state = traits.changes_state});
    std::size_t position = 0;
    for (const c10::IValue& value : function.inputs()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (is_plain(tensor))
          open->arguments.push_back(
              append_operand(open->op, tensor, position, traits.argument(position), false));
      });
      ++position;
    }
    if (open->backward)
      note_backward();
    else if (backward_depth == 0)
      find_roles_of_arguments(function, traits, *open);
    // Last, since a begin that throws has no end.
    backward_depth += open->backward;
    accumulating_depth += open->accumulates_gradient;
    return open;
  }

  void end(const at::RecordFunction& function, const Open& open) {
    std::size_t position = 0;
    for (const c10::IValue& value : function.outputs()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (is_plain(tensor)) append_result(open, tensor, position);
      });
      ++position;
    }
    recorder_.append(trace::OperatorEnd{.op = open.op});
    backward_depth -= open.backward;
    accumulating_depth -= open.accumulates_gradient;
  }

 private:
  // Whether the tensor is plain memory of the device, whose sizes are known.
  bool is_plain(const at::Tensor& tensor) const {
    return tensor.defined() && tensor.device() == device_ && tensor.has_storage() &&
           tensor.layout() == at::kStrided &&
           !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  }

  BlockId block_of(const at::Tensor& tensor) const {
    const auto block = allocator_.find(tensor.storage().data());
    return block ? block->id : 0;
  }

  BlockId append_operand(std::uint64_t op, const at::Tensor& tensor, std::size_t position,
                         Access access, bool output) {
    const BlockId block = block_of(tensor);
    append_operand(op, block, tensor, position, access, output);
    return block;
  }

  void append_operand(std::uint64_t op, BlockId block, const at::Tensor& tensor,
                      std::size_t position, Access access, bool output) {
    const std::size_t item = tensor.itemsize();
    recorder_.append(trace::Operand{
        .op = op,
        .block = block,
        .byte_offset = static_cast<Bytes>(tensor.storage_offset()) * item,
        .bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), item),
        .shape = shape(tensor.sizes()),
        .element_type = static_cast<std::int8_t>(tensor.scalar_type()),
        .access = access,
        .output = output,
        .position = static_cast<std::uint16_t>(position)});
  }

  void append_result(const Open& open, const at::Tensor& tensor, std::size_t position) {
    const BlockId block = block_of(tensor);
    const bool of_argument = block != 0 && std::find(open.arguments.begin(), open.arguments.end(),
                                                     block) != open.arguments.end();
    append_operand(open.op, block, tensor, position, of_argument ? Access::kRead : Access::kWrite,
                   true);
    if (block == 0 || (backward_depth > 0 && accumulating_depth == 0)) return;
    const std::lock_guard lock(mutex_);
    // Whether a node takes its input over, copies it or adds it to what was there: what the
    // operator in it gives is what .grad will hold.
    if (accumulating_depth > 0)
      tell(block, roles_.gradient(block));
    else if (!of_argument)
      tell(block, roles_.result(block, open.roles));
  }

  // The first backward node after forward operators opens a pass.
  void note_backward() {
    const std::lock_guard lock(mutex_);
    if (!in_backward_) roles_.begin_backward();
    in_backward_ = true;
  }

  void find_roles_of_arguments(const at::RecordFunction& function, const OperatorTraits& traits,
                               Open& open) {
    const std::lock_guard lock(mutex_);
    const bool gradients_on = at::GradMode::is_enabled();
    if (gradients_on) in_backward_ = false;
    // First what the operator is, by all arguments, then what that makes of each.
    auto block = open.arguments.begin();
    for_each_argument(function, [&](const at::Tensor& tensor, std::size_t) {
      const BlockId id = *block++;
      if (id != 0 && tensor.requires_grad() && tensor.is_leaf()) tell(id, roles_.parameter(id));
      open.roles.differentiated |= gradients_on && tensor.requires_grad();
      open.roles.derived |= !gradients_on && id != 0 && roles_.derives(id);
    });
    block = open.arguments.begin();
    for_each_argument(function, [&](const at::Tensor& tensor, std::size_t position) {
      const BlockId id = *block++;
      if (id != 0)
        tell(id, roles_.argument(id, open.roles, tensor.requires_grad(),
                                 traits.argument(position) != Access::kRead));
    });
  }

  template <typename Visit>
  void for_each_argument(const at::RecordFunction& function, const Visit& visit) const {
    std::size_t position = 0;
    for (const c10::IValue& value : function.inputs()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (is_plain(tensor)) visit(tensor, position);
      });
      ++position;
    }
  }

  void tell(BlockId block, BlockRoles::News news) {
    if (news) recorder_.append(trace::Role{.id = block, .role = *news});
  }

  std::uint32_t shape(c10::IntArrayRef sizes) {
    // The recorder's own table has a lock.
    thread_local PerRecorder<std::map<std::vector<std::int64_t>, std::uint32_t, Less>> known_of;
    auto& known = known_of.get(recorder_);
    const auto found = known.find(sizes);
    if (found != known.end()) return found->second;
    const std::uint32_t number = recorder_.intern_shape(sizes.data(), sizes.size());
    known.emplace(sizes.vec(), number);
    return number;
  }

  // Notes the calling thread's number under libtorch's, and answers for the thread that ran the
  // forward operator of a backward node.
  trace::ThreadId forward_thread(const at::RecordFunction& function) {
    thread_local PerRecorder<bool> noted_of;
    bool& noted = noted_of.get(recorder_);
    const bool asked = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
    if (noted && !asked) return 0;
    const std::lock_guard lock(mutex_);
    if (!noted) {
      threads_[at::RecordFunction::currentThreadId()] = recorder_.thread();
      noted = true;
    }
    if (!asked) return 0;
    const auto found = threads_.find(function.forwardThreadId());
    return found == threads_.end() ? 0 : found->second;
  }

  struct Less {
    using is_transparent = void;
    bool operator()(c10::IntArrayRef a, c10::IntArrayRef b) const {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };

  Allocator& allocator_;
  Recorder& recorder_;
  const c10::Device device_;
  const std::uint32_t forks_ = fork_count();
  std::atomic<std::uint64_t> last_op_{0};
  std::mutex mutex_;  // covers what follows
  bool in_backward_ = false;
  BlockRoles roles_;
  std::unordered_map<std::uint64_t, trace::ThreadId> threads_;  // by libtorch's number
};

// One an allocator. Never destroyed: operators may run in it, or in static destructors.
std::array<std::atomic<OperatorRecorder*>, kMaxBackends> recorders{};

struct Opens : at::ObserverContext {
  std::array<std::unique_ptr<Open>, kMaxBackends> of;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  name_modules();
  auto opens = std::make_unique<Opens>();
  for (std::size_t n = 0; n < recorders.size(); ++n)
    if (OperatorRecorder* const one = recorders[n].load(std::memory_order_acquire))
      if (!one->of_parent()) opens->of[n] = one->begin(function);
  return opens;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  for (const auto& open : static_cast<const Opens&>(*context).of)
    // A fork in the middle of an operator leaves one open in the child.
    if (open != nullptr && !open->recorder->of_parent()) open->recorder->end(function, *open);
}

// What libtorch calls, while anybody records. Under the lock.
class Listening {
 public:
  void set(bool wanted) {
    if (wanted == handle_.has_value()) return;
    if (wanted) {
      handle_ = at::addGlobalCallback(
          at::RecordFunctionCallback(begin, end)
              .needsInputs(true)
              .needsOutputs(true)
              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    } else {
      at::removeCallback(*handle_);
      handle_.reset();
    }
  }

 private:
  std::optional<at::CallbackHandle> handle_;
};

SetupMutex listening_mutex;
Listening listening;

}  // namespace

void record_operators(Allocator& allocator, Recorder& recorder, c10::Device device) {
  auto* const added = new OperatorRecorder(allocator, recorder, device);
  const std::lock_guard lock(listening_mutex);
  for (auto& one : recorders) {
    OperatorRecorder* none = nullptr;
    if (one.compare_exchange_strong(none, added)) break;
  }
  listening.set(true);
}

void end_operators(Allocator& allocator) {
  const std::lock_guard lock(listening_mutex);
  bool any = false;
  for (auto& one : recorders) {
    OperatorRecorder* const here = one.load();
    if (here != nullptr && here->records(allocator))
      one.store(nullptr);
    else
      any |= here != nullptr;
  }
  listening.set(any);
}

}  // namespace berth::torch
