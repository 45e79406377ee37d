"""Every lock of berth's and how fork treats it: a child finds a lock that another thread of its parent held locked for ever.

A row is a declaration in csrc: a mutex, or a static of a function whose initialisation threads wait for. `text` is the
source that makes it so, and must be in `where`.
"""

import dataclasses
import enum


class Fork(enum.Enum):
    HELD = "is held over the fork, by `text`"
    INSIDE = "is only ever taken under a lock that is held over the fork, named by `text`"
    UNUSED = "is not taken in a child, which `text` sees to"
    REFUSED = "is refused by an error in a child that finds it locked, by `text`"


@dataclasses.dataclass(frozen=True)
class Lock:
    file: str
    name: str
    fork: Fork
    where: str
    text: str
    why: str


ALLOCATOR = ("csrc/runtime/allocator_release.cc", "void Allocator::before_fork() noexcept { state_->mutex.lock(); }")
GONE = ("csrc/cuda/calls.h", "bool cuda_is_over() noexcept;")
GPU_CALLS = ("csrc/cuda/cuda_device.cc", "if (cuda_is_over()) return gone(")
IN_CHILD = ("csrc/trace/recorder.cc", "[[nodiscard]] bool in_child() const noexcept {")
MAKES_GPUS = ("csrc/torch/cuda/cuda_allocator.cc", "mutex_.lock();  // no GPU is made from here on")
HOLDS_GPU = ("csrc/torch/cuda/gpu.cc", "void Gpu::before_fork() noexcept {")
NO_DEVICES = ("csrc/capi/devices.cc", "if (in_forked_child() || index < -1 || index >= kMaxDevices) return nullptr;")
ILP_ASKED = ("csrc/place/portfolio.cc", 'if (options_.engine.starts_with("ilp")) {')
NO_TAP = ("csrc/torch/step/tap.cc", "nullptr, nullptr, +[] { current.store(between_steps.load()); }")
PLANS_ANEW = ("csrc/torch/step/planning_thread.cc", "if (shared_->process == ::getpid()) return;")
ON_CUDA = ("csrc/torch/cuda/cudnn/convolution_choice.cc", "if (!here.is_cuda() ||")
ONE_RESULT = "made once, by the first that needs it"

