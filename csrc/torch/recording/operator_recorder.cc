#include "csrc/torch/recording/operator_recorder.h"

#include "csrc/core/setup_mutex.h"
#include "csrc/torch/recording/block_roles.h"
#include "csrc/torch/recording/module_ranges.h"
#include "csrc/torch/recording/operator_traits.h"
#include "csrc/torch/recording/per_recorder.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/operator_kernels.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace berth::torch {

namespace {

using trace::Access;
using trace::BlockId;

// State of one operator between its begin and its end.
struct Open {
  std::uint64_t op = 0;
  BlockRoles::Operator roles;
  c10::SmallVector<BlockId, 8> arguments;
};

// Where in the program an operator runs, of its thread.
struct Place {
  bool backward = false;
  bool accumulates_gradient = false;  // in the node that stores a leaf's gradient
  std::int64_t sequence = -1;         // the node's that it runs in, or that was made for it
  std::uint64_t forward_thread = 0;   // libtorch's number of the thread that made the node
};

using Values = c10::ArrayRef<c10::IValue>;

template <typename Visit>
void for_each_tensor(Values values, const Visit& visit) {
  std::size_t position = 0;
  for (const c10::IValue& value : values) {
    step::for_each_tensor(value, step::form_of(value),
                          [&](const at::Tensor& tensor) { visit(tensor, position); });
    ++position;
  }
}

bool requires_gradient(Values arguments) {
  bool any = false;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
    any = any || (tensor.defined() && tensor.requires_grad());
  });
  return any;
}

