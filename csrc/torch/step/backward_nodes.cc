#include "csrc/torch/step/backward_nodes.h"

#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/operator_facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

namespace berth::torch::step {

namespace {

std::atomic<bool> watched{false};

// libtorch's own and torchvision's, which call operators alone.
constexpr std::array<std::string_view, 6> kCallOperators = {
    "AllToAllSingle>", "AllGatherIntoTensor>",         "ReduceScatterTensor>",
    "CrossMapLRN2d>",  "MaxPool3dAutogradFunctionTS>", "<vision::ops::"};

// Libraries of operators that come with libtorch.
constexpr std::array<std::string_view, 9> kOfLibtorch = {
    "_c10d_",   "_quantized::", "_test::",     "c10d::",  "inductor::",
    "mkldnn::", "prepacked::",  "quantized::", "sparse::"};

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& node) {
  const std::string_view name = node.name();
  if (!name.starts_with("torch::autograd::CppNode<") ||
      std::ranges::any_of(kCallOperators, [&](std::string_view one) {
        return name.find(one) != std::string_view::npos;
      }))
    return nullptr;
  const auto op = c10::Dispatcher::singleton().findSchema({std::string(kRunAsWritten), ""});
  if (op)
    op->typed<void(c10::string_view)>().call(
        fmt::format("{} is a backward function of the program's own in C++", name));
  return nullptr;
}

}  // namespace

void watch_backward_nodes() noexcept { watched.store(true, std::memory_order_release); }

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

BackwardNodes::BackwardNodes() {
  if (!watched.load(std::memory_order_acquire)) return;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begins).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

BackwardNodes::~BackwardNodes() {
  if (handle_ != 0) at::removeCallback(handle_);
}

}  // namespace berth::torch::step
