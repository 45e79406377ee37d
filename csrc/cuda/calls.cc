#include "csrc/cuda/calls.h"

#include "csrc/core/check.h"
#include "csrc/cuda/cuda_device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <mutex>
#include <type_traits>

namespace berth {
namespace {

// What berth asks of the runtime and driver at least; newer ones of the same major version do.
constexpr int kMajor = CUDART_VERSION / 1000;
constexpr unsigned kDriverInterface = 1000 * kMajor;

std::atomic<bool> over{false};
std::atomic<bool> forked{false};

// The library that functions are found in where the process has none loaded. Stays loaded: its
// functions are called as late as by static destructors.
void* runtime_library() {
  static const auto& name = *new const std::string(fmt::format("libcudart.so.{}", kMajor));
  static void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  BERTH_CHECK(library != nullptr, kSystem, "there is no CUDA runtime: {}", [] {
    const char* const reason = dlerror();
    return reason != nullptr ? std::string(reason) : name + " cannot be loaded";
  }());
  return library;
}

template <typename Pointer>
Pointer find(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) found = dlsym(runtime_library(), name);
  BERTH_CHECK(found != nullptr, kSystem, "the CUDA runtime lacks {}, which CUDA {} has", name,
              kMajor);
  return reinterpret_cast<Pointer>(found);
}

// Errors that earlier work of the device left: every further call on it fails. The numbers are the
// driver's, too.
bool sticks(int error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContained:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool cuda_is_over() noexcept {
  return over.load(std::memory_order_relaxed) || forked.load(std::memory_order_relaxed);
}

void set_cuda_over(bool is_over) noexcept { over.store(is_over, std::memory_order_relaxed); }

Status cuda_failure(const char* name, int error,
                    decltype(&::cudaGetLastError) get_last_error) noexcept {
  if (error == cudaErrorCudartUnloading) {
    set_cuda_over(true);
    return {Status::Code::kGone, name, error};
  }
  if (sticks(error)) return {Status::Code::kSticky, name, error};
  if (get_last_error != nullptr) (void)get_last_error();
  switch (error) {
    case cudaErrorMemoryAllocation:
      return {Status::Code::kOutOfMemory, name, error};
    case cudaErrorNotSupported:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorCallRequiresNewerDriver:
      return {Status::Code::kUnsupported, name, error};
    default:
      return {Status::Code::kFailed, name, error};
  }
}

CudaCalls::CudaCalls() {
  const auto get_last_error = find<decltype(&::cudaGetLastError)>("cudaGetLastError");
  get_error_name_ = find<decltype(&::cudaGetErrorName)>("cudaGetErrorName");
  get_error_string_ = find<decltype(&::cudaGetErrorString)>("cudaGetErrorString");
  // Before any call: a child that is forked from now on must make none.
  static std::once_flag once;
  std::call_once(once, [] {
    const int error = pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
    BERTH_CHECK(error == 0, kSystem, "pthread_atfork failed with error {}", error);
  });

  const auto find_in_runtime = [&](auto& function, const char* name, auto* count) {
    function = {name, find<std::decay_t<decltype(function.pointer)>>(name), count, get_last_error};
  };
  // The version first: another one may lack some of the others.
  find_in_runtime(cudaRuntimeGetVersion, "cudaRuntimeGetVersion", &made);
  int version = 0;
  const Status asked = cudaRuntimeGetVersion(&version);
  BERTH_CHECK(asked.ok(), kSystem, "cudaRuntimeGetVersion failed: {}", text(asked.number()));
  BERTH_CHECK(version / 1000 == kMajor, kSystem,
              "the CUDA runtime of this process is {}.{}, this berth was built for CUDA {}",
              version / 1000, version % 1000 / 10, kMajor);
  std::atomic<std::uint64_t>* const uncounted = nullptr;
#define BERTH_CUDA_FIND(function) find_in_runtime(function, #function, uncounted);
  BERTH_CUDA_THREAD_CALLS(BERTH_CUDA_FIND)
#undef BERTH_CUDA_FIND
#define BERTH_CUDA_FIND(function) find_in_runtime(function, #function, &made);
  BERTH_CUDA_RUNTIME_CALLS(BERTH_CUDA_FIND)
#undef BERTH_CUDA_FIND

  const auto find_in_driver = [this](auto& function, const char* name, auto* count) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const Status status = cudaGetDriverEntryPointByVersion(name, &found, kDriverInterface,
                                                           cudaEnableDefault, &result);
    BERTH_CHECK(status.ok(), kSystem, "cudaGetDriverEntryPointByVersion({}) failed: {}", name,
                text(status.number()));
    if (result != cudaDriverEntryPointSuccess) found = nullptr;
    function = {name, reinterpret_cast<decltype(function.pointer)>(found), count, nullptr};
  };
#define BERTH_CUDA_FIND(function) find_in_driver(function, #function, uncounted);
  BERTH_CUDA_DRIVER_THREAD_CALLS(BERTH_CUDA_FIND)
#undef BERTH_CUDA_FIND
#define BERTH_CUDA_FIND(function) find_in_driver(function, #function, &made);
  BERTH_CUDA_DRIVER_CALLS(BERTH_CUDA_FIND)
#undef BERTH_CUDA_FIND
}

std::string CudaCalls::text(int error) const {
  if (cuda_is_over()) return fmt::format("error {}", error);
  const auto number = static_cast<cudaError_t>(error);
  return fmt::format("{} ({}, {})", get_error_string_(number), get_error_name_(number), error);
}

}  // namespace berth