Place find_place(Values arguments) {
  namespace autograd = ::torch::autograd;
  // What libtorch numbers nodes with that store gradients.
  constexpr auto kAccumulates = std::numeric_limits<std::uint64_t>::max();
  // The last node whose maker is known: what an operator without one makes is none.
  thread_local std::uint64_t known = 0;
  Place place;
  if (autograd::get_current_graph_task_id() != -1) {
    place.backward = true;
    if (const auto node = autograd::get_current_node()) {
      place.accumulates_gradient = node->sequence_nr() == kAccumulates;
      if (!place.accumulates_gradient)
        place.sequence = static_cast<std::int64_t>(node->sequence_nr());
      place.forward_thread = node->thread_id();
    }
  } else if (at::GradMode::is_enabled() && requires_gradient(arguments)) {
    // Autograd's layer has just made it.
    const std::uint64_t next = at::sequence_number::peek();
    if (next > known) place.sequence = static_cast<std::int64_t>(next) - 1;
    known = next;
  }
  return place;
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

  Open begin(const c10::OperatorHandle& op, Values arguments, const Place& place) {
    const OperatorTraits& traits = traits_of(op, recorder_);
    Open open;
    open.op = last_op_.fetch_add(1, std::memory_order_relaxed) + 1;
    recorder_.append(trace::OperatorBegin{.op = open.op,
                                          .name = traits.name,
                                          .sequence = place.sequence,
                                          .forward_thread = forward_thread(place),
                                          .backward = place.backward,
                                          .random = traits.random,
                                          .changes_state = traits.changes_state});
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
      if (is_plain(tensor))
        open.arguments.push_back(
            append_operand(open.op, tensor, position, traits.arguments[position], false));
    });
    if (place.backward)
      note_backward();
    else
      find_roles_of_arguments(arguments, traits, open);
    return open;
  }

  void end(const Open& open, Values results, const Place& place) {
    for_each_tensor(results, [&](const at::Tensor& tensor, std::size_t position) {
      if (is_plain(tensor)) append_result(open, tensor, position, place);
    });
    recorder_.append(trace::OperatorEnd{.op = open.op});
  }

  void told(const void* address, trace::RoleKind role) {
    const auto block = allocator_.find(address);
    if (!block) return;
    const std::lock_guard lock(mutex_);
    tell(block->id, roles_.told(block->id, role));
  }

  // A node keeps these as gradients of leaves.
  void keeps_gradients(Values tensors) {
    for_each_tensor(tensors, [&](const at::Tensor& tensor, std::size_t) {
      if (!is_plain(tensor)) return;
      const BlockId block = block_of(tensor);
      if (block == 0) return;
      const std::lock_guard lock(mutex_);
      tell(block, roles_.gradient(block));
    });
  }

 private:
  // Whether the tensor is plain memory of the device, whose sizes are known.
  bool is_plain(const at::Tensor& tensor) const {
    return tensor.defined() && tensor.device() == device_ && tensor.has_storage() &&
           tensor.layout() == at::kStrided &&
           !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  }

  BlockId block_of(const at::Tensor& tensor) const {
    // Tensors whose bytes nobody may ask for (fake ones, those of a step program's body) are told
    // of, too.
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    const auto block = allocator_.find(storage._mutable_data_ptr_no_checks().get());
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

  void append_result(const Open& open, const at::Tensor& tensor, std::size_t position,
                     const Place& place) {
    const BlockId block = block_of(tensor);
    const bool of_argument = block != 0 && std::find(open.arguments.begin(), open.arguments.end(),
                                                     block) != open.arguments.end();
    append_operand(open.op, block, tensor, position, of_argument ? Access::kRead : Access::kWrite,
                   true);
    if (block == 0 || (place.backward && !place.accumulates_gradient)) return;
    const std::lock_guard lock(mutex_);
    // Whether a node takes its input over, copies it or adds it to what was there: what the
    // operator in it gives is what .grad will hold.
    if (place.accumulates_gradient)
      tell(block, roles_.gradient(block));
    else if (!of_argument)
      tell(block, roles_.result(block, open.roles));
  }

  // The first backward operator after forward ones opens a pass.
  void note_backward() {
    const std::lock_guard lock(mutex_);
    if (!in_backward_) roles_.begin_backward();
    in_backward_ = true;
  }

  void find_roles_of_arguments(Values arguments, const OperatorTraits& traits, Open& open) {
    const std::lock_guard lock(mutex_);
    const bool gradients_on = at::GradMode::is_enabled();
    if (gradients_on) in_backward_ = false;
    // First what the operator is, by all arguments, then what that makes of each.
    auto block = open.arguments.begin();
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      if (!is_plain(tensor)) return;
      const BlockId id = *block++;
      if (id != 0 && is_of_leaf(tensor)) tell(id, roles_.parameter(id));
      open.roles.differentiated |= gradients_on && tensor.requires_grad();
      open.roles.derived |= !gradients_on && id != 0 && roles_.derives(id);
    });
    block = open.arguments.begin();
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
      if (!is_plain(tensor)) return;
      const BlockId id = *block++;
      if (id != 0)
        tell(id, roles_.argument(id, open.roles, tensor.requires_grad(),
                                 traits.arguments[position] != Access::kRead));
    });
  }

  // Whether it is a leaf that requires a gradient, or a view of one.
  static bool is_of_leaf(const at::Tensor& tensor) {
    if (!tensor.requires_grad()) return false;
    if (tensor.is_leaf()) return true;
    return tensor.is_view() && tensor._base().is_leaf() && tensor._base().requires_grad();
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

  // Notes the calling thread's number under libtorch's, and answers for the thread that made the
  // node of a backward operator.
  trace::ThreadId forward_thread(const Place& place) {
    thread_local PerRecorder<bool> noted_of;
    bool& noted = noted_of.get(recorder_);
    if (noted && place.forward_thread == 0) return 0;
    const std::lock_guard lock(mutex_);
    if (!noted) {
      threads_[at::RecordFunction::currentThreadId()] = recorder_.thread();
      noted = true;
    }
    if (place.forward_thread == 0) return 0;
    const auto found = threads_.find(place.forward_thread);
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

// How many of them there are.
std::atomic<int> listening{0};
SetupMutex listening_mutex;
// Made under the lock. Never destroyed: operators run in static destructors, too.
std::atomic<step::OperatorKernels*> kernels{nullptr};

constexpr c10::DispatchKey kKey = c10::DispatchKey::BackendSelect;
constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);

void run_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack,
                const step::Former& former) {
  if (former)
    former->kernel.callBoxed(op, keys, stack);
  else
    op.redispatchBoxed(keys & kBelow, stack);
}

