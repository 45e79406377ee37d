#include "csrc/torch/shared/step_limit.h"

#include "csrc/torch/shared/loaded_symbol.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

namespace berth::torch {
namespace {

long most_steps() noexcept {
  const char* const text = std::getenv("BERTH_STANDIN_STEPS");
  if (text == nullptr || std::getenv("BERTH_STANDIN_LAUNCHED") == nullptr) return 0;
  return std::strtol(text, nullptr, 10);
}

const long most = most_steps();  // as the program was started
std::atomic<long> made{0};

// In Python's main thread, which holds its lock.
int raise_exit(void*) {
  const auto raise = loaded_symbol<void (*)(void*)>("PyErr_SetNone");
  void** const kind = loaded_symbol<void**>("PyExc_SystemExit");
  if (raise == nullptr || kind == nullptr) return 0;
  raise(*kind);
  return -1;
}

}  // namespace

void count_marked_step() noexcept {
  if (most <= 0 || made.fetch_add(1, std::memory_order_relaxed) + 1 != most) return;
  const auto is_there = loaded_symbol<int (*)()>("Py_IsInitialized");
  const auto add = loaded_symbol<int (*)(int (*)(void*), void*)>("Py_AddPendingCall");
  if (is_there == nullptr || add == nullptr || is_there() == 0) std::exit(0);
  add(raise_exit, nullptr);
}

}  // namespace berth::torch
