#include "csrc/torch/recording/module_ranges.h"

#include "csrc/torch/recording/operator_recorder.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/shared/loaded_symbol.h"
#include "csrc/torch/step/tap.h"

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
// Optimizers tell what no operator shows: a sharded parameter is a leaf only above the tensor that
// lies on the device (its `_local_tensor`). What state they keep is told in their first two steps.
// Not within a step program, which may have no bytes there yet, and may not be asked for them.
//
// A dry run may end the program after some steps of an optimizer (BERTH_STANDIN_STEPS), as
// sys.exit() would: in a job of several ranks, once all have met that far. And at the end of one,
// which comes sooner than any GPU would let it, threads of autograd that give Python's objects back
// get a moment: Python ends threads that come to it while it goes away, and where they are in the
// middle of C++ the process with them.
//
// The numbers are the addresses of begin_module(), end_module(), tell() and in_step_program():
// PyTorch's own ranges would run operators, which would be recorded as well.
constexpr char kProgram[] = R"PYTHON(
def _berth_name_modules(begin_address, end_address, tell_address, in_step_address):
    import ctypes
    import os
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
    tell = ctypes.PYFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int)(tell_address)
    in_step_program = ctypes.PYFUNCTYPE(ctypes.c_int)(in_step_address)
    compiling = torch.compiler.is_compiling
    names = weakref.WeakKeyDictionary()
    told = weakref.WeakKeyDictionary()
    PARAMETER, GRADIENT, STATE = %d, %d, %d
    open_ranges = threading.local()

    def tell_roles(optimizer, arguments, named):
        if compiling() or in_step_program():
            return
        told[optimizer] = told.get(optimizer, 0) + 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                tell_tensor(parameter, PARAMETER)
                tell_tensor(parameter.grad, GRADIENT)
                if told[optimizer] <= 2:
                    state = optimizer.state.get(parameter)
                    for value in state.values() if isinstance(state, dict) else ():
                        tell_tensor(value, STATE)

    def tell_tensor(tensor, role):
        tensor = getattr(tensor, "_local_tensor", tensor)
        if isinstance(tensor, torch.Tensor):
            try:
                tell(tensor.untyped_storage().data_ptr(), role)
            except (RuntimeError, NotImplementedError):  # it has no memory of that kind
                pass

    def stop_after_steps(most):
        made = weakref.WeakKeyDictionary()

        def stepped(optimizer, arguments, named):
            made[optimizer] = made.get(optimizer, 0) + 1
            if made[optimizer] >= most:
                leave_job()
                raise SystemExit(0)

        register_optimizer_step_post_hook(stepped)

    def leave_job():
        distributed = torch.distributed
        if not distributed.is_available() or not distributed.is_initialized():
            return
        torch.cuda.synchronize()
        atexit.register(lambda: distributed.is_initialized() and distributed.destroy_process_group())

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
    from torch.optim.optimizer import register_optimizer_step_post_hook
    register_optimizer_step_post_hook(tell_roles)
    if "BERTH_STANDIN_LAUNCHED" in os.environ:
        import atexit
        import time
        atexit.register(time.sleep, 0.02)
        steps = int(os.environ.get("BERTH_STANDIN_STEPS", "0"))
        if steps > 0:
            stop_after_steps(steps)
    sys._berth_modules = True


try:
    _berth_name_modules(%llu, %llu, %llu, %llu)
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

void tell(std::uint64_t address, int role) noexcept {
  tell_role(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)),
            static_cast<trace::RoleKind>(role));
}

int in_step_program() noexcept { return step::Tap::active() ? 1 : 0; }

// In Python's main thread, which holds its lock.
int in_python(void*) {
  const auto run = loaded_symbol<int (*)(const char*, void*)>("PyRun_SimpleStringFlags");
  const auto get = loaded_symbol<void* (*)(const char*)>("PySys_GetObject");
  const auto number = [](auto* function) {
    return static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(function));
  };
  char program[sizeof kProgram + 128];
  std::snprintf(program, sizeof program, kProgram, static_cast<int>(trace::RoleKind::kParameter),
                static_cast<int>(trace::RoleKind::kGradient),
                static_cast<int>(trace::RoleKind::kOptimizer), number(&begin_module),
                number(&end_module), number(&tell), number(&in_step_program));
  if (run == nullptr || get == nullptr || run(program, nullptr) != 0 ||
      get("_berth_modules") != nullptr)
    done.store(true);
  asked.store(false);
  return 0;
}

}  // namespace

void name_modules() noexcept {
  if (done.load(std::memory_order_relaxed) || asked.exchange(true)) return;
  const auto is_there = loaded_symbol<int (*)()>("Py_IsInitialized");
  const auto add = loaded_symbol<int (*)(int (*)(void*), void*)>("Py_AddPendingCall");
  if (is_there == nullptr || add == nullptr || tries.fetch_add(1) >= kMostTries) {
    done.store(true);
  } else if (is_there() != 0 && add(in_python, nullptr) == 0) {
    return;  // asked
  }
  asked.store(false);
}

}  // namespace berth::torch