LOCKS = (
    Lock("csrc/core/file.cc", "mutex_", Fork.UNUSED, "csrc/core/file.cc", "if (limit == 0) return std::nullopt;",
         "the program `berth` alone reads pipes, and its children start other programs"),
    Lock("csrc/core/file.cc", "pipes", Fork.UNUSED, "csrc/core/file.cc", "if (limit == 0) return std::nullopt;",
         "as its `mutex_`"),
    Lock("csrc/torch/step/recorder.h", "mutex_", Fork.UNUSED, *NO_TAP, "a child's operators are told to nobody"),
    Lock("csrc/torch/step/ghost.h", "mutex_", Fork.UNUSED, *NO_TAP, "a child's operators are told to nobody"),
    Lock("csrc/torch/step/tap.cc", "registration_mutex", Fork.REFUSED, "csrc/torch/step/tap.cc",
         "SetupMutex registration_mutex;", "a child that finds it locked cannot use step programs"),
    Lock("csrc/torch/step/other_threads.cc", "registration_mutex", Fork.REFUSED, "csrc/torch/step/other_threads.cc",
         "SetupMutex registration_mutex;", "as that of tap.cc"),
    Lock("csrc/torch/step/composites.cc", "mutex_", Fork.REFUSED, "csrc/torch/step/composites.cc", "SetupMutex mutex_;", "as that of tap.cc"),
    Lock("csrc/torch/step/composites.cc", "found", Fork.REFUSED, "csrc/torch/step/composites.cc",
         "(void)readers();", "made where the first tap is made, under its `registration_mutex`"),
    Lock("csrc/torch/step/spills.h", "mutex_", Fork.HELD, "csrc/torch/step/spills.cc", "get().mutex_.lock();",
         "a child finds the bytes of tensors that are on the host"),
    Lock("csrc/torch/step/operator_turns.h", "mutex_", Fork.HELD, "csrc/torch/step/spills.cc", "get().turns_.lock();",
         "a child forgets the operators of other threads, and runs its own"),
    Lock("csrc/torch/step/operator_turns.h", "changed_", Fork.UNUSED, "csrc/torch/step/operator_turns.cc",
         "::new (static_cast<void*>(&changed_)) std::condition_variable;", "a child makes a new one, for which nobody waits"),
    Lock("csrc/torch/step/spills.cc", "one", Fork.REFUSED, "csrc/torch/step/spills.cc",
         "static auto* const one = new Spills;", "nothing but memory is taken in it"),
    Lock("csrc/torch/step/leaving_blocks.cc", "mutex", Fork.REFUSED, "csrc/torch/step/leaving_blocks.cc", "SetupMutex mutex;",
         "a child that finds it locked cannot copy to the host"),
    Lock("csrc/torch/step/leaving_blocks.cc", "all", Fork.REFUSED, "csrc/torch/step/leaving_blocks.cc", "const std::lock_guard lock(mutex);",
         "under its mutex alone"),
    Lock("csrc/torch/step/step_program.cc", "between", Fork.REFUSED, "csrc/torch/step/step_program.cc",
         "static auto* const between = new BetweenSteps;", "nothing but memory is taken in it"),
    Lock("csrc/torch/step/subclasses.cc", "registered", Fork.REFUSED, "csrc/torch/step/tap.cc",
         "const std::lock_guard lock(registration_mutex);", "only there"),
    Lock("csrc/torch/step/composites.cc", "registered", Fork.REFUSED, "csrc/torch/step/tap.cc",
         "const std::lock_guard lock(registration_mutex);", "only there"),
    Lock("csrc/torch/step/operator_facts.cc", "folder", Fork.REFUSED, "csrc/torch/step/operator_facts.cc",
         "static const auto* const folder", "as that of found"),
    Lock("csrc/torch/step/operator_facts.cc", "all", Fork.REFUSED, "csrc/torch/step/operator_facts.cc", "static auto* const all", "as that of found"),
    Lock("csrc/torch/step/operator_facts.cc", "found", Fork.REFUSED, "csrc/torch/step/operator_facts.cc",
         "static auto* const found = new FoundOut;", "nothing but memory is taken in it"),
    Lock("csrc/torch/step/operator_facts.cc", "mutex", Fork.REFUSED, "csrc/torch/step/operator_facts.cc", "SetupMutex mutex;", "as that of tap.cc"),
    Lock("csrc/torch/step/operator_facts.cc", "operators", Fork.REFUSED, "csrc/torch/step/operator_facts.cc",
         "static auto* const operators = new PureOperators;", "nothing but memory is taken in it"),
    Lock("csrc/torch/step/libraries.cc", "mutex", Fork.REFUSED, "csrc/torch/step/libraries.cc", "SetupMutex mutex;", "as that of tap.cc"),
    Lock("csrc/torch/step/libraries.cc", "known", Fork.REFUSED, "csrc/torch/step/libraries.cc",
         "static auto* const known = new Known;", "nothing but memory is taken in it"),
    Lock("csrc/torch/step/planning_thread.cc", "mutex", Fork.UNUSED, *PLANS_ANEW, "a child has a new one"),
    Lock("csrc/torch/step/planning_thread.cc", "changed", Fork.UNUSED, *PLANS_ANEW, "as its `mutex`"),
    Lock("csrc/torch/step/planning_thread.cc", "live", Fork.REFUSED, "csrc/torch/step/planning_thread.cc",
         "static auto* const made = new Live;", "nothing but memory is taken in it"),
    Lock("csrc/torch/step/planning_thread.cc", "made", Fork.REFUSED, "csrc/torch/step/planning_thread.cc",
         "static auto* const made = new Live;", "nothing but memory is taken in it"),
    Lock("csrc/torch/step/host_copies.cc", "streams_mutex", Fork.REFUSED, "csrc/torch/step/host_copies.cc",
         "SetupMutex streams_mutex;", "as that of tap.cc"),
    Lock("csrc/torch/step/host_copies.cc", "streams", Fork.REFUSED, "csrc/core/setup_mutex.h",
         "this process was forked while another thread", "made under `streams_mutex`"),
    Lock("csrc/core/follower.cc", "pieces", Fork.HELD, "csrc/core/follower.cc", "+[] { pieces.lock(); }",
         "followers work between forks"),
    Lock("csrc/core/follower.cc", "registered", Fork.UNUSED, "csrc/core/follower.cc", "if (!shared_ || process_ != ::getpid()) start();",
         "made once, by the first follower, on the thread that then leads it"),
    Lock("csrc/core/warnings.cc", "mutex", Fork.HELD, "csrc/core/warnings.cc", "::pthread_atfork([] { mutex.lock(); }",
         "a child may warn"),
    Lock("csrc/trace/name_table.h", "mutex_", Fork.UNUSED, *IN_CHILD, "a recorder does nothing in a child"),
    Lock("csrc/trace/recorder.cc", "buffers_mutex_", Fork.UNUSED, *IN_CHILD, "a recorder does nothing in a child"),
    Lock("csrc/trace/recorder.cc", "late_mutex_", Fork.UNUSED, *IN_CHILD, "a recorder does nothing in a child"),
    Lock("csrc/trace/recorder.cc", "mutex", Fork.UNUSED, *IN_CHILD, "the writing thread's, which a child does not have"),
    Lock("csrc/trace/recorder.cc", "wake", Fork.UNUSED, *IN_CHILD, "the writing thread's; a child forgets it undestroyed"),
    Lock("csrc/trace/recorder.cc", "close_mutex_", Fork.UNUSED, *IN_CHILD, "a recorder does nothing in a child"),
    Lock("csrc/place/place.cc", "kEngines", Fork.UNUSED, "csrc/place/place.cc", "place_engines() {",
         "names for the program `berth`"),
    Lock("csrc/schedule/order/order.cc", "kEngines", Fork.UNUSED, "csrc/schedule/order/order.cc", "order_engines() {",
         "names for the program `berth`"),
    Lock("csrc/core/named_list.h", "mutex_", Fork.REFUSED, "csrc/core/setup_mutex.h", "this process was forked while another thread",
         "held while a name is added or all are copied"),
    Lock("csrc/graph/other_forms.cc", "kForms", Fork.UNUSED, "csrc/graph/other_forms.cc", "static auto& kForms = *new",
         "made by use_papers(), as the program begins"),
    Lock("csrc/schedule/offload/named_rules.cc", "kRules", Fork.UNUSED, "csrc/schedule/offload/named_rules.cc", "static auto& kRules = *new",
         "made by use_papers(), as the program begins"),
    Lock("csrc/schedule/recomputation/named_rules.cc", "kRules", Fork.UNUSED, "csrc/schedule/recomputation/named_rules.cc", "static auto& kRules = *new",
         "made by use_papers(), as the program begins"),
    Lock("csrc/schedule/recomputation/recomputation.cc", "kEngines", Fork.UNUSED, "csrc/schedule/recomputation/recomputation.cc", "recomputation_engines() {",
         "names for the program `berth`"),
    Lock("csrc/papers/checkmate_engine.cc", "kReason", Fork.UNUSED, "csrc/papers/planners.cc",
         '} else if (engine == "checkmate") {', "the runtime plans no steps"),
    Lock("csrc/schedule/joint/plan.cc", "kEngines", Fork.UNUSED, "csrc/schedule/joint/plan.cc", "step_engines() {",
         "names for the program `berth`"),
    Lock("csrc/place/ilp_engine.cc", "kReason", Fork.UNUSED, *ILP_ASKED, "the runtime's planner asks for no integer program"),
    Lock("csrc/place/oracle/integer_program.cc", "kLoaded", Fork.UNUSED, *ILP_ASKED, "as that of ilp_engine.cc"),
    Lock("csrc/place/oracle/integer_program.cc", "kMissing", Fork.UNUSED, *ILP_ASKED, "as that of ilp_engine.cc"),
    Lock("csrc/schedule/order/olla_engine.cc", "kReason", Fork.UNUSED, "csrc/schedule/order/order.cc", 'if (options.engine == "olla") {',
         "the runtime orders no operators"),
    Lock("csrc/device/host_device.cc", "mutex_", Fork.INSIDE, *ALLOCATOR, "allocators alone call a device, each under its lock"),
    Lock("csrc/runtime/allocator_state.h", "own_mutex", Fork.HELD, *ALLOCATOR, "the CPU's child asks what is the parent's"),
    Lock("csrc/runtime/planner.h", "mutex_", Fork.UNUSED, "csrc/runtime/allocator.cc",
         "if (state.forked) return;  // set while there is one thread only", "the planner's thread is the parent's"),
    Lock("csrc/runtime/planner.h", "wake_", Fork.UNUSED, "csrc/runtime/allocator.cc",
         "(void)state_.release();  // its planner's thread, which cannot be joined, is the parent's", "not even destroyed"),
    Lock("csrc/cuda/calls.cc", "name", Fork.UNUSED, *MAKES_GPUS, ONE_RESULT + ", while a GPU is made"),
    Lock("csrc/cuda/calls.cc", "library", Fork.UNUSED, *MAKES_GPUS, ONE_RESULT + ", while a GPU is made"),
    Lock("csrc/cuda/calls.cc", "once", Fork.UNUSED, *MAKES_GPUS, ONE_RESULT + ", while a GPU is made"),
    Lock("csrc/cuda/cuda_device.cc", "mutex_", Fork.UNUSED, *GPU_CALLS, "no driver call in a child"),
    Lock("csrc/cuda/event_pool.h", "mutex_", Fork.UNUSED, *GPU_CALLS, "no driver call in a child"),
    Lock("csrc/cuda/plain_memory.cc", "mutex_", Fork.UNUSED, *GPU_CALLS, "no driver call in a child"),
    Lock("csrc/cuda/virtual_memory.cc", "mutex_", Fork.UNUSED, *GPU_CALLS, "no driver call in a child"),
    Lock("csrc/cuda/shared_memory.h", "mutex", Fork.UNUSED, "csrc/cuda/shared_memory.cc",
         "if (cuda_is_over()) return;  // in a forked child another thread may have held the lock", "mappings are the parent's"),
    Lock("csrc/capi/devices.cc", "making", Fork.REFUSED, "csrc/core/setup_mutex.h", "this process was forked while another thread",
         "devices are made under it"),
    Lock("csrc/capi/graphs.h", "mutex_", Fork.UNUSED, *NO_DEVICES, "a child has no devices"),
    Lock("csrc/capi/stream_numbers.h", "mutex_", Fork.UNUSED, *NO_DEVICES, "a child has no devices"),
    Lock("csrc/torch/torch.cc", "mutex", Fork.REFUSED, "csrc/core/setup_mutex.h", "this process was forked while another thread",
         "libtorch's locks are taken under it"),
    Lock("csrc/torch/recording/range_observer.cc", "done", Fork.UNUSED, "csrc/torch/recording/range_observer.cc", "if (done.test_and_set()) return;",
         "nobody waits for it"),
    Lock("csrc/torch/recording/operator_recorder.cc", "mutex_", Fork.UNUSED, "csrc/torch/recording/operator_recorder.cc",
         "if (one != nullptr && !one->of_parent())", "the parent's recorder hears nothing in a child"),
    Lock("csrc/torch/recording/operator_recorder.cc", "listening_mutex", Fork.REFUSED, "csrc/core/setup_mutex.h",
         "this process was forked while another thread", "libtorch's locks are taken under it"),
    Lock("csrc/torch/step/algorithms.cc", "sources_mutex", Fork.REFUSED, "csrc/core/setup_mutex.h",
         "this process was forked while another thread", "a program asks all who offer algorithms"),
    Lock("csrc/torch/step/algorithms.cc", "all", Fork.REFUSED, "csrc/core/setup_mutex.h",
         "this process was forked while another thread", "made under `sources_mutex`"),
    Lock("csrc/torch/cuda/cudnn/convolution_choice.cc", "offering", Fork.REFUSED, "csrc/core/setup_mutex.h",
         "this process was forked while another thread", "cuDNN is offered under it"),
    Lock("csrc/torch/cuda/cudnn/convolution_choice.cc", "convolutions", Fork.REFUSED, "csrc/core/setup_mutex.h",
         "this process was forked while another thread", "made under `offering`"),
    Lock("csrc/torch/cuda/cudnn/convolution_trial.cc", "mutex_", Fork.UNUSED, *ON_CUDA, "no convolution runs in a child of a process with CUDA"),
    Lock("csrc/torch/cuda/cudnn/backend.cc", "library", Fork.UNUSED, *ON_CUDA, ONE_RESULT),
    Lock("csrc/torch/cuda/cudnn/backend.cc", "found", Fork.UNUSED, *ON_CUDA, ONE_RESULT),
    Lock("csrc/device/gpu_models.cc", "table", Fork.UNUSED, "csrc/device/gpu_models.cc", "gpus() {",
         "names for the program `berth` and the stand-in"),
    Lock("csrc/torch/cuda/gpu.h", "leaving_", Fork.UNUSED, "csrc/torch/cuda/cuda_installation.cc",
         "return gpu == nullptr || CudaAllocator::get()->forked() ? 0 : gpu->resume_memory();", "a child's memory neither leaves nor comes"),
    Lock("csrc/torch/adapter.cc", "installing", Fork.REFUSED, "csrc/core/setup_mutex.h", "this process was forked while another thread",
         "libtorch's locks are taken under it"),
    Lock("csrc/torch/cuda/cuda_installation.cc", "installing", Fork.HELD, "csrc/torch/cuda/cuda_installation.cc",
         "installing.lock();", "a child of a process that has not used CUDA may install"),
    Lock("csrc/torch/cuda/cuda_installation.cc", "kept", Fork.INSIDE, "csrc/torch/cuda/cuda_installation.cc", "installing.lock();",
         "made under `installing`"),
    Lock("csrc/torch/cuda/cuda_installation.cc", "backend", Fork.INSIDE, "csrc/torch/cuda/cuda_installation.cc",
         "installing.lock();", "made under `installing`"),
    Lock("csrc/torch/cuda/cuda_allocator.h", "mutex_", Fork.HELD, *MAKES_GPUS, "a child may use CUDA where its parent had not"),
    Lock("csrc/torch/cuda/gpu.h", "mutex_", Fork.HELD, *HOLDS_GPU, "a child reads statistics"),
    Lock("csrc/torch/cuda/private_pools.h", "mutex_", Fork.HELD, *HOLDS_GPU, "a child lets go of graphs"),
    Lock("csrc/torch/cuda/uncached_blocks.h", "mutex_", Fork.HELD, *HOLDS_GPU, "with those of the GPU"),
    Lock("csrc/torch/cuda/stream_lanes.h", "mutex_", Fork.HELD, "csrc/torch/cuda/stream_lanes.cc",
         "void StreamLanes::before_fork() noexcept {", "with those of the GPU"),
)
