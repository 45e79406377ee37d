// The driver's own entry points, and how programs find them.

#include "csrc/standin/entry.h"

#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace berth::standin {
namespace {

// A context per device, of which there are at most as many: its address is the handle.
constexpr std::size_t kMostDevices = 64;
int contexts[kMostDevices];

bool is_context(Opaque context) {
  const auto* chosen = static_cast<const int*>(context);
  return chosen >= contexts && chosen < contexts + kMostDevices;
}

constexpr auto kInvalidContext = static_cast<Status>(201);

// Of CUlimit.
std::size_t limits[16] = {1024, std::size_t{1} << 20, std::size_t{8} << 20};

// What was current before each context that the thread has pushed.
struct Before {
  int device = 0;
  bool has_context = false;
};
thread_local std::vector<Before> pushed;

struct Named {
  std::string_view name;
  void* function;
};

}  // namespace

extern "C" {

int cuInit(unsigned /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return Machine::get().devices.empty() ? static_cast<Status>(100) : kSuccess;
}

int cuDriverGetVersion(int* version) {
  BERTH_STANDIN_ENTER_DRIVER();
  *version = 13000;
  return kSuccess;
}

int cuGetErrorName(int status, const char** text) {
  *text = status_name(status);
  return kSuccess;
}

int cuGetErrorString(int status, const char** text) {
  *text = status_text(status);
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  BERTH_STANDIN_ENTER_DRIVER();
  *count = static_cast<int>(Machine::get().devices.size());
  return kSuccess;
}

int cuDeviceGet(int* device, int number) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (!Machine::get().valid_device(number)) return kInvalidDevice;
  *device = number;
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Machine& machine = Machine::get();
  if (!machine.valid_device(device)) return kInvalidDevice;
  *value = attribute_of(machine.gpu, device, attribute);
  return kSuccess;
}

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return kInvalidDevice;
  *flags = 0;
  *active = entry.machine.device(device).context ? 1 : 0;
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(Opaque* context, int device) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return kInvalidDevice;
  const bool had = Machine::has_context();
  entry.machine.use(device);
  Machine::has_context() = had;  // it is made, and not the thread's
  *context = &contexts[device];
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int /*device*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return kSuccess;
}

int cuCtxGetCurrent(Opaque* context) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const int device = Machine::current_device();
  *context = Machine::has_context() && entry.machine.valid_device(device) &&
                     entry.machine.device(device).context
                 ? &contexts[device]
                 : nullptr;
  return kSuccess;
}

int cuCtxSetCurrent(Opaque context) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (context == nullptr) return kSuccess;
  if (!is_context(context)) return kInvalidContext;
  Machine::current_device() = static_cast<int>(static_cast<const int*>(context) - contexts);
  Machine::has_context() = true;
  return kSuccess;
}

// Makes no context of its own, and popping makes none on what was current before.
int cuCtxPushCurrent_v2(Opaque context) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (!is_context(context)) return kInvalidContext;
  const auto device = static_cast<int>(static_cast<const int*>(context) - contexts);
  pushed.push_back({std::exchange(Machine::current_device(), device),
                    std::exchange(Machine::has_context(), true)});
  return kSuccess;
}

int cuCtxPopCurrent_v2(Opaque* context) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (pushed.empty()) return kInvalidContext;
  if (context != nullptr) *context = &contexts[Machine::current_device()];
  Machine::current_device() = pushed.back().device;
  Machine::has_context() = pushed.back().has_context;
  pushed.pop_back();
  return kSuccess;
}

int cuCtxGetDevice(int* device) {
  BERTH_STANDIN_ENTER_DRIVER();
  *device = Machine::current_device();
  return kSuccess;
}

int cuCtxSynchronize() {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return status;
  entry.machine.drain_device(entry.lock, Machine::current_device());
  return kSuccess;
}

int cuCtxGetLimit(std::size_t* value, int limit) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (value == nullptr || limit < 0 || limit >= static_cast<int>(std::size(limits)))
    return kInvalidValue;
  const Entry entry;
  *value = limits[limit];
  return kSuccess;
}

int cuCtxSetLimit(int limit, std::size_t value) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (limit < 0 || limit >= static_cast<int>(std::size(limits))) return kInvalidValue;
  const Entry entry;
  limits[limit] = value;
  return kSuccess;
}

int cuDeviceGetName(char* name, int length, int device) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Machine& machine = Machine::get();
  if (!machine.valid_device(device) || name == nullptr || length < 1)
    return machine.valid_device(device) ? kInvalidValue : kInvalidDevice;
  name[machine.gpu.name.copy(name, static_cast<std::size_t>(length) - 1)] = '\0';
  return kSuccess;
}

int cuDeviceTotalMem_v2(std::size_t* size, int device) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return kInvalidDevice;
  *size = entry.machine.device(device).memory.total();
  return kSuccess;
}

int cuPointerGetAttribute(void* value, int attribute, std::uintptr_t address) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const Allocation* found = entry.machine.space.holding(address);
  if (found == nullptr) return kInvalidValue;
  switch (attribute) {
    case 1:
      *static_cast<Opaque*>(value) = &contexts[found->device];
      return kSuccess;  // context
    case 2:
      *static_cast<unsigned*>(value) = found->on_device() ? 2 : 1;
      return kSuccess;  // memory type
    case 3:
    case 4:
      *static_cast<std::uintptr_t*>(value) = address;
      return kSuccess;  // device, host pointer
    case 7:
      *static_cast<std::uint64_t*>(value) = found->begin;
      return kSuccess;  // buffer id
    case 8:
      *static_cast<unsigned*>(value) = found->kind == Allocation::Kind::kManaged ? 1 : 0;
      return kSuccess;  // managed
    case 9:
      *static_cast<int*>(value) = found->device;
      return kSuccess;  // ordinal
    case 11:
      *static_cast<std::uintptr_t*>(value) = found->begin;
      return kSuccess;  // start of range
    case 12:
      *static_cast<std::size_t*>(value) = found->size;
      return kSuccess;  // its size
    default:
      return kNotSupported;
  }
}

int cuMemAllocManaged(std::uintptr_t* address, std::size_t size, unsigned flags) {
  BERTH_STANDIN_ENTER_DRIVER();
  void* pointer = nullptr;
  const int status = cudaMallocManaged(&pointer, size, flags);
  if (address != nullptr) *address = reinterpret_cast<std::uintptr_t>(pointer);
  return status;
}

int cuMemPrefetchAsync_v2(std::uintptr_t address, std::size_t size, Location location,
                          unsigned flags, StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return cudaMemPrefetchAsync(reinterpret_cast<const void*>(address), size, location, flags,
                              stream);
}

int cuMemAdvise_v2(std::uintptr_t address, std::size_t size, int advice, Location location) {
  BERTH_STANDIN_ENTER_DRIVER();
  return cudaMemAdvise(reinterpret_cast<const void*>(address), size, advice, location);
}

// Looks a driver function up among those the stand-in has; one of an old interface by its newer
// name. Null where there is none.
void* driver_function(std::string_view name) {
  const Named known[] = {
      {"cuInit", reinterpret_cast<void*>(cuInit)},
      {"cuDriverGetVersion", reinterpret_cast<void*>(cuDriverGetVersion)},
      {"cuGetErrorName", reinterpret_cast<void*>(cuGetErrorName)},
      {"cuGetErrorString", reinterpret_cast<void*>(cuGetErrorString)},
      {"cuDeviceGet", reinterpret_cast<void*>(cuDeviceGet)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(cuDeviceGetCount)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(cuDeviceGetAttribute)},
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(cuDevicePrimaryCtxGetState)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(cuDevicePrimaryCtxRetain)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(cuCtxGetCurrent)},
      {"cuCtxSetCurrent", reinterpret_cast<void*>(cuCtxSetCurrent)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(cuCtxPushCurrent_v2)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(cuCtxPopCurrent_v2)},
      {"cuPointerGetAttribute", reinterpret_cast<void*>(cuPointerGetAttribute)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(cuMemAddressFree)},
      {"cuMemCreate", reinterpret_cast<void*>(cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<void*>(cuMemRelease)},
      {"cuMemMap", reinterpret_cast<void*>(cuMemMap)},
      {"cuMemUnmap", reinterpret_cast<void*>(cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(cuMemSetAccess)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(cuMemGetAllocationGranularity)},
      {"cuMemGetAllocationPropertiesFromHandle",
       reinterpret_cast<void*>(cuMemGetAllocationPropertiesFromHandle)},
      {"cuMemRetainAllocationHandle", reinterpret_cast<void*>(cuMemRetainAllocationHandle)},
      {"cuMemExportToShareableHandle", reinterpret_cast<void*>(cuMemExportToShareableHandle)},
      {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(cuMemImportFromShareableHandle)},
      {"cuMemGetAddressRange", reinterpret_cast<void*>(cuMemGetAddressRange_v2)},
      {"cuMemGetAddressRange_v2", reinterpret_cast<void*>(cuMemGetAddressRange_v2)},
      {"cuMemsetD32Async", reinterpret_cast<void*>(cuMemsetD32Async)},
      {"cuStreamWriteValue32", reinterpret_cast<void*>(cuStreamWriteValue32_v2)},
      {"cuStreamWriteValue32_v2", reinterpret_cast<void*>(cuStreamWriteValue32_v2)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(cuCtxGetDevice)},
      {"cuCtxSynchronize", reinterpret_cast<void*>(cuCtxSynchronize)},
      {"cuCtxGetLimit", reinterpret_cast<void*>(cuCtxGetLimit)},
      {"cuCtxSetLimit", reinterpret_cast<void*>(cuCtxSetLimit)},
      {"cuDeviceGetName", reinterpret_cast<void*>(cuDeviceGetName)},
      {"cuDeviceTotalMem", reinterpret_cast<void*>(cuDeviceTotalMem_v2)},
      {"cuModuleLoad", reinterpret_cast<void*>(cuModuleLoad)},
      {"cuModuleLoadData", reinterpret_cast<void*>(cuModuleLoadData)},
      {"cuModuleLoadDataEx", reinterpret_cast<void*>(cuModuleLoadDataEx)},
      {"cuModuleUnload", reinterpret_cast<void*>(cuModuleUnload)},
      {"cuModuleGetFunction", reinterpret_cast<void*>(cuModuleGetFunction)},
      {"cuLibraryLoadData", reinterpret_cast<void*>(cuLibraryLoadData)},
      {"cuLibraryUnload", reinterpret_cast<void*>(cuLibraryUnload)},
      {"cuLibraryGetKernel", reinterpret_cast<void*>(cuLibraryGetKernel)},
      {"cuKernelGetFunction", reinterpret_cast<void*>(cuKernelGetFunction)},
      {"cuFuncGetAttribute", reinterpret_cast<void*>(cuFuncGetAttribute)},
      {"cuFuncSetAttribute", reinterpret_cast<void*>(cuFuncSetAttribute)},
      {"cuFuncSetCacheConfig", reinterpret_cast<void*>(cuFuncSetCacheConfig)},
      {"cuLaunchKernel", reinterpret_cast<void*>(cuLaunchKernel)},
      {"cuLaunchKernelEx", reinterpret_cast<void*>(cuLaunchKernelEx)},
      {"cuLaunchCooperativeKernel", reinterpret_cast<void*>(cuLaunchCooperativeKernel)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor",
       reinterpret_cast<void*>(cuOccupancyMaxActiveBlocksPerMultiprocessor)},
      {"cuOccupancyMaxActiveClusters", reinterpret_cast<void*>(cuOccupancyMaxActiveClusters)},
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(cuTensorMapEncodeTiled)},
  };
  for (const Named& entry : known) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned /*version*/,
                                     unsigned long long /*flags*/, int* result) {
  BERTH_STANDIN_ENTER();
  *function = driver_function(name);
  if (result != nullptr) *result = *function != nullptr ? 0 : 1;  // found, or no such symbol
  return kSuccess;
}

int cuGetProcAddress_v2(const char* name, void** function, int /*version*/, std::uint64_t /*flags*/,
                        int* result) {
  BERTH_STANDIN_ENTER_DRIVER();
  *function = driver_function(name);
  if (result != nullptr) *result = *function != nullptr ? 0 : 1;
  return *function != nullptr ? kSuccess : kSymbolNotFound;
}

}  // extern "C"
}  // namespace berth::standin
