// Programs of their own for tests that need a fresh process. Exit code 0 where all is well, else a
// line that says what is not.

#include "csrc/cuda/cuda_device.h"
#include "csrc/standin/control.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

using namespace berth;

namespace {

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      std::printf("%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                   \
    }                                                                 \
  } while (false)

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

// `size` bytes at `offset` of what was shared are 1 each; afterwards they are 2.
void open(const std::string& handle, Bytes offset, Bytes size) {
  const auto device = make_cuda_device({});
  std::shared_ptr<void> base, again;
  const Status status = device->open_shared(handle, &base);
  if (!status.ok()) std::puts(device->describe(status).c_str());
  CHECK(status.ok());
  auto* const shared = static_cast<std::byte*>(base.get()) + offset;
  std::vector<std::byte> bytes(size);
  CHECK(cudaMemcpy(bytes.data(), shared, size, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{1}; }));
  CHECK(cudaMemset(shared, 2, size) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);

  // One mapping, as long as anybody holds it.
  CHECK(device->open_shared(handle, &again).ok());
  CHECK(again == base);
  base.reset();
  CHECK(cudaMemset(again.get(), 2, 1) == cudaSuccess);
  again.reset();
  CHECK(standin::berth_standin_live_allocations() == 0);

  // Whichever call fails, nothing stays mapped, and the next try is as good as the first.
  for (const char* name : {"cudaIpcOpenMemHandle", "cuMemImportFromShareableHandle",
                           "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    for (std::uint64_t n = 1;; ++n) {
      const std::uint64_t before = standin::berth_standin_calls(name);
      standin::berth_standin_fail(name, n, cudaErrorNotPermitted, 1);
      const Status failed = device->open_shared(handle, &base);
      const bool met = standin::berth_standin_calls(name) - before >= n;
      standin::berth_standin_clear_faults();
      CHECK(failed.ok() != met);
      CHECK(!met || failed.call() == std::string(name));
      CHECK((base == nullptr) == met);
      base.reset();
      CHECK(standin::berth_standin_live_allocations() == 0);
      if (!met) break;
    }
  }
  // It may outlive the device that opened it.
  auto other = make_cuda_device({});
  CHECK(other->open_shared(handle, &base).ok());
  other.reset();
  CHECK(cudaMemset(base.get(), 2, 1) == cudaSuccess);
  base.reset();
  CHECK(standin::berth_standin_live_allocations() == 0);
}

// As in a container without ptrace rights, and with few descriptors left.
void confine() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 438, 0, 1),  // pidfd_getfd
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  const std::filesystem::directory_iterator open("/proc/self/fd");
  rlimit few{};
  CHECK(getrlimit(RLIMIT_NOFILE, &few) == 0);
  few.rlim_cur = static_cast<rlim_t>(std::distance(begin(open), end(open))) + 30;
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
}

bool has_context(int device) {
  unsigned flags = 0;
  int active = 0;
  CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS);
  return active != 0;
}

// Using the second GPU makes a context there and none on the first, which is the thread's current
// one all along.
void contexts() {
  for (const auto kind : {CudaOptions::Memory::kVirtual, CudaOptions::Memory::kPlain}) {
    const auto device = make_cuda_device({.index = 1, .memory = kind});
    CHECK(kind == CudaOptions::Memory::kPlain || has_context(1));  // it is tried at once
    void* base = nullptr;
    CHECK(device->reserve(Bytes{8} << 20, 0, &base).ok());
    CHECK(device->commit(base, Bytes{8} << 20, Device::Residency::kResident).ok());
    DeviceEvent event = 0;
    CHECK(device->record(0, &event).ok());
    device->destroy(event);
    CHECK(device->synchronize_all().ok());
    CHECK(device->release(base, Bytes{8} << 20).ok());
    CHECK(has_context(1));
    CHECK(!has_context(0));
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 0);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view mode = count > 1 ? arguments[1] : "";
  if (mode == "contexts") {
    contexts();
  } else if ((mode == "open" || mode == "open-confined") && count == 5) {
    if (mode == "open-confined") confine();
    open(from_hex(arguments[2]), std::stoull(arguments[3]), std::stoull(arguments[4]));
  } else {
    std::puts("wanted: contexts, or open or open-confined HANDLE OFFSET SIZE");
    return 2;
  }
  return 0;
}
