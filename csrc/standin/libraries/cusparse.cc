// cuSPARSE: handles that know their stream, matrices that know their size, and how much workspace
// each function wants. The functions themselves are generated: kernels that do nothing. How many
// elements the product or the sum of two sparse matrices has is a guess: the sum of theirs.

#include "csrc/standin/control.h"
#include "csrc/standin/library_handle.h"

#include <cstdint>

namespace berth::standin {
namespace {

struct Object {
  std::int64_t rows = 0, columns = 0, elements = 0;
};

int create(const char* name, Object** object, Object made = {}) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  *object = new Object(made);
  return 0;
}

int destroy(const char* name, const Object* object) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  delete object;
  return 0;
}

// An index and a value of each element.
template <class Size>
int answer(const char* name, Size* size, std::int64_t elements) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  constexpr std::int64_t kBytes = 16;
  *size = static_cast<Size>(kBytes * (elements > 0 ? elements : 1));
  return 0;
}

}  // namespace

extern "C" {

int cusparseCreate(LibraryHandle** handle) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  *handle = new LibraryHandle;
  return 0;
}

int cusparseDestroy(LibraryHandle* handle) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  delete handle;
  return 0;
}

int cusparseSetStream(LibraryHandle* handle, StreamHandle stream) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  handle->stream = stream;
  return 0;
}

int cusparseCreateDnMat(Object** object, std::int64_t rows, std::int64_t columns, std::int64_t,
                        void*, int, int) {
  return create(__func__, object, {rows, columns, rows * columns});
}
int cusparseCreateDnVec(Object** object, std::int64_t size, void*, int) {
  return create(__func__, object, {size, 1, size});
}
int cusparseCreateCsr(Object** object, std::int64_t rows, std::int64_t columns,
                      std::int64_t elements, void*, void*, void*, int, int, int, int) {
  return create(__func__, object, {rows, columns, elements});
}
int cusparseCreateCoo(Object** object, std::int64_t rows, std::int64_t columns,
                      std::int64_t elements, void*, void*, void*, int, int, int) {
  return create(__func__, object, {rows, columns, elements});
}
int cusparseCreateMatDescr(Object** object) { return create(__func__, object); }
int cusparseCreateBsrsv2Info(Object** object) { return create(__func__, object); }
int cusparseCreateBsrsm2Info(Object** object) { return create(__func__, object); }
int cusparseSpGEMM_createDescr(Object** object) { return create(__func__, object); }
int cusparseSpSV_createDescr(Object** object) { return create(__func__, object); }
int cusparseSpSM_createDescr(Object** object) { return create(__func__, object); }
int cusparseDestroyDnMat(const Object* object) { return destroy(__func__, object); }
int cusparseDestroyDnVec(const Object* object) { return destroy(__func__, object); }
int cusparseDestroySpMat(const Object* object) { return destroy(__func__, object); }
int cusparseDestroyMatDescr(const Object* object) { return destroy(__func__, object); }
int cusparseDestroyBsrsv2Info(const Object* object) { return destroy(__func__, object); }
int cusparseDestroyBsrsm2Info(const Object* object) { return destroy(__func__, object); }
int cusparseSpGEMM_destroyDescr(const Object* object) { return destroy(__func__, object); }
int cusparseSpSV_destroyDescr(const Object* object) { return destroy(__func__, object); }
int cusparseSpSM_destroyDescr(const Object* object) { return destroy(__func__, object); }

int cusparseSpMatGetSize(const Object* matrix, std::int64_t* rows, std::int64_t* columns,
                         std::int64_t* elements) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  *rows = matrix->rows;
  *columns = matrix->columns;
  *elements = matrix->elements;
  return 0;
}

