// cuSOLVER: handles that know their stream, and how much workspace each function wants. The
// functions themselves are generated: kernels that do nothing. The sizes follow LAPACK's blocked
// algorithms.

#include "csrc/standin/control.h"
#include "csrc/standin/library_handle.h"

#include <algorithm>
#include <cstdint>

namespace berth::standin {
namespace {

constexpr std::int64_t kBlock = 32;  // columns that a blocked algorithm takes at a time

// Answers a query in elements.
int answer(const char* name, int* size, std::int64_t elements) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  *size = static_cast<int>(std::clamp<std::int64_t>(elements, 1, 0x7fffffff));
  return 0;
}

// In bytes, of the device and of the host.
int answer(const char* name, std::size_t* device, std::size_t* host, std::int64_t elements,
           int type) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  constexpr int kReal64 = 1, kComplex32 = 4, kComplex64 = 5;  // of cudaDataType
  const std::size_t bytes = type == kComplex64 ? 16 : type == kReal64 || type == kComplex32 ? 8 : 4;
  *device = bytes * static_cast<std::size_t>(std::max<std::int64_t>(elements, 1));
  *host = 0;
  return 0;
}

// What factorisations keep beside the matrix: a block of columns; all of it where vectors are
// found.
std::int64_t columns(std::int64_t n) { return n * kBlock; }
std::int64_t singular_values(std::int64_t m, std::int64_t n) {
  const std::int64_t least = std::min(m, n);
  return 4 * std::max(m, n) + 2 * least * least + columns(least);
}
std::int64_t eigenvalues(std::int64_t n) { return 1 + 6 * n + 2 * n * n; }

struct Object {};

int create(const char* name, Object** object) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  *object = new Object;
  return 0;
}

int destroy(const char* name, Object* object) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  delete object;
  return 0;
}

}  // namespace

extern "C" {

int cusolverDnCreate(LibraryHandle** handle) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  *handle = new LibraryHandle;
  return 0;
}

int cusolverDnDestroy(LibraryHandle* handle) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  delete handle;
  return 0;
}

int cusolverDnSetStream(LibraryHandle* handle, StreamHandle stream) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  handle->stream = stream;
  return 0;
}

int cusolverDnCreateParams(Object** object) { return create(__func__, object); }
int cusolverDnDestroyParams(Object* object) { return destroy(__func__, object); }
int cusolverDnCreateGesvdjInfo(Object** object) { return create(__func__, object); }
int cusolverDnDestroyGesvdjInfo(Object* object) { return destroy(__func__, object); }
int cusolverDnCreateSyevjInfo(Object** object) { return create(__func__, object); }
int cusolverDnDestroySyevjInfo(Object* object) { return destroy(__func__, object); }
int cusolverDnXgesvdjSetMaxSweeps(Object*, int) { return berth_standin_enter(__func__); }
int cusolverDnXgesvdjSetSortEig(Object*, int) { return berth_standin_enter(__func__); }
int cusolverDnXgesvdjSetTolerance(Object*, double) { return berth_standin_enter(__func__); }

// The same for each of the four types of elements.
#define BERTH_FACTORISATIONS(type)                                                                \
  int cusolverDn##type##geqrf_bufferSize(void*, int, int n, void*, int, int* size) {              \
    return answer(__func__, size, columns(n));                                                    \
  }                                                                                               \
  int cusolverDn##type##getrf_bufferSize(void*, int m, int n, void*, int, int* size) {            \
    return answer(__func__, size, columns(std::max(m, n)));                                       \
  }                                                                                               \
  int cusolverDn##type##potrf_bufferSize(void*, int, int n, void*, int, int* size) {              \
    return answer(__func__, size, columns(n));                                                    \
  }                                                                                               \
  int cusolverDn##type##sytrf_bufferSize(void*, int n, void*, int, int* size) {                   \
    return answer(__func__, size, columns(n));                                                    \
  }                                                                                               \
  int cusolverDn##type##gesvd_bufferSize(void*, int m, int n, int* size) {                        \
    return answer(__func__, size, singular_values(m, n));                                         \
  }                                                                                               \
  int cusolverDn##type##gesvdj_bufferSize(void*, int, int, int m, int n, const void*, int,        \
                                          const void*, const void*, int, const void*, int,        \
                                          int* size, void*) {                                     \
    return answer(__func__, size, singular_values(m, n));                                         \
  }                                                                                               \
  int cusolverDn##type##gesvdjBatched_bufferSize(void*, int, int m, int n, const void*, int,      \
                                                 const void*, const void*, int, const void*, int, \
                                                 int* size, void*, int batch) {                   \
    return answer(__func__, size, batch * singular_values(m, n));                                 \
  }                                                                                               \
  int cusolverDn##type##gesvdaStridedBatched_bufferSize(                                          \
      void*, int, int, int m, int n, const void*, int, long long, const void*, long long,         \
      const void*, int, long long, const void*, int, long long, int* size, int batch) {           \
    return answer(__func__, size, batch * singular_values(m, n));                                 \
  }

