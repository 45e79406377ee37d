#include "csrc/torch/step/tap.h"

#include "csrc/core/check.h"
#include "csrc/core/setup_mutex.h"
#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/tensors.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace berth::torch::step {

namespace {

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kTapKey);

std::atomic<OperatorListener*> current{nullptr};

// What stood on the key for an operator: filled before its kernel of ours is registered, then read
// only.
struct Former {
  std::optional<c10::SafeKernelFunction> kernel;
};

struct Registered {
  std::unordered_set<std::string> operators;
  std::vector<c10::RegistrationHandleRAII> handles;
};

SetupMutex registration_mutex;
// Under the lock. Never destroyed: operators run in static destructors, too.
Registered* registered = nullptr;

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

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// Some composite operators have a kernel of their own on some devices.
constexpr std::array kDevices{c10::DispatchKey::CPU, c10::DispatchKey::CUDA};

// Registered for one operator; owns what stood there.
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(Former former, bool composite) : former_(std::move(former)), composite_(composite) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    if (former_.kernel && carries_key(*stack, op.schema().arguments().size())) [[unlikely]] {
      former_.kernel->callBoxed(op, keys, stack);
      return;
    }
    if (composite_ && !op.hasKernelForDispatchKey((keys & kBelow).highestPriorityTypeId())) {
      op.redispatchBoxed(keys & kBelow, stack);
      return;
    }
    OperatorListener* const listener = current.load(std::memory_order_acquire);
    if (listener == nullptr) [[unlikely]]
      run_kernel(op, keys, stack);
    else
      listener->call(op, keys, stack);
  }

 private:
  Former former_;
  const bool composite_;
};

// Composite operators run as those that they consist of, where a device has no kernel for them;
// views do nothing; the profiler's are no work.
bool is_of_steps(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const auto has_kernel = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  return op.hasSchema() && (!is_composite(op) || std::ranges::any_of(kDevices, has_kernel)) &&
         !name.starts_with("prim::") && !name.starts_with("profiler::") && !facts_of(op).view;
}

// libtorch warns of what it thinks are kernels replaced by mistake.
class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// Whether operators came since the last look: to go through all of them takes a millisecond.
std::atomic<bool> operators_came{true};

class Arrivals final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override { operators_came = true; }
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}
};

void register_new_operators() {
  const std::lock_guard lock(registration_mutex);
  auto& dispatcher = c10::Dispatcher::singleton();
  if (registered == nullptr) {
    BERTH_CHECK(::pthread_atfork(
                    nullptr, nullptr, +[] { current.store(nullptr); }) == 0,
                kSystem, "pthread_atfork has no memory left to register berth's handlers");
    register_byte_access();
    registered = new Registered();
    registered->handles.push_back(dispatcher.addRegistrationListener(std::make_unique<Arrivals>()));
  }
  if (!operators_came.exchange(false)) return;
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard quiet(&none);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    std::string key = name.name + '.' + name.overload_name;
    if (registered->operators.contains(key)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !is_of_steps(*op)) continue;
    Former former;
    if (op->hasKernelForDispatchKey(kTapKey) || op->hasComputedKernelForDispatchKey(kTapKey))
      former.kernel.emplace(op->getComputedKernelForDispatchKey(kTapKey));
    registered->handles.push_back(
        dispatcher.registerImpl(name, kTapKey,
                                c10::KernelFunction::makeFromBoxedFunctor(
                                    std::make_unique<Kernel>(std::move(former), is_composite(*op))),
                                std::nullopt, nullptr, "berth's tap of steps"));
    registered->operators.insert(std::move(key));
  }
}

}  // namespace

void run_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard off(kTapKey);
  op.redispatchBoxed(keys & kBelow, stack);
}

Tap::Tap(OperatorListener& listener) {
  register_new_operators();
  current.store(&listener, std::memory_order_release);
  c10::impl::tls_set_dispatch_key_included(kTapKey, true);
}

Tap::~Tap() {
  c10::impl::tls_set_dispatch_key_included(kTapKey, false);
  current.store(nullptr, std::memory_order_release);
}

bool Tap::active() noexcept { return current.load(std::memory_order_acquire) != nullptr; }

}  // namespace berth::torch::step
