#include "csrc/torch/step/tap.h"

#include "csrc/core/check.h"
#include "csrc/core/setup_mutex.h"
#include "csrc/torch/step/backward_nodes.h"
#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/composites.h"
#include "csrc/torch/step/fused_groups.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/operator_kernels.h"
#include "csrc/torch/step/spill_parts.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/subclasses.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/util/ScopeExit.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

namespace berth::torch::step {

namespace {

// What lies below the kernel of ours that has the call.
c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet kBelowTap(c10::DispatchKeySet::FULL_AFTER, kTapKey);
  constexpr c10::DispatchKeySet kBelowComposites(c10::DispatchKeySet::FULL_AFTER, kCompositeKey);
  return keys & (keys.has(kCompositeKey) ? kBelowComposites : kBelowTap);
}

// Whether a mode of the program's gets the call as it is.
bool goes_to_mode(const c10::OperatorHandle& op) {
  return is_under_mode() &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

std::atomic<OperatorListener*> current{nullptr};
std::atomic<OperatorListener*> between_steps{nullptr};

SetupMutex registration_mutex;
// Changed under the lock. Never destroyed: operators run in static destructors, too.
std::atomic<OperatorKernels*> kernels{nullptr};

bool carries_key(const c10::Stack& stack, std::size_t arguments) {
  for (std::size_t n = stack.size() - arguments; n < stack.size(); ++n) {
    const c10::IValue& value = stack[n];
    if (value.isTensor()) {
      if (value.toTensor().key_set().has(kTapKey)) return true;
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& one : value.toListRef())
        if (one.isTensor() && one.toTensor().key_set().has(kTapKey)) return true;
    }
  }
  return false;
}

// What libtorch's fallback for tensors of zeros without memory does with what the call only reads,
// by operators that are seen. A call that writes to one stays as it is, and raises its error.
void give_memory(const c10::OperatorHandle& op, c10::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const auto zeros = [](const at::Tensor& like) {
    return at::zeros({}, like.options()).expand(like.sizes());
  };
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    c10::IValue& value = stack[stack.size() - arguments.size() + n];
    if (arguments[n].alias_info() != nullptr) continue;
    if (value.isTensor()) {
      if (value.toTensor()._is_zerotensor()) value = zeros(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& one : value.toTensorVector())
        list.push_back(one._is_zerotensor() ? zeros(one) : one);
      value = std::move(list);
    }
  }
}

thread_local bool untold = false;         // inside of run_kernel_of_others()
thread_local Autocast autocast_next = 0;  // of run_under_autocast(), for the call at hand

void register_kernels();

void front(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack,
           const Former& former) {
  // Who calls a kernel of one key, as libtorch's dispatcher in Python does, gives all keys.
  keys = keys.remove(kCompositeKey);
  const auto carries = [&] { return carries_key(*stack, op.schema().arguments().size()); };
  bool without_memory = carries();
  if (without_memory && former && former->fallback && !untold &&
      current.load(std::memory_order_acquire) != nullptr) [[unlikely]] {
    give_memory(op, *stack);
    without_memory = carries();
  }
  if (without_memory) [[unlikely]] {
    run_with_bytes(op, stack, [&](c10::Stack* part) {
      if (former)
        former->kernel.callBoxed(op, keys, part);
      else
        op.redispatchBoxed(below(keys), part);
    });
    return;
  }
  if (autocast_next != 0) [[unlikely]] {
    const AutocastGuard inside(std::exchange(autocast_next, 0));
    std::optional<c10::impl::ExcludeDispatchKeyGuard> off;
    if (!untold) off.emplace(c10::DispatchKeySet(kTapKey));
    op.redispatchBoxed(below(keys), stack);
    return;
  }
  const OperatorFacts& facts = facts_of(op);
  if (untold) [[unlikely]] {
    const auto run = [&](c10::Stack* part) { op.redispatchBoxed(below(keys), part); };
    facts.view ? run(stack) : run_with_bytes(op, stack, run);
    if (facts.view) Spills::Use::note_view(*stack);
    return;
  }
  OperatorListener* const listener = current.load(std::memory_order_acquire);
  // mutant: barrier-late-operators
  if (listener != nullptr && kernels.load(std::memory_order_acquire)->behind()) [[unlikely]]
    register_kernels();
  c10::Storage compared;
  if (facts.compares && stack->back().toTensor().has_storage()) [[unlikely]]
    compared = stack->back().toTensor().storage();
  if (facts.view && listener != nullptr && goes_to_mode(op)) [[unlikely]]
    run_in_python(op, keys, stack);
  else if (facts.view)
    op.redispatchBoxed(below(keys), stack), Spills::Use::note_view(*stack);
  else if (listener == nullptr) [[unlikely]]
    run_kernel(op, keys, stack);
  else
    listener->call(op, keys, stack);
  if (compared) [[unlikely]]
    Spills::get().let_compare(*compared.unsafeGetStorageImpl());
}

