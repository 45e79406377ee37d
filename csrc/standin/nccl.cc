// NCCL with communicators of one rank: every collective is a copy, or nothing. More ranks are
// refused.

#include "csrc/standin/api.h"
#include "csrc/standin/control.h"

#include <cstring>

namespace berth::standin {
namespace {

constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;

struct Communicator {
  int device = 0;
};

struct UniqueId {
  char bytes[128];
};

// Of ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, two
// of a byte.
constexpr std::size_t kElementBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

int make(const char* name, Communicator** made, int ranks) {
  if (const int status = berth_standin_enter(name); status != kSuccess) return status;
  if (ranks != 1) return kInvalidUsage;
  *made = new Communicator;
  return cudaGetDevice(&(*made)->device);
}

int copy(const char* name, const void* from, void* to, std::size_t count, int type,
         StreamHandle stream) {
  if (const int status = berth_standin_enter(name); status != kSuccess) return status;
  if (type < 0 || type >= static_cast<int>(sizeof kElementBytes / sizeof *kElementBytes))
    return kInvalidArgument;
  if (from == to) return berth_standin_library_work(stream, name);
  return cudaMemcpyAsync(to, from, count * kElementBytes[type], kDeviceToDevice, stream);
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = BERTH_STANDIN_NCCL_VERSION;
  return 0;
}

const char* ncclGetErrorString(int status) {
  return status == 0 ? "no error" : "the stand-in's NCCL knows communicators of one rank only";
}

const char* ncclGetLastError(Communicator* /*communicator*/) { return ""; }

int ncclGetUniqueId(UniqueId* id) {
  *id = {};
  std::memcpy(id->bytes, "berth stand-in", 15);
  return 0;
}

int ncclCommInitRank(Communicator** made, int ranks, UniqueId /*id*/, int /*rank*/) {
  return make(__func__, made, ranks);
}
int ncclCommInitRankConfig(Communicator** made, int ranks, UniqueId /*id*/, int /*rank*/,
                           void* /*config*/) {
  return make(__func__, made, ranks);
}
int ncclCommInitRankScalable(Communicator** made, int ranks, int /*rank*/, int /*ids*/,
                             UniqueId* /*id*/, void* /*config*/) {
  return make(__func__, made, ranks);
}
int ncclCommInitAll(Communicator** made, int devices, const int* /*list*/) {
  return make(__func__, made, devices);
}
int ncclCommSplit(Communicator* /*from*/, int color, int /*key*/, Communicator** made,
                  void* /*config*/) {
  *made = nullptr;
  return color < 0 ? 0 : make(__func__, made, 1);
}

int ncclCommDestroy(Communicator* communicator) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  delete communicator;
  return 0;
}

int ncclCommAbort(Communicator* communicator) { return ncclCommDestroy(communicator); }

int ncclCommCount(Communicator* /*communicator*/, int* count) {
  *count = 1;
  return 0;
}

int ncclCommUserRank(Communicator* /*communicator*/, int* rank) {
  *rank = 0;
  return 0;
}

int ncclCommGetAsyncError(Communicator* /*communicator*/, int* status) {
  *status = 0;
  return 0;
}

int ncclMemAlloc(void** pointer, std::size_t size) { return cudaMalloc(pointer, size); }
int ncclMemFree(void* pointer) { return cudaFree(pointer); }

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int, Communicator*,
                  StreamHandle stream) {
  return copy(__func__, from, to, count, type, stream);
}
int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int, Communicator*,
                      StreamHandle stream) {
  return copy(__func__, from, to, count, type, stream);
}
int ncclReduce(const void* from, void* to, std::size_t count, int type, int, int, Communicator*,
               StreamHandle stream) {
  return copy(__func__, from, to, count, type, stream);
}
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int, Communicator*,
                  StreamHandle stream) {
  return copy(__func__, from, to, count, type, stream);
}
int ncclBcast(void* data, std::size_t count, int type, int, Communicator*, StreamHandle stream) {
  return copy(__func__, data, data, count, type, stream);
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, Communicator*,
                  StreamHandle stream) {
  return copy(__func__, from, to, count, type, stream);
}
int ncclAlltoAll(const void* from, void* to, std::size_t count, int type, Communicator*,
                 StreamHandle stream) {
  return copy(__func__, from, to, count, type, stream);
}

}  // extern "C"
}  // namespace berth::standin
