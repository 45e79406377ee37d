// cuBLASLt: descriptors, and heuristics that always find algorithms, so that fused products are
// taken.

#include "csrc/standin/control.h"
#include "csrc/standin/library_handle.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace berth::standin {
namespace {

constexpr int kInvalidValueOfBlas = 7;  // CUBLAS_STATUS_INVALID_VALUE
constexpr int kMaxWorkspaceAttribute = 1;

// Descriptors and layouts are passed back only, so they need no contents.
struct Object {
  std::uint64_t max_workspace = 0;  // of a preference
};

struct Algorithm {
  std::uint64_t data[8];
};

struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

// What the algorithms take, best first.
constexpr std::uint64_t kWorkspaces[] = {std::uint64_t{4} << 20, std::uint64_t{1} << 20, 0};

int create(const char* name, Object** object) {
  if (const int status = berth_standin_enter(name); status != kSuccess) return status;
  *object = new Object;
  return 0;
}

int destroy(const char* name, Object* object) {
  if (const int status = berth_standin_enter(name); status != kSuccess) return status;
  delete object;
  return 0;
}

}  // namespace

extern "C" {

int cublasLtCreate(LibraryHandle** handle) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  *handle = new LibraryHandle;
  return 0;
}

std::size_t cublasLtGetVersion() { return 130000; }

int cublasLtMatmulDescCreate(Object** object, int /*compute*/, int /*scale*/) {
  return create(__func__, object);
}
int cublasLtMatmulDescDestroy(Object* object) { return destroy(__func__, object); }
int cublasLtMatrixLayoutCreate(Object** object, int, std::uint64_t, std::uint64_t, std::int64_t) {
  return create(__func__, object);
}
int cublasLtMatrixLayoutDestroy(Object* object) { return destroy(__func__, object); }
int cublasLtMatmulPreferenceCreate(Object** object) { return create(__func__, object); }
int cublasLtMatmulPreferenceDestroy(Object* object) { return destroy(__func__, object); }

int cublasLtMatmulPreferenceSetAttribute(Object* preference, int attribute, const void* value,
                                         std::size_t size) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  if (attribute == kMaxWorkspaceAttribute && size == sizeof preference->max_workspace) {
    std::memcpy(&preference->max_workspace, value, size);
  }
  return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void* /*handle*/, Object* /*description*/, Object* /*a*/,
                                   Object* /*b*/, Object* /*c*/, Object* /*d*/, Object* preference,
                                   int wanted, HeuristicResult* results, int* count) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  if (preference == nullptr || results == nullptr || count == nullptr || wanted < 1)
    return kInvalidValueOfBlas;
  *count = 0;
  for (std::size_t i = 0; i < std::size(kWorkspaces) && *count < wanted; ++i) {
    if (kWorkspaces[i] > preference->max_workspace) continue;
    HeuristicResult& result = results[(*count)++];
    result = {};
    result.algorithm.data[0] = i + 1;
    result.workspace = kWorkspaces[i];
    result.waves = 1.0F;
  }
  return 0;
}

int cublasLtMatmul(void* /*handle*/, Object* /*description*/, const void* /*alpha*/,
                   const void* /*a*/, Object* /*a_layout*/, const void* /*b*/, Object* /*b_layout*/,
                   const void* /*beta*/, const void* /*c*/, Object* /*c_layout*/, void* /*d*/,
                   Object* /*d_layout*/, const Algorithm* algorithm, void* workspace,
                   std::size_t workspace_size, StreamHandle stream) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  BerthStandinAccess access{workspace, workspace_size, 1};
  if (algorithm != nullptr && algorithm->data[0] >= 1 &&
      algorithm->data[0] <= std::size(kWorkspaces)) {
    access.size = std::min<std::size_t>(workspace_size, kWorkspaces[algorithm->data[0] - 1]);
  }
  const std::size_t uses = workspace != nullptr && access.size != 0 ? 1 : 0;
  return berth_standin_launch(stream, "cublasLtMatmul", &access, uses);
}

}  // extern "C"
}  // namespace berth::standin
