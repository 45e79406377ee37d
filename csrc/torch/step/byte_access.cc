#include "csrc/torch/step/byte_access.h"

#include "csrc/torch/step/backward_nodes.h"
#include "csrc/torch/step/profilers.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/narrow.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

namespace berth::torch::step {

namespace {

void do_nothing(const at::Tensor&) {}

// As UntypedStorage.resize_() of Python's does.
at::Tensor resize_storage(const at::Tensor& self, std::int64_t bytes) {
  const c10::Storage storage = self.storage();
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(bytes >= 0, "the size of a storage is ", bytes);
  const auto size = static_cast<std::size_t>(bytes);
  if (storage.device_type() == c10::kCPU) {
    at::native::resize_bytes_cpu(impl, size);
    return self.detach();
  }
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard here(storage.device());
  const std::size_t kept = std::min(size, storage.nbytes());
  c10::DataPtr block(nullptr, storage.device());
  if (size > 0) block = storage.allocator()->allocate(size);
  // On the stream that allocated it and will free what was there.
  const c10::Storage before(c10::Storage::use_byte_size_t(), kept,
                            impl->set_data_ptr(std::move(block)), storage.allocator(), false);
  impl->set_nbytes(size);
  if (kept > 0)
    all_bytes(storage).narrow(0, 0, static_cast<std::int64_t>(kept)).copy_(all_bytes(before));
  return self.detach();
}

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
  for (const char* name :
       {"read_generators", "seed_generators", "order_streams", "wait_for_device"}) {
    library->def((std::string(name) + "() -> ()").c_str());
    library->impl(name, ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, [] {}));
  }
  library->def("set_aside(bool on) -> ()");
  library->impl("set_aside", ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                               [](bool on) { aside = on; }));
  library->def("begin_profile(str why) -> ()");
  library->impl("begin_profile", ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                   [](std::string_view) {
                                                     Spills::get().let_profilers_look();
                                                     make_way_for_profiler();
                                                   }));
  library->def("run_as_written(str why) -> ()");
  library->impl("run_as_written", ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                    [](std::string_view) {}));
  library->def("resize_storage(Tensor(a!) self, int bytes) -> Tensor");
  library->impl("resize_storage", ::torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                    TORCH_FN(resize_storage)));
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
