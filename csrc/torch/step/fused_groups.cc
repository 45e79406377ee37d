#include "csrc/torch/step/fused_groups.h"

#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/operator_kernels.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/tensors.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

namespace jit = ::torch::jit;

constexpr std::size_t kGroupKinds = 3;

std::array<c10::Symbol, kGroupKinds> kinds() {
  return {c10::Symbol::prim("TensorExprGroup"), c10::Symbol::prim("FusionGroup"),
          c10::Symbol::prim("oneDNNFusionGroup")};
}

// Libtorch's own operators: never destroyed, since graphs point to them.
auto& originals = *new std::array<std::shared_ptr<jit::Operator>, kGroupKinds>;

void run_seen(jit::Operation& kernel, std::size_t inputs, jit::Stack& stack) {
  if (!c10::impl::tls_is_dispatch_key_included(kTapKey) || stack.size() < inputs) {
    kernel(stack);
    return;
  }
  std::vector<at::Tensor> taken;
  for (const c10::IValue& value : last_of(stack, inputs))
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.has_storage()) taken.push_back(tensor);
    });
  for (const at::Tensor& one : taken) ask_for_bytes(kReadBytes, one);
  std::deque<Spills::Use> there;
  for (const at::Tensor& one : taken) there.emplace_back(one.storage());
  const std::size_t below = stack.size() - inputs;
  kernel(stack);
  // Where nothing takes a result before the backward part, no operator has shown it.
  for (const c10::IValue& value : last_of(stack, stack.size() - below))
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.has_storage())
        Spills::get().see(*tensor.storage().unsafeGetStorageImpl());
    });
}

template <std::size_t kKind>
jit::Operation seen(const jit::Node* node) {
  jit::Operation kernel = originals[kKind]->getOperation(node);
  return [kernel = std::move(kernel), inputs = node->inputs().size()](jit::Stack& stack) mutable {
    run_seen(kernel, inputs, stack);
  };
}

template <std::size_t kKind>
void replace() {
  const c10::Symbol kind = kinds()[kKind];
  const auto& known = jit::getAllOperatorsFor(kind);
  if (known.size() != 1 || originals[kKind] != nullptr) return;
  originals[kKind] = known.front();
  jit::deregisterOperator(originals[kKind]->schema());
  jit::registerOperator(jit::Operator(kind, &seen<kKind>, originals[kKind]->aliasAnalysisKind()));
}

}  // namespace

void register_fused_groups() {
  replace<0>();
  replace<1>();
  replace<2>();
}

}  // namespace berth::torch::step
