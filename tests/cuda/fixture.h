#pragma once

#include "csrc/cuda/cuda_device.h"
#include "csrc/standin/control.h"
#include "tests/catch.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

// On the stand-in, linked in: the functions of cuda_runtime_api.h are its own here, and the layer
// finds them by name as it would find a preloaded one's.
namespace berth::test {

using standin::berth_standin_calls;
using standin::berth_standin_clear_faults;
using standin::berth_standin_fail;
using standin::berth_standin_forget_violations;
using standin::berth_standin_hand_out;
using standin::berth_standin_live_allocations;
using standin::berth_standin_refuse;
using standin::berth_standin_seed;
using standin::berth_standin_set_pace;
using standin::berth_standin_used;
using standin::berth_standin_violation;
using standin::berth_standin_violations;

inline constexpr int kRandomPace = 0;
inline constexpr int kLazyPace = 1;
inline constexpr int kEagerPace = 2;

inline constexpr Bytes kMiB = Bytes{1} << 20;

// Two small GPUs, whatever the environment says: read at the first call.
inline const bool two_gpus = setenv("BERTH_STANDIN_DEVICES", "2", 1) == 0 &&
                             setenv("BERTH_STANDIN_MEMORY", "134217728", 1) == 0;
inline constexpr Bytes kTotal = 128 * kMiB;

inline constexpr CudaOptions::Memory kKinds[] = {CudaOptions::Memory::kVirtual,
                                                 CudaOptions::Memory::kPlain};

inline const char* name_of(CudaOptions::Memory kind) {
  return kind == CudaOptions::Memory::kVirtual ? "virtual" : "plain";
}

inline std::unique_ptr<CudaDevice> make_gpu(CudaOptions::Memory kind, int index = 0) {
  return make_cuda_device({.index = index, .memory = kind});
}

inline std::string first_violation() {
  if (berth_standin_violations() == 0) return {};
  std::string text(4096, '\0');
  text.resize(berth_standin_violation(0, text.data(), text.size()));
  return text;
}

// The stand-in as a fresh process would find it, as far as one process can, before and after.
struct Standin {
  explicit Standin(int pace = kLazyPace) {
    settle();
    berth_standin_set_pace(pace);
    berth_standin_seed(1);
    berth_standin_forget_violations();
  }
  ~Standin() {
    CHECK(cudaPeekAtLastError() == cudaSuccess);  // the program never meets an error of ours
    settle();
    CHECK(first_violation() == "");
    CHECK(berth_standin_live_allocations() == 0);
  }
  Standin(const Standin&) = delete;
  Standin& operator=(const Standin&) = delete;

  static void settle() {
    berth_standin_clear_faults();
    berth_standin_refuse(0);
    set_cuda_over(false);
    (void)cudaGetLastError();
    for (const int device : {1, 0}) {
      cudaSetDevice(device);
      cudaDeviceSynchronize();
    }
  }
};

// A stream as PyTorch makes them.
struct Stream {
  explicit Stream(int device = 0) {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device);
    cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
    cudaSetDevice(before);
  }
  ~Stream() { cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle; }
  [[nodiscard]] LaneKey lane() const { return CudaDevice::lane_of(handle); }

  cudaStream_t handle = nullptr;
};

inline standin::StreamHandle standin_handle(cudaStream_t stream) {
  return reinterpret_cast<standin::StreamHandle>(stream);
}

// A kernel that uses memory, for the checker.
inline void use(cudaStream_t stream, const void* pointer, Bytes size, bool writes = true) {
  const standin::BerthStandinAccess access{pointer, size, writes ? 1 : 0};
  standin::berth_standin_launch(standin_handle(stream), writes ? "writer" : "reader", &access, 1);
}

inline bool hand_out(cudaStream_t stream, const void* pointer, Bytes size) {
  return berth_standin_hand_out(pointer, size, standin_handle(stream)) != 0;
}

}  // namespace berth::test
