// A process with a CUDA runtime of another version: what berth says.

#include "csrc/cuda/cuda_device.h"

#include <berth/error.h>

#include <cstdio>

extern "C" {
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "name"; }
const char* cudaGetErrorString(cudaError_t) { return "text"; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 12080;
  return cudaSuccess;
}
}

int main() {
  try {
    (void)berth::make_cuda_device({});
  } catch (const berth::Error& error) {
    std::puts(error.what());
    return error.kind() == berth::ErrorKind::kSystem ? 0 : 1;
  }
  return 1;
}
