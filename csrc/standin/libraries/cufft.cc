// cuFFT: plans that know their stream and want as much workspace as the data they transform.

#include "csrc/standin/control.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace berth::standin {
namespace {

constexpr int kInvalidPlan = 1;  // CUFFT_INVALID_PLAN
constexpr int kInvalidValueOfFft = 4;

struct Plan {
  StreamHandle stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_size = 0;
};

struct Plans {
  std::mutex mutex;
  std::map<int, Plan> all;
  int next = 1;
};

Plans& plans() {
  static auto* the_plans = new Plans;
  return *the_plans;
}

// Calls `use` with the plan of a handle.
template <class Use>
int with_plan(const char* name, int handle, Use use) {
  if (const int status = berth_standin_enter(name); status != 0) return status;
  const std::lock_guard lock(plans().mutex);
  const auto found = plans().all.find(handle);
  return found == plans().all.end() ? kInvalidPlan : use(found->second);
}

// Bytes of a complex number whose precision is that of a cudaDataType.
std::size_t complex_bytes(int type) {
  constexpr int kReal64 = 1, kReal16 = 2, kComplex64 = 5, kComplex16 = 6;
  if (type == kReal64 || type == kComplex64) return 16;
  return type == kReal16 || type == kComplex16 ? 4 : 8;
}

}  // namespace

extern "C" {

int cufftCreate(int* handle) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  const std::lock_guard lock(plans().mutex);
  *handle = plans().next++;
  plans().all.emplace(*handle, Plan{});
  return 0;
}

int cufftDestroy(int handle) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  const std::lock_guard lock(plans().mutex);
  return plans().all.erase(handle) == 1 ? 0 : kInvalidPlan;
}

int cufftSetStream(int handle, StreamHandle stream) {
  return with_plan(__func__, handle, [&](Plan& plan) {
    plan.stream = stream;
    return 0;
  });
}

int cufftSetWorkArea(int handle, void* workspace) {
  return with_plan(__func__, handle, [&](Plan& plan) {
    plan.workspace = workspace;
    return 0;
  });
}

int cufftXtMakePlanMany(int handle, int rank, const long long* lengths, const long long* /*embed*/,
                        long long /*stride*/, long long /*distance*/, int type,
                        const long long* /*out_embed*/, long long /*out_stride*/,
                        long long /*out_distance*/, int /*out_type*/, long long batch,
                        std::size_t* workspace_size, int /*compute_type*/) {
  return with_plan(__func__, handle, [&](Plan& plan) {
    if (rank < 1 || rank > 3 || batch < 1 || workspace_size == nullptr) return kInvalidValueOfFft;
    plan.workspace_size = complex_bytes(type) * static_cast<std::size_t>(batch);
    for (int i = 0; i < rank; ++i) {
      if (lengths[i] < 1) return kInvalidValueOfFft;
      plan.workspace_size *= static_cast<std::size_t>(lengths[i]);
    }
    *workspace_size = plan.workspace_size;
    return 0;
  });
}

int cufftXtExec(int handle, void* /*from*/, void* /*to*/, int /*direction*/) {
  return with_plan(__func__, handle, [&](const Plan& plan) {
    const BerthStandinAccess access{plan.workspace, plan.workspace_size, 1};
    const std::size_t uses = plan.workspace != nullptr && plan.workspace_size != 0 ? 1 : 0;
    return berth_standin_launch(plan.stream, "cufftXtExec", &access, uses);
  });
}

}  // extern "C"
}  // namespace berth::standin
