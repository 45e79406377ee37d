#include "csrc/torch/step/backward_nodes.h"

#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace berth::torch::step {

namespace {

// libtorch's own and torchvision's, which call operators alone.
constexpr std::array<std::string_view, 6> kCallOperators = {
    "AllToAllSingle>", "AllGatherIntoTensor>",         "ReduceScatterTensor>",
    "CrossMapLRN2d>",  "MaxPool3dAutogradFunctionTS>", "<vision::ops::"};

// Libraries of operators that come with libtorch and the torch package. Their backward functions
// are libtorch's or Python's.
constexpr std::array kOfLibtorch = std::to_array<std::string_view>(
    {"_c10d_", "_quantized::", "_test::", "c10d::", "c10d_functional::", "debug_mode_ops::",
     "export::", "flex_lib::", "inductor::", "mkldnn::", "onnx::", "onnx_symbolic::", "prepacked::",
     "prims::", "quantized::", "rngprims::", "sparse::", "streams::"});

// The gradients that a node takes, which it may read by pointers.
struct Gradients final : at::ObserverContext {
  std::deque<Spills::Use> there;
};

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& node) {
  const bool in_step = c10::impl::tls_is_dispatch_key_included(kTapKey) && Tap::active();
  if (!in_step && !Spills::on()) return nullptr;
  const std::string_view name = node.name();
  if (!name.starts_with("torch::autograd::CppNode<") ||
      std::ranges::any_of(kCallOperators, [&](std::string_view one) {
        return name.find(one) != std::string_view::npos;
      }))
    return nullptr;
  if (in_step)
    if (const auto op = c10::Dispatcher::singleton().findSchema({std::string(kRunAsWritten), ""}))
      op->typed<void(c10::string_view)>().call(
          fmt::format("{} is a backward function of the program's own in C++", name));
  if (!Spills::on()) return nullptr;
  auto gradients = std::make_unique<Gradients>();
  for (const c10::IValue& one : node.inputs())
    for_each_tensor(one, form_of(one), [&](const at::Tensor& tensor) {
      // mutant: spills-gradients
      if (tensor.defined() && tensor.has_storage()) gradients->there.emplace_back(tensor.storage());
    });
  return gradients;
}

void ends(const at::RecordFunction& /*node*/, at::ObserverContext* /*gradients*/) {}

}  // namespace

void watch_backward_nodes() {
  static std::atomic<bool> watched{false};
  if (watched.exchange(true)) return;
  // For all threads, and for good: a step may begin or end within a backward pass, whose list of
  // callbacks for one thread is a copy.
  at::addGlobalCallback(at::RecordFunctionCallback(begins, ends)
                            .needsInputs(true)
                            .scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

void watch_backward_nodes_of_operators() {
  constexpr std::array kAutograd{c10::DispatchKey::Autograd, c10::DispatchKey::AutogradCPU,
                                 c10::DispatchKey::AutogradCUDA,
                                 c10::DispatchKey::CompositeImplicitAutograd};
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasSchema() || !facts_of(*op).opaque) continue;
    const bool own = std::ranges::any_of(
        kOfLibtorch, [&](std::string_view library) { return name.name.starts_with(library); });
    if (!own && std::ranges::any_of(kAutograd, [&](c10::DispatchKey key) {
          return op->hasKernelForDispatchKey(key);
        }))
      watch_backward_nodes();
  }
}

}  // namespace berth::torch::step
