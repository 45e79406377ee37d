#include "csrc/torch/step/operator_kernels.h"

#include "csrc/torch/step/operator_facts.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace berth::torch::step {

namespace {

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

// Some composite operators have a kernel of their own on some devices.
constexpr std::array kDevices{c10::DispatchKey::CPU, c10::DispatchKey::CUDA};

// Registered for one operator; owns what stood there.
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(OperatorKernels::Front front, c10::DispatchKey key, Former former, bool composite)
      : front_(front),
        below_(c10::DispatchKeySet::FULL_AFTER, key),
        former_(std::move(former)),
        composite_(composite) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    if (composite_ && !op.hasKernelForDispatchKey((keys & below_).highestPriorityTypeId()))
      op.redispatchBoxed(keys & below_, stack);
    else
      front_(op, keys, stack, former_);
  }

 private:
  const OperatorKernels::Front front_;
  const c10::DispatchKeySet below_;
  const Former former_;
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

// Whether libtorch has a kernel on the key for a view. In a thread that has the key it would be
// taken for all tensors, and subclasses of Python's would come back as plain ones.
bool stands_in_the_way(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasSchema() && facts_of(op).view && is_boxable(op) && op.hasKernelForDispatchKey(key);
}

// libtorch warns of what it thinks are kernels replaced by mistake.
class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

class Arrivals final : public c10::OpRegistrationListener {
 public:
  explicit Arrivals(std::atomic<bool>& came) : came_(came) {}
  void onOperatorRegistered(const c10::OperatorHandle&) override { came_ = true; }
  void onOperatorDeregistered(const c10::OperatorHandle&) override {}

 private:
  std::atomic<bool>& came_;
};

}  // namespace

// Names of dimensions cannot.
bool is_boxable(const c10::OperatorHandle& op) {
  const std::string& overload = op.operator_name().overload_name;
  return overload.find("names") == std::string::npos &&
         overload.find("imname") == std::string::npos;
}

void OperatorKernels::register_new() {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (handles_.empty())
    handles_.push_back(
        dispatcher.addRegistrationListener(std::make_unique<Arrivals>(operators_came_)));
  if (!operators_came_.exchange(false)) return;
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard quiet(&none);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    std::string full = name.name + '.' + name.overload_name;
    if (operators_.contains(full)) continue;
    const auto op = dispatcher.findSchema(name);
    const bool asked = also_ != nullptr && full == also_;
    if (!op || (!asked && !is_of_steps(*op) && !stands_in_the_way(*op, key_))) continue;
    // The one key whose fallback lets calls pass, and that all threads have: what cannot be put on
    // a stack would fail in programs that have no step.
    const bool everywhere = key_ == c10::DispatchKey::BackendSelect;
    if (everywhere && !is_boxable(*op)) continue;
    Former former;
    const bool has = op->hasKernelForDispatchKey(key_);
    if (has ? !op->isKernelFallthroughKernel(key_)
            : !everywhere && op->hasComputedKernelForDispatchKey(key_))
      former.emplace(op->getComputedKernelForDispatchKey(key_), !has);
    handles_.push_back(
        dispatcher.registerImpl(name, key_,
                                c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(
                                    front_, key_, std::move(former), is_composite(*op))),
                                std::nullopt, nullptr, name_));
    operators_.insert(std::move(full));
  }
}

}  // namespace berth::torch::step
