#include "csrc/torch/step/byte_access.h"

#include "csrc/torch/step/backward_nodes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/detach.h>
#include <torch/library.h>

namespace berth::torch::step {

namespace {

void do_nothing(const at::Tensor&) {}

thread_local bool aside = false;

}  // namespace

bool is_aside() noexcept { return aside; }

void ask_for_bytes(std::string_view how, const at::Tensor& tensor) {
  const auto op = c10::Dispatcher::singleton().findSchema({std::string(how), ""});
  if (op) op->typed<void(const at::Tensor&)>().call(tensor.detach());
}

void register_byte_access() {
  // Another library with berth in it may have done so, and may be unloaded no more than this one.
  if (c10::Dispatcher::singleton().findSchema({std::string(kReadBytes), ""})) return;
  auto* const library =
      new ::torch::Library(::torch::Library::FRAGMENT, "berth", std::nullopt, __FILE__, __LINE__);
  library->def("read_generators() -> ()");
  library->impl("read_generators",
                ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, [] {}));
  library->def("set_aside(bool on) -> ()");
  library->impl("set_aside", ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                               [](bool on) { aside = on; }));
  library->def("run_as_written(str why) -> ()");
  library->impl("run_as_written", ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                    [](std::string_view) {}));
  library->def("watch_backward() -> ()");
  library->impl("watch_backward", ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                    [] { watch_backward_nodes(); }));
  for (const char* schema :
       {"read_bytes(Tensor self) -> ()", "share_bytes(Tensor(a!) self) -> ()",
        "give_pointer(Tensor self) -> ()", "compare_storage(Tensor self) -> ()"}) {
    library->def(schema);
    const std::string_view text = schema;
    library->impl(
        std::string(text.substr(0, text.find('('))).c_str(),
        ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(do_nothing)));
  }
}

}  // namespace berth::torch::step
