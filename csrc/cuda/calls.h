#pragma once

#include "csrc/device/device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string>

// Every function of CUDA's that berth calls. Calls about the state of the calling thread are not
// counted: they reach no driver.
#define BERTH_CUDA_THREAD_CALLS(X) \
  X(cudaGetDevice)                 \
  X(cudaSetDevice)                 \
  X(cudaThreadExchangeStreamCaptureMode)

#define BERTH_CUDA_RUNTIME_CALLS(X) \
  X(cudaDriverGetVersion)           \
  X(cudaGetDeviceCount)             \
  X(cudaGetDeviceProperties)        \
  X(cudaDeviceCanAccessPeer)        \
  X(cudaMemGetInfo)                 \
  X(cudaDeviceSynchronize)          \
  X(cudaDeviceEnablePeerAccess)     \
  X(cudaMalloc)                     \
  X(cudaFree)                       \
  X(cudaHostAlloc)                  \
  X(cudaFreeHost)                   \
  X(cudaMemcpyAsync)                \
  X(cudaMemcpyPeerAsync)            \
  X(cudaStreamGetId)                \
  X(cudaStreamIsCapturing)          \
  X(cudaStreamSynchronize)          \
  X(cudaStreamWaitEvent)            \
  X(cudaEventCreateWithFlags)       \
  X(cudaEventDestroy)               \
  X(cudaEventRecord)                \
  X(cudaEventQuery)                 \
  X(cudaEventSynchronize)           \
  X(cudaIpcGetMemHandle)            \
  X(cudaIpcOpenMemHandle)           \
  X(cudaIpcCloseMemHandle)          \
  X(cudaGetDriverEntryPointByVersion)

#define BERTH_CUDA_DRIVER_THREAD_CALLS(X) X(cuCtxGetCurrent)

#define BERTH_CUDA_DRIVER_CALLS(X) \
  X(cuDeviceGet)                   \
  X(cuDeviceGetAttribute)          \
  X(cuDevicePrimaryCtxRetain)      \
  X(cuCtxPushCurrent)              \
  X(cuCtxPopCurrent)               \
  X(cuMemGetAllocationGranularity) \
  X(cuMemAddressReserve)           \
  X(cuMemAddressFree)              \
  X(cuMemCreate)                   \
  X(cuMemRelease)                  \
  X(cuMemMap)                      \
  X(cuMemUnmap)                    \
  X(cuMemSetAccess)                \
  X(cuMemExportToShareableHandle)  \
  X(cuMemImportFromShareableHandle)

namespace berth {

// No call reaches the driver any more: set_cuda_over() was called, the driver unloads, or this is a
// forked child.
[[nodiscard]] bool cuda_is_over() noexcept;

// One function of CUDA's, called like itself; the answer is checked.
//
// An error of this call is taken from the runtime, so that the program does not meet it when it
// looks for one of its own. One of earlier device work stays there and is kSticky. kGone without a
// call once CUDA is over, kUnsupported where the driver lacks the function.
template <typename Pointer>
struct CudaFunction {
  const char* name = nullptr;
  Pointer pointer = nullptr;
  std::atomic<std::uint64_t>* count = nullptr;             // null: not counted
  decltype(&::cudaGetLastError) get_last_error = nullptr;  // null: one of the driver's

  template <typename... Arguments>
  Status operator()(Arguments... arguments) const noexcept;
};

// The functions of CUDA that berth calls, found by name: in what the process has loaded already,
// where a preloaded stand-in comes first, else in libcudart.so of the version of the headers.
struct CudaCalls {
  // Throws Error(kSystem) where there is no runtime, or one of another major version.
  CudaCalls();
  CudaCalls(const CudaCalls&) = delete;
  CudaCalls& operator=(const CudaCalls&) = delete;

  // "out of memory (cudaErrorMemoryAllocation, 2)"; the number alone once CUDA is over.
  [[nodiscard]] std::string text(int error) const;

#define BERTH_CUDA_MEMBER(name) CudaFunction<decltype(&::name)> name;
  BERTH_CUDA_THREAD_CALLS(BERTH_CUDA_MEMBER)
  BERTH_CUDA_RUNTIME_CALLS(BERTH_CUDA_MEMBER)
  BERTH_CUDA_DRIVER_THREAD_CALLS(BERTH_CUDA_MEMBER)
  BERTH_CUDA_DRIVER_CALLS(BERTH_CUDA_MEMBER)
#undef BERTH_CUDA_MEMBER
  CudaFunction<decltype(&::cudaRuntimeGetVersion)> cudaRuntimeGetVersion;

  std::atomic<std::uint64_t> made{0};  // calls that reached the system or the driver

 private:
  decltype(&::cudaGetErrorName) get_error_name_ = nullptr;
  decltype(&::cudaGetErrorString) get_error_string_ = nullptr;
};

// What a failure means. Clears the thread's last error where `get_last_error` is given.
[[nodiscard]] Status cuda_failure(const char* name, int error,
                                  decltype(&::cudaGetLastError) get_last_error) noexcept;

template <typename Pointer>
template <typename... Arguments>
Status CudaFunction<Pointer>::operator()(Arguments... arguments) const noexcept {
  if (cuda_is_over()) return {Status::Code::kGone, name, cudaErrorCudartUnloading};
  if (pointer == nullptr) return {Status::Code::kUnsupported, name, cudaErrorNotSupported};
  if (count != nullptr) count->fetch_add(1, std::memory_order_relaxed);
  const auto error = static_cast<int>(pointer(arguments...));
  if (error == 0) [[likely]]
    return {};
  return cuda_failure(name, error, get_last_error);
}

}  // namespace berth
