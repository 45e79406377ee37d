#include "csrc/torch/module_ranges.h"

#include "csrc/torch/backend.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

namespace berth::torch {
namespace {

// Leaves sys._berth_modules behind once it is done. A module that is called by none is a root, and
// names those below it; one that was named before keeps its name where it is called alone, as in
// checkpoints. What is no pure Python call (a module that is compiled or traced) has no ranges.
//
// A dry run may end the program after some steps of an optimizer (BERTH_STANDIN_STEPS), as
// sys.exit() would.
//
// The two numbers are the addresses of begin_module() and end_module(): PyTorch's own ranges would
// run operators, which would be recorded as well.
constexpr char kProgram[] = R"PYTHON(
def _berth_name_modules(begin_address, end_address):
    import ctypes
    import sys
    torch = sys.modules.get("torch")
    nn = sys.modules.get("torch.nn.modules.module")
    if not hasattr(nn, "register_module_forward_hook") or not hasattr(torch, "compiler"):
        return
    import threading
    import weakref
    # Without Python's lock being let go: they do not wait.
    begin = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p)(begin_address)
    end = ctypes.PYFUNCTYPE(None, ctypes.c_uint64)(end_address)
    compiling = torch.compiler.is_compiling
    names = weakref.WeakKeyDictionary()
    open_ranges = threading.local()

    def stop_after_steps():
        import os
        import weakref
        most = int(os.environ.get("BERTH_STANDIN_STEPS", "0"))
        if most <= 0:
            return
        made = weakref.WeakKeyDictionary()

        def stepped(optimizer, arguments, named):
            made[optimizer] = made.get(optimizer, 0) + 1
            if made[optimizer] >= most:
                raise SystemExit(0)

        from torch.optim.optimizer import register_optimizer_step_post_hook
        register_optimizer_step_post_hook(stepped)

    def name_of(module, called_by_none):
        name = names.get(module)
        if name is None and called_by_none:
            for inner, child in module.named_modules():
                names.setdefault(child, (inner or type(child).__name__).encode())
            name = names.get(module)
        return name or type(module).__name__.encode()

    def before(module, arguments):
        if compiling():
            return None
        try:
            stack = open_ranges.stack
        except AttributeError:
            stack = open_ranges.stack = []
        stack.append(begin(name_of(module, not stack)))
        return None

    def after(module, arguments, result):
        if not compiling() and getattr(open_ranges, "stack", None):
            end(open_ranges.stack.pop())
        return None

    nn.register_module_forward_pre_hook(before)
    nn.register_module_forward_hook(after, always_call=True)
    stop_after_steps()
    sys._berth_modules = True


try:
    _berth_name_modules(%llu, %llu)
finally:
    del _berth_name_modules
)PYTHON";

constexpr int kMostTries = 10'000;
std::atomic<int> tries{0};
std::atomic<bool> done{false}, asked{false};

std::atomic<std::uint64_t> last_range{std::uint64_t{1} << 62};  // range_numbers counts from 1

// Of all traces that are being written; the same number in each.
std::uint64_t begin_module(const char* name) noexcept {
  const std::uint64_t number = last_range.fetch_add(1, std::memory_order_relaxed);
  for (int n = 0; n < kMaxBackends; ++n) {
    Backend* const one = backend(n);
    Recorder* const recorder = one == nullptr ? nullptr : one->recorder();
    if (recorder == nullptr) continue;
    recorder->append(trace::RangeBegin{
        .range = number, .name = recorder->intern(name), .kind = trace::RangeKind::kModule});
  }
  return number;
}

void end_module(std::uint64_t number) noexcept {
  for (int n = 0; n < kMaxBackends; ++n) {
    Backend* const one = backend(n);
    Recorder* const recorder = one == nullptr ? nullptr : one->recorder();
    if (recorder != nullptr) recorder->append(trace::RangeEnd{.range = number});
  }
}

template <class Function>
Function found(const char* name) noexcept {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

// In Python's main thread, which holds its lock.
int in_python(void*) {
  const auto run = found<int (*)(const char*, void*)>("PyRun_SimpleStringFlags");
  const auto get = found<void* (*)(const char*)>("PySys_GetObject");
  char program[sizeof kProgram + 64];
  std::snprintf(program, sizeof program, kProgram,
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(&begin_module)),
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(&end_module)));
  if (run == nullptr || get == nullptr || run(program, nullptr) != 0 ||
      get("_berth_modules") != nullptr)
    done.store(true);
  asked.store(false);
  return 0;
}

}  // namespace

void name_modules() noexcept {
  if (done.load(std::memory_order_relaxed) || asked.exchange(true)) return;
  const auto is_there = found<int (*)()>("Py_IsInitialized");
  const auto add = found<int (*)(int (*)(void*), void*)>("Py_AddPendingCall");
  if (is_there == nullptr || add == nullptr || tries.fetch_add(1) >= kMostTries) {
    done.store(true);
  } else if (is_there() != 0 && add(in_python, nullptr) == 0) {
    return;  // asked
  }
  asked.store(false);
}

}  // namespace berth::torch
