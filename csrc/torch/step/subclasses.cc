#include "csrc/torch/step/subclasses.h"

#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/operator_kernels.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/tensors.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

class SubclassKernel final : public c10::OperatorKernel {
 public:
  explicit SubclassKernel(c10::SafeKernelFunction former) : former_(std::move(former)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
    if (c10::impl::tls_is_dispatch_key_included(kTapKey) && Tap::listener() != nullptr &&
        passes(last_of(*stack, op.schema().arguments().size())) == Passes::kForOthers)
      run_in_python(op, keys.remove(kCompositeKey), stack);
    else
      former_.callBoxed(op, keys, stack);
  }

 private:
  const c10::SafeKernelFunction former_;
};

bool reaches_python(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return op.hasSchema() && is_boxable(op) && !name.starts_with("prim::") &&
         !name.starts_with("profiler::") && !op.hasKernelForDispatchKey(c10::DispatchKey::Python) &&
         op.hasComputedKernelForDispatchKey(c10::DispatchKey::Python) &&
         (facts_of(op).view ||
          op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd));
}

}  // namespace

void register_subclasses() {
  struct Registered {
    std::unordered_set<std::string> operators;
    std::vector<c10::RegistrationHandleRAII> handles;
  };
  static auto* const registered = new Registered;  // kernels stay to the end of the process
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    std::string full = name.name + '.' + name.overload_name;
    if (registered->operators.contains(full)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !reaches_python(*op)) continue;
    registered->handles.push_back(dispatcher.registerImpl(
        name, c10::DispatchKey::Python,
        c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<SubclassKernel>(
            op->getComputedKernelForDispatchKey(c10::DispatchKey::Python))),
        std::nullopt, nullptr, "berth's subclasses of steps"));
    registered->operators.insert(std::move(full));
  }
}

}  // namespace berth::torch::step
