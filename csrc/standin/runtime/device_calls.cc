#include "csrc/standin/entry.h"

#include <cstdio>
#include <cstring>

namespace berth::standin {

extern "C" {

int cudaGetDeviceCount(int* count) {
  BERTH_STANDIN_ENTER();
  if (count == nullptr) return remember(kInvalidValue);
  *count = static_cast<int>(Machine::get().devices.size());
  return *count != 0 ? kSuccess : remember(static_cast<Status>(100));  // cudaErrorNoDevice
}

int cudaGetDevice(int* device) {
  BERTH_STANDIN_ENTER();
  *device = Machine::current_device();
  return kSuccess;
}

int cudaSetDevice(int device) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return remember(kInvalidDevice);
  Machine::current_device() = device;
  entry.machine.use(device);
  return kSuccess;
}

int cudaGetDeviceProperties(DeviceProperties* properties, int device) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return remember(kInvalidDevice);
  *properties =
      properties_of(entry.machine.gpu, device, entry.machine.device(device).memory.total());
  return kSuccess;
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return remember(kInvalidDevice);
  *value = attribute_of(entry.machine.gpu, device, attribute);
  return kSuccess;
}

int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return remember(kInvalidDevice);
  if (length < 13) return remember(kInvalidValue);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                static_cast<unsigned>(device + 1) & 0xff);
  return kSuccess;
}

int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  unsigned domain = 0, bus = 0;
  if (std::sscanf(text, "%x:%x:", &domain, &bus) != 2 ||
      !entry.machine.valid_device(static_cast<int>(bus) - 1)) {
    return remember(kInvalidDevice);
  }
  *device = static_cast<int>(bus) - 1;
  return kSuccess;
}

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  BERTH_STANDIN_ENTER();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}

int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(device) || !entry.machine.valid_device(peer))
    return remember(kInvalidDevice);
  *can = device != peer && entry.machine.gpu.peer_access;
  return kSuccess;
}

int cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const int device = Machine::current_device();
  if (!entry.machine.valid_device(peer)) return remember(kInvalidDevice);
  if (flags != 0) return remember(kInvalidValue);
  if (peer == device || !entry.machine.gpu.peer_access) return remember(kPeerAccessUnsupported);
  if (!entry.machine.device(device).peers.insert(peer).second)
    return remember(kPeerAccessAlreadyEnabled);
  return kSuccess;
}

int cudaDeviceDisablePeerAccess(int peer) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(peer)) return remember(kInvalidDevice);
  if (entry.machine.device(Machine::current_device()).peers.erase(peer) == 0)
    return remember(kPeerAccessNotEnabled);
  return kSuccess;
}

int cudaDeviceSynchronize() {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  entry.machine.drain_device(entry.lock, Machine::current_device());
  return kSuccess;
}

// Waits for the device; allocations stay, since nothing here is to be repaired by a reset.
int cudaDeviceReset() { return cudaDeviceSynchronize(); }

int cudaDriverGetVersion(int* version) {
  BERTH_STANDIN_ENTER();
  *version = 13000;
  return kSuccess;
}

int cudaRuntimeGetVersion(int* version) {
  BERTH_STANDIN_ENTER();
  *version = 13000;
  return kSuccess;
}

int cudaGetLastError() { return last_error(true); }
int cudaPeekAtLastError() { return last_error(false); }
const char* cudaGetErrorName(int status) { return status_name(status); }
const char* cudaGetErrorString(int status) { return status_text(status); }

}  // extern "C"
}  // namespace berth::standin