#define BERTH_ORTHOGONAL(type, generate, multiply)                                             \
  int cusolverDn##type##generate##_bufferSize(void*, int, int n, int, const void*, int,        \
                                              const void*, int* size) {                        \
    return answer(__func__, size, columns(n));                                                 \
  }                                                                                            \
  int cusolverDn##type##multiply##_bufferSize(void*, int, int, int m, int n, int, const void*, \
                                              int, const void*, const void*, int, int* size) { \
    return answer(__func__, size, columns(std::max(m, n)));                                    \
  }

#define BERTH_EIGENVALUES(type, direct, jacobi)                                                    \
  int cusolverDn##type##direct##_bufferSize(void*, int, int, int n, const void*, int, const void*, \
                                            int* size) {                                           \
    return answer(__func__, size, eigenvalues(n));                                                 \
  }                                                                                                \
  int cusolverDn##type##jacobi##_bufferSize(void*, int, int, int n, const void*, int, const void*, \
                                            int* size, void*) {                                    \
    return answer(__func__, size, eigenvalues(n));                                                 \
  }                                                                                                \
  int cusolverDn##type##jacobi##Batched_bufferSize(void*, int, int, int n, const void*, int,       \
                                                   const void*, int* size, void*, int batch) {     \
    return answer(__func__, size, batch * eigenvalues(n));                                         \
  }

BERTH_FACTORISATIONS(S)
BERTH_FACTORISATIONS(D)
BERTH_FACTORISATIONS(C)
BERTH_FACTORISATIONS(Z)
BERTH_ORTHOGONAL(S, orgqr, ormqr)
BERTH_ORTHOGONAL(D, orgqr, ormqr)
BERTH_ORTHOGONAL(C, ungqr, unmqr)
BERTH_ORTHOGONAL(Z, ungqr, unmqr)
BERTH_EIGENVALUES(S, syevd, syevj)
BERTH_EIGENVALUES(D, syevd, syevj)
BERTH_EIGENVALUES(C, heevd, heevj)
BERTH_EIGENVALUES(Z, heevd, heevj)

#undef BERTH_FACTORISATIONS
#undef BERTH_ORTHOGONAL
#undef BERTH_EIGENVALUES

// Those of any type and 64-bit sizes.
int cusolverDnXgeqrf_bufferSize(void*, void*, std::int64_t, std::int64_t n, int type, const void*,
                                std::int64_t, int, const void*, int, std::size_t* device,
                                std::size_t* host) {
  return answer(__func__, device, host, columns(n), type);
}

int cusolverDnXpotrf_bufferSize(void*, void*, int, std::int64_t n, int type, const void*,
                                std::int64_t, int, std::size_t* device, std::size_t* host) {
  return answer(__func__, device, host, columns(n), type);
}

int cusolverDnXsyevd_bufferSize(void*, void*, int, int, std::int64_t n, int type, const void*,
                                std::int64_t, int, const void*, int, std::size_t* device,
                                std::size_t* host) {
  return answer(__func__, device, host, eigenvalues(n), type);
}

int cusolverDnXsyevBatched_bufferSize(void*, void*, int, int, std::int64_t n, int type, const void*,
                                      std::int64_t, int, const void*, int, std::size_t* device,
                                      std::size_t* host, std::int64_t batch) {
  return answer(__func__, device, host, batch * eigenvalues(n), type);
}

int cusolverDnXgeev_bufferSize(void*, void*, int, int, std::int64_t n, int type, const void*,
                               std::int64_t, int, const void*, int, const void*, std::int64_t, int,
                               const void*, std::int64_t, int, std::size_t* device,
                               std::size_t* host) {
  return answer(__func__, device, host, eigenvalues(n), type);
}

int cusolverDnXsytrs_bufferSize(void*, int, std::int64_t n, std::int64_t right, int type,
                                const void*, std::int64_t, const void*, int, const void*,
                                std::int64_t, std::size_t* device, std::size_t* host) {
  return answer(__func__, device, host, n * right, type);
}

}  // extern "C"
}  // namespace berth::standin