// For operators that have none yet.
void register_kernels() {
  const std::lock_guard lock(registration_mutex);
  OperatorKernels* here = kernels.load(std::memory_order_acquire);
  if (here == nullptr) {
    BERTH_CHECK(::pthread_atfork(
                    nullptr, nullptr, +[] { current.store(between_steps.load()); }) == 0,
                kSystem, "pthread_atfork has no memory left to register berth's handlers");
    register_byte_access();
    here = new OperatorKernels(kTapKey, front, "berth's tap of steps");
    kernels.store(here, std::memory_order_release);
  }
  if (!here->behind()) return;
  here->register_new();
  register_composites();
  register_fused_groups();
  register_subclasses();
  watch_backward_nodes_of_operators();
}

}  // namespace

void run_under_autocast(Autocast autocast, const c10::OperatorHandle& op, c10::Stack* stack) {
  // mutant: barrier-autocast-set
  if (autocast == 0) [[likely]] {
    op.callBoxed(stack);
    return;
  }
  // The dispatcher leaves autocast out and comes to front(), which puts it back.
  autocast_next = autocast;
  const auto over = c10::make_scope_exit([] { autocast_next = 0; });
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet tap(kTapKey), composites(kCompositeKey);
  const c10::impl::ForceDispatchKeyGuard seen(local.included_ | tap,
                                              (local.excluded_ - tap) | composites);
  op.callBoxed(stack);
}

void run_kernel_of_others(const std::function<void()>& call) {
  const bool before = std::exchange(untold, true);
  const auto over = c10::make_scope_exit([&] { untold = before; });
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet tap(kTapKey), composites(kCompositeKey);
  const c10::impl::ForceDispatchKeyGuard seen(local.included_ | tap,
                                              (local.excluded_ - tap) | composites);
  call();
}

void run_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  // mutant: spills-declared
  if (Spills::on() && facts_of(op).declared) [[unlikely]] {
    run_with_bytes(op, stack, [&](c10::Stack* part) {
      run_kernel_of_others([&] { op.redispatchBoxed(below(keys), part); });
    });
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard off(c10::DispatchKeySet(kTapKey) |
                                               c10::DispatchKeySet(kCompositeKey));
  run_with_bytes(op, stack, [&](c10::Stack* part) { op.redispatchBoxed(below(keys), part); });
}

void run_kernel_told(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  if (facts_of(op).collective) {
    run_kernel(op, keys, stack);
    return;
  }
  // What a mode calls is seen.
  if (goes_to_mode(op)) [[unlikely]] {
    run_in_python(op, keys, stack);
    return;
  }
  run_with_bytes(op, stack, [&](c10::Stack* part) { op.redispatchBoxed(below(keys), part); });
}

void run_in_python(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  if (keys.has(kCompositeKey)) {
    op.redispatchBoxed(below(keys), stack);
    return;
  }
  // As libtorch's own fallback for Python does, which hides from our keys what is called there.
  constexpr c10::DispatchKeySet kPython(c10::DispatchKey::Python);
  constexpr c10::DispatchKeySet kAbovePython =
      c10::DispatchKeySet(c10::DispatchKeySet::FULL) -
      c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python) - kPython -
      c10::DispatchKeySet(kTapKey) - c10::DispatchKeySet(kCompositeKey);
  const Spills::Use use(op, *stack);
  const c10::impl::ExcludeDispatchKeyGuard guard(kAbovePython);
  (*c10::impl::getGlobalPyInterpreter())->dispatch(op, stack);
}

void Tap::prepare() { register_kernels(); }

Tap::Tap(OperatorListener& listener) {
  register_kernels();
  current.store(&listener, std::memory_order_release);
  c10::impl::tls_set_dispatch_key_included(kTapKey, true);
  c10::impl::tls_set_dispatch_key_included(kCompositeKey, true);
}

Tap::~Tap() {
  OperatorListener* const between = between_steps.load(std::memory_order_acquire);
  if (between == nullptr) {
    c10::impl::tls_set_dispatch_key_included(kCompositeKey, false);
    c10::impl::tls_set_dispatch_key_included(kTapKey, false);
  }
  current.store(between, std::memory_order_release);
}

void Tap::stay(OperatorListener& between) {
  between_steps.store(&between, std::memory_order_release);
  if (!active()) Tap{between};
}

bool Tap::active() noexcept {
  OperatorListener* const told = listener();
  return told != nullptr && told != between_steps.load(std::memory_order_acquire);
}

OperatorListener* Tap::listener() noexcept { return current.load(std::memory_order_acquire); }

}  // namespace berth::torch::step
