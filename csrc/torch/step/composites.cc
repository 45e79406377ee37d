#include "csrc/torch/step/composites.h"

#include "csrc/core/setup_mutex.h"
#include "csrc/torch/step/denied_bytes.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/operator_kernels.h"
#include "csrc/torch/step/other_threads.h"

#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

constexpr c10::DispatchKeySet kBelowComposites(c10::DispatchKeySet::FULL_AFTER, kCompositeKey);

// Those of libtorch's that read bytes by a pointer, whatever their arguments.
constexpr std::array<std::string_view, 9> kReadBytesAlways = {
    "aten::_pad_packed_sequence",
    "aten::ctc_loss.Tensor",
    "aten::gru.data",
    "aten::lstm.data",
    "aten::nonzero_numpy",
    "aten::quantized_gru.data",
    "aten::rnn_relu.data",
    "aten::rnn_tanh.data",
    "aten::tensor_split.tensor_indices_or_sections"};

bool reads_always(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  return std::find(kReadBytesAlways.begin(), kReadBytesAlways.end(), name) !=
         kReadBytesAlways.end();
}

// Those that touch no bytes of their own: all is done by what they call. They are called often.
constexpr std::array<std::string_view, 42> kCalledOften = {
    "aten::_convolution_mode",
    "aten::absolute",
    "aten::adaptive_avg_pool1d",
    "aten::adaptive_avg_pool2d",
    "aten::avg_pool1d",
    "aten::batch_norm",
    "aten::concat",
    "aten::concatenate",
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::conv_transpose1d",
    "aten::conv_transpose2d",
    "aten::conv_transpose3d",
    "aten::cross_entropy_loss",
    "aten::divide",
    "aten::dropout",
    "aten::dropout_",
    "aten::einsum",
    "aten::feature_dropout",
    "aten::group_norm",
    "aten::hstack",
    "aten::infinitely_differentiable_gelu_backward",
    "aten::instance_norm",
    "aten::item",
    "aten::layer_norm",
    "aten::linear",
    "aten::log_softmax",
    "aten::matmul",
    "aten::mse_loss",
    "aten::multiply",
    "aten::nll_loss",
    "aten::nll_loss_nd",
    "aten::norm",
    "aten::pad",
    "aten::relu6",
    "aten::rms_norm",
    "aten::scaled_dot_product_attention",
    "aten::softmax",
    "aten::square",
    "aten::subtract",
    "aten::to"};

// By schema: those that were found to read bytes. Never destroyed.
class Readers {
 public:
  [[nodiscard]] bool has(const c10::OperatorHandle& op) {
    if (count_.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock(mutex_);
    return schemas_.contains(&op.schema());
  }
  void add(const c10::OperatorHandle& op) {
    const std::lock_guard lock(mutex_);
    schemas_.insert(&op.schema());
    count_.fetch_add(1, std::memory_order_release);
  }

 private:
  SetupMutex mutex_;
  std::unordered_set<const c10::FunctionSchema*> schemas_;
  std::atomic<std::size_t> count_{0};
};
Readers& readers() {
  static auto* const found = new Readers;
  return *found;
}

std::atomic<bool> registered_any{false};

class CompositeKernel final : public c10::OperatorKernel {
 public:
  explicit CompositeKernel(const c10::OperatorHandle& op)
      : always_(reads_always(op)),
        without_gradients_(c10::toString(op.operator_name()) == "aten::max_pool1d") {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    if (!c10::impl::tls_is_dispatch_key_included(kTapKey)) [[unlikely]] {
      OtherThreads::run_composite(op, stack, [&](c10::Stack* of_it) {
        op.redispatchBoxed(keys & kBelowComposites, of_it);
      });
      return;
    }
    OperatorListener* const listener = Tap::listener();
    if (listener == nullptr) {
      op.redispatchBoxed(keys & kBelowComposites, stack);
      return;
    }
    const std::size_t below = stack->size() - op.schema().arguments().size();
    if (always_ || facts_of(op).opaque ||
        (without_gradients_ && !needs_gradients(stack->at(below))) || readers().has(op)) {
      listener->call(op, keys, stack);
      return;
    }
    const c10::Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
    const std::uint64_t before = listener->point();
    try {
      op.redispatchBoxed(keys & kBelowComposites, stack);
    } catch (const c10::Error& error) {
      // mutant: barrier-reader
      if (!asks_for_bytes(error) || listener->had_effects(before)) throw;
      // mutant: barrier-reader-kept
      readers().add(op);
      stack->resize(below);
      stack->insert(stack->end(), arguments.begin(), arguments.end());
      listener->call(op, keys, stack);
    }
  }

 private:
  static bool needs_gradients(const c10::IValue& value) {
    return at::GradMode::is_enabled() && value.isTensor() && value.toTensor().defined() &&
           value.toTensor().requires_grad();
  }

  const bool always_, without_gradients_;
};

// Whether a kernel for autograd that is not libtorch's may do all that the operator does.
bool has_own_autograd(const c10::OperatorHandle& op) {
  constexpr std::array kKeys{c10::DispatchKey::Autograd, c10::DispatchKey::AutogradCPU,
                             c10::DispatchKey::AutogradCUDA};
  return facts_of(op).opaque && !facts_of(op).collective &&
         std::ranges::any_of(kKeys,
                             [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); });
}

bool has_kernel(const c10::OperatorHandle& op) {
  if (!op.hasSchema() || !is_boxable(op) ||
      (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
       !has_own_autograd(op)))
    return false;
  const std::string& name = op.operator_name().name;
  return !name.starts_with("prim::") && !name.starts_with("profiler::") &&
         std::find(kCalledOften.begin(), kCalledOften.end(), name) == kCalledOften.end() &&
         (!is_view_by_schema(op) || reads_always(op));
}

}  // namespace

bool has_composites() noexcept { return registered_any.load(std::memory_order_acquire); }

void register_composites() {
  struct Registered {
    std::unordered_set<std::string> operators;
    std::vector<c10::RegistrationHandleRAII> handles;
  };
  static auto* const registered = new Registered;  // kernels stay to the end of the process
  (void)readers();  // made here, so that no other thread makes it while this process forks
  auto& dispatcher = c10::Dispatcher::singleton();
  if (registered->handles.empty())
    registered->handles.push_back(dispatcher.registerFallback(
        kCompositeKey, c10::KernelFunction::makeFallthrough(), "berth's composites of steps"));
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    std::string full = name.name + '.' + name.overload_name;
    if (registered->operators.contains(full)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !has_kernel(*op)) continue;
    registered->handles.push_back(dispatcher.registerImpl(
        name, kCompositeKey,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<CompositeKernel>(*op)),
        std::nullopt, nullptr, "berth's composites of steps"));
    registered->operators.insert(std::move(full));
  }
  registered_any.store(true, std::memory_order_release);
}

}  // namespace berth::torch::step