// Whether the thread is within an operator that was told of.
thread_local bool within = false;

class Within {
 public:
  Within() { within = true; }
  ~Within() { within = false; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
};

template <typename Do>
void for_each_recorder(const Do& what) {
  for (std::size_t n = 0; n < recorders.size(); ++n)
    if (OperatorRecorder* const one = recorders[n].load(std::memory_order_acquire))
      if (!one->of_parent()) what(*one, n);
}

void register_operators();

// What fails here (no memory for a name) the trace lacks; the program goes on.
template <typename Do>
void without_failing(const Do& what) noexcept {
  try {
    what();
  } catch (...) {
  }
}

void observe(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack,
             const step::Former& former) {
  if (within || listening.load(std::memory_order_relaxed) == 0) {
    run_kernel(op, keys, stack, former);
    return;
  }
  const Within here;
  name_modules();
  register_operators();
  const std::size_t below = stack->size() - op.schema().arguments().size();
  const Place place = find_place(Values(*stack).slice(below));
  if (step::facts_of(op).view) {
    run_kernel(op, keys, stack, former);
    if (place.accumulates_gradient)
      for_each_recorder([&](OperatorRecorder& one, std::size_t) {
        without_failing([&] { one.keeps_gradients(Values(*stack).slice(below)); });
      });
    return;
  }
  std::array<std::pair<OperatorRecorder*, Open>, kMaxBackends> opens;
  for_each_recorder([&](OperatorRecorder& one, std::size_t n) {
    without_failing([&] { opens[n] = {&one, one.begin(op, Values(*stack).slice(below), place)}; });
  });
  const auto end = [&](Values results) {
    for (const auto& [one, open] : opens)
      // A fork in the middle of an operator leaves one open in the child.
      if (one != nullptr && !one->of_parent())
        without_failing([&] { one->end(open, results, place); });
  };
  try {
    run_kernel(op, keys, stack, former);
  } catch (...) {
    end({});
    throw;
  }
  end(Values(*stack).slice(below));
}

// Those that were loaded since.
void register_operators() {
  step::OperatorKernels& here = *kernels.load(std::memory_order_acquire);
  if (!here.behind()) return;
  const std::lock_guard lock(listening_mutex);
  here.register_new();
}

}  // namespace

void record_operators(Allocator& allocator, Recorder& recorder, c10::Device device) {
  auto* const added = new OperatorRecorder(allocator, recorder, device);
  const std::lock_guard lock(listening_mutex);
  // Nodes that keep a gradient as it is say so by detach() alone.
  if (kernels.load() == nullptr)
    kernels.store(
        new step::OperatorKernels(kKey, observe, "berth's operators of traces", "aten::detach."));
  kernels.load()->register_new();
  for (auto& one : recorders) {
    OperatorRecorder* none = nullptr;
    if (!one.compare_exchange_strong(none, added)) continue;
    ++listening;
    break;
  }
}

void tell_role(const void* address, trace::RoleKind role) noexcept {
  for_each_recorder([&](OperatorRecorder& one, std::size_t) {
    without_failing([&] { one.told(address, role); });
  });
}

void end_operators(Allocator& allocator) {
  const std::lock_guard lock(listening_mutex);
  for (auto& one : recorders) {
    OperatorRecorder* const here = one.load();
    if (here == nullptr || !here->records(allocator)) continue;
    one.store(nullptr);
    --listening;
  }
}

}  // namespace berth::torch