int cusparseSpMM_bufferSize(void*, int, int, const void*, const Object* a, const Object*,
                            const void*, const Object*, int, int, std::size_t* size) {
  return answer(__func__, size, a->elements);
}
int cusparseSpMV_bufferSize(void*, int, const void*, const Object* a, const Object*, const void*,
                            const Object*, int, int, std::size_t* size) {
  return answer(__func__, size, a->rows);
}
int cusparseSDDMM_bufferSize(void*, int, int, const void*, const Object*, const Object*,
                             const void*, const Object* c, int, int, std::size_t* size) {
  return answer(__func__, size, c->elements);
}
int cusparseSpSV_bufferSize(void*, int, const void*, const Object* a, const Object*, const Object*,
                            int, int, const Object*, std::size_t* size) {
  return answer(__func__, size, a->elements);
}
int cusparseSpSM_bufferSize(void*, int, int, const void*, const Object* a, const Object*,
                            const Object*, int, int, const Object*, std::size_t* size) {
  return answer(__func__, size, a->elements);
}

// Both are asked twice: for the size of their buffer, and with it.
int cusparseSpGEMM_workEstimation(void* handle, int, int, const void*, const Object* a,
                                  const Object* b, const void*, Object*, int, int, const Object*,
                                  std::size_t* size, void* buffer) {
  if (buffer != nullptr) return berth_standin_handle_work(handle, __func__);
  return answer(__func__, size, a->rows + b->rows);
}
int cusparseSpGEMM_compute(void* handle, int, int, const void*, const Object* a, const Object* b,
                           const void*, Object* c, int, int, const Object*, std::size_t* size,
                           void* buffer) {
  if (buffer == nullptr) return answer(__func__, size, a->elements + b->elements);
  c->elements = a->elements + b->elements;
  return berth_standin_handle_work(handle, __func__);
}

int cusparseXcoosort_bufferSizeExt(void*, int, int, int elements, const int*, const int*,
                                   std::size_t* size) {
  return answer(__func__, size, elements);
}
int cusparseXcsrsort_bufferSizeExt(void*, int, int, int elements, const int*, const int*,
                                   std::size_t* size) {
  return answer(__func__, size, elements);
}
int cusparseXcsrgeam2Nnz(void* handle, int, int, const Object*, int a, const int*, const int*,
                         const Object*, int b, const int*, const int*, const Object*, int*,
                         int* elements, void*) {
  *elements = a + b;
  return berth_standin_handle_work(handle, __func__);
}

#define BERTH_OF_TYPE(type)                                                                       \
  int cusparse##type##csrgeam2_bufferSizeExt(                                                     \
      void*, int rows, int, const void*, const Object*, int, const void*, const int*, const int*, \
      const void*, const Object*, int, const void*, const int*, const int*, const Object*,        \
      const void*, const int*, const int*, std::size_t* size) {                                   \
    return answer(__func__, size, rows);                                                          \
  }                                                                                               \
  int cusparse##type##bsrsv2_bufferSize(void*, int, int, int rows, int, const Object*, void*,     \
                                        const int*, const int*, int block, const Object*,         \
                                        int* size) {                                              \
    return answer(__func__, size, std::int64_t{rows} * block);                                    \
  }                                                                                               \
  int cusparse##type##bsrsm2_bufferSize(void*, int, int, int, int rows, int, int, const Object*,  \
                                        void*, const int*, const int*, int block, const Object*,  \
                                        int* size) {                                              \
    return answer(__func__, size, std::int64_t{rows} * block);                                    \
  }

BERTH_OF_TYPE(S)
BERTH_OF_TYPE(D)
BERTH_OF_TYPE(C)
BERTH_OF_TYPE(Z)

#undef BERTH_OF_TYPE

// No pivot is zero.
int cusparseXbsrsv2_zeroPivot(void*, const Object*, int* position) {
  *position = -1;
  return berth_standin_enter(__func__);
}
int cusparseXbsrsm2_zeroPivot(void*, const Object*, int* position) {
  *position = -1;
  return berth_standin_enter(__func__);
}

}  // extern "C"
}  // namespace berth::standin
