#include "csrc/torch/step/other_threads.h"

#include "csrc/core/setup_mutex.h"
#include "csrc/torch/step/composites.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/operator_kernels.h"
#include "csrc/torch/step/spill_parts.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace berth::torch::step {

namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::BackendSelect;
constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);

std::atomic<OperatorListener*> listener{nullptr};

// Held by threads that are with the listener. Never destroyed, and new in a forked child, in which
// there is no step.
std::shared_mutex* visits = new std::shared_mutex;

SetupMutex registration_mutex;
OperatorKernels* kernels = nullptr;  // under the lock

thread_local bool within = false;  // a call that was told of

class Within {
 public:
  Within() { within = true; }
  ~Within() { within = false; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
};

// Whether the thread is a step's, runs a schedule, or does a part of an operator.
bool is_told_elsewhere() {
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  return (local.included_ | local.excluded_).has(kTapKey) || at::in_parallel_region();
}

bool is_told_of(const c10::OperatorHandle& op) {
  return (Spills::on() || listener.load(std::memory_order_acquire) != nullptr) && !within &&
         !is_told_elsewhere() && !facts_of(op).view;
}

void tell(const c10::OperatorHandle& op, const c10::Stack& stack) {
  const std::shared_lock visit(*visits);
  if (OperatorListener* const there = listener.load(std::memory_order_acquire); there != nullptr)
    there->called_elsewhere(op, stack);
}

void front(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack,
           const Former& former) {
  const auto run = [&](c10::Stack* part) {
    if (former)
      former->kernel.callBoxed(op, keys, part);
    else
      op.redispatchBoxed(keys & kBelow, part);
  };
  if (!is_told_of(op)) {
    run(stack);
    return;
  }
  OtherThreads::see_composites();
  // What an operator that nobody knows uses may be no argument of its.
  std::optional<Within> here;
  // mutant: spills-elsewhere
  if (!facts_of(op).opaque) here.emplace();
  tell(op, *stack);
  run_with_bytes(op, stack, run);
}

}  // namespace

void OtherThreads::see() {
  Tap::prepare();
  const std::lock_guard lock(registration_mutex);
  if (kernels == nullptr) {
    (void)::pthread_atfork(nullptr, nullptr, [] {
      listener.store(nullptr);
      visits = new std::shared_mutex;
    });
    kernels = new OperatorKernels(kKey, front, "berth's view of other threads");
  }
  if (kernels->behind()) kernels->register_new();
}

void OtherThreads::see_composites() noexcept {
  if (has_composites() && !c10::impl::tls_is_dispatch_key_included(kCompositeKey))
    c10::impl::tls_set_dispatch_key_included(kCompositeKey, true);
}

void OtherThreads::run_composite(const c10::OperatorHandle& op, c10::Stack* stack,
                                 const std::function<void(c10::Stack*)>& run) {
  if (!is_told_of(op)) {
    run(stack);
    return;
  }
  tell(op, *stack);
  Spills::Use use(op, *stack);
  run(stack);
  use.note_results(op, *stack);
}

OtherThreads::OtherThreads(OperatorListener& one) {
  {
    const std::lock_guard lock(registration_mutex);
    if (kernels != nullptr && kernels->behind()) kernels->register_new();
  }
  listener.store(&one, std::memory_order_release);
}

OtherThreads::~OtherThreads() {
  listener.store(nullptr, std::memory_order_release);
  const std::unique_lock none(*visits);
}

}  // namespace berth::torch::step
