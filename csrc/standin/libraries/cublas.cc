// cuBLAS: handles that know their stream. Matrix products are generated: kernels that do nothing.

#include "csrc/standin/control.h"
#include "csrc/standin/library_handle.h"

namespace berth::standin {

extern "C" {

int cublasCreate_v2(LibraryHandle** handle) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  *handle = new LibraryHandle;
  return 0;
}

int cublasDestroy_v2(LibraryHandle* handle) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  delete handle;
  return 0;
}

int cublasSetStream_v2(LibraryHandle* handle, StreamHandle stream) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  handle->stream = stream;
  return 0;
}

int cublasGetMathMode(LibraryHandle* /*handle*/, int* mode) {
  *mode = 0;
  return 0;
}

int cublasGetPointerMode_v2(LibraryHandle* /*handle*/, int* mode) {
  *mode = 0;
  return 0;
}

// Their info is memory of the host.
#define BERTH_BATCHED(type)                                                                        \
  int cublas##type##geqrfBatched(LibraryHandle* handle, int, int, void* const*, int, void* const*, \
                                 int* info, int) {                                                 \
    *info = 0;                                                                                     \
    return berth_standin_handle_work(handle, __func__);                                            \
  }                                                                                                \
  int cublas##type##gelsBatched(LibraryHandle* handle, int, int, int, int, void* const*, int,      \
                                void* const*, int, int* info, int*, int) {                         \
    *info = 0;                                                                                     \
    return berth_standin_handle_work(handle, __func__);                                            \
  }

BERTH_BATCHED(S)
BERTH_BATCHED(D)
BERTH_BATCHED(C)
BERTH_BATCHED(Z)

#undef BERTH_BATCHED

}  // extern "C"
}  // namespace berth::standin
