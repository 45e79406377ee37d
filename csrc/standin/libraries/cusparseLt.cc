// cuSPARSELt: products of matrices with two of four elements zero. Its objects are memory of the
// caller; a description of a matrix holds its size, all else nothing.

#include "csrc/standin/control.h"

#include <cstdint>
#include <cstring>

namespace berth::standin {
namespace {

// At the start of a description.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  int type = 0;
};

int describe(const char* name, void* description, std::int64_t rows, std::int64_t columns,
             int type) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  const Matrix matrix{rows, columns, type};
  std::memcpy(description, &matrix, sizeof matrix);
  return 0;
}

// Of a cudaDataType.
std::int64_t element_bytes(int type) {
  constexpr int kFloat = 0, kHalf = 2, kBfloat16 = 14;
  return type == kFloat ? 4 : type == kHalf || type == kBfloat16 ? 2 : 1;
}

}  // namespace

extern "C" {

int cusparseLtDenseDescriptorInit(const void*, void* description, std::int64_t rows,
                                  std::int64_t columns, std::int64_t, std::uint32_t, int type,
                                  int) {
  return describe(__func__, description, rows, columns, type);
}

int cusparseLtStructuredDescriptorInit(const void*, void* description, std::int64_t rows,
                                       std::int64_t columns, std::int64_t, std::uint32_t, int type,
                                       int, int) {
  return describe(__func__, description, rows, columns, type);
}

// Half of the elements, and two bits for the place of each of them.
int cusparseLtSpMMACompressedSize2(const void*, const void* description, std::size_t* compressed,
                                   std::size_t* buffer) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  Matrix matrix;
  std::memcpy(&matrix, description, sizeof matrix);
  const std::int64_t kept = matrix.rows * matrix.columns / 2;
  *compressed = static_cast<std::size_t>(kept * element_bytes(matrix.type) + kept / 4);
  *buffer = 0;
  return 0;
}

int cusparseLtSpMMACompress2(const void*, const void*, int, int, const void*, void*, void*,
                             StreamHandle stream) {
  return berth_standin_library_work(stream, "cusparseLtSpMMACompress2");
}

int cusparseLtMatmulGetWorkspace(const void*, const void*, std::size_t* size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  *size = 0;
  return 0;
}

// The only algorithm there is, and what else of it is asked for, are 0.
int cusparseLtMatmulAlgGetAttribute(const void*, const void*, int, void* value, std::size_t size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  std::memset(value, 0, size);
  return 0;
}

int cusparseLtMatmul(const void*, const void*, const void*, const void*, const void*, const void*,
                     const void*, void*, void*, StreamHandle* streams, int count) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return berth_standin_library_work(count > 0 ? streams[0] : nullptr, "cusparseLtMatmul");
}

}  // extern "C"
}  // namespace berth::standin
