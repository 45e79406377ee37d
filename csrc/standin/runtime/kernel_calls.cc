// Kernels do nothing: they are counted and take their place in the stream. Those that pass time do.

#include "csrc/standin/control.h"
#include "csrc/standin/entry.h"
#include "csrc/standin/fat_binaries.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace berth::standin {
namespace {

Status launch(StreamHandle handle, const char* name, std::chrono::nanoseconds spin) {
  return on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    return entry.machine.enqueue(entry.lock, *stream,
                                 {.kind = Operation::Kind::kKernel, .name = name, .spin = spin});
  });
}

int launch_declared(StreamHandle handle, const char* name, const BerthStandinAccess* accesses,
                    std::size_t count, std::uint64_t microseconds) {
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    Operation operation{
        .kind = Operation::Kind::kKernel, .name = name, .clock_us = 1 + microseconds};
    for (std::size_t i = 0; i < count; ++i) {
      operation.accesses.push_back(
          {reinterpret_cast<std::uintptr_t>(accesses[i].pointer), accesses[i].size,
           accesses[i].writes != 0 ? Accesses::Kind::kWrite : Accesses::Kind::kRead});
    }
    return entry.machine.enqueue(entry.lock, *stream, std::move(operation));
  });
}

// The kernels that only pass time, by the address that stands for them: torch.cuda._sleep(), with
// which programs and tests keep a stream busy. They are known by their name.
std::set<const void*>& spin_kernels() {
  static std::set<const void*> kernels;
  return kernels;
}

// How long a launch keeps its stream busy: cycles of a clock of 1 GHz.
std::chrono::nanoseconds spin_of(const void* function, void** arguments) {
  const std::set<const void*>& kernels = spin_kernels();
  if (arguments == nullptr || kernels.find(function) == kernels.end())
    return std::chrono::nanoseconds(0);
  return std::chrono::nanoseconds(
      std::max<std::int64_t>(0, *static_cast<const std::int64_t*>(arguments[0])));
}

// What <<<...>>> put aside for the launch that follows.
struct CallConfiguration {
  Dim3 grid, block;
  std::size_t shared = 0;
  StreamHandle stream = nullptr;
};

std::vector<CallConfiguration>& call_configurations() {
  thread_local std::vector<CallConfiguration> stack;
  return stack;
}

}  // namespace

extern "C" {

int cudaLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments,
                     std::size_t /*shared*/, StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0) {
    return remember(static_cast<Status>(9));  // cudaErrorInvalidConfiguration
  }
  return remember(launch(stream, "kernel", spin_of(function, arguments)));
}

int cudaLaunchCooperativeKernel(const void* function, Dim3 grid, Dim3 block, void** arguments,
                                std::size_t shared, StreamHandle stream) {
  return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

int cudaLaunchKernelExC(const LaunchConfig* config, const void* function, void** arguments) {
  return cudaLaunchKernel(function, config->grid, config->block, arguments,
                          config->dynamic_shared_bytes, config->stream);
}

// What compiled code calls for kernel<<<...>>>().
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, std::size_t shared,
                                     StreamHandle stream) {
  call_configurations().push_back({grid, block, shared, stream});
  return 0;
}

int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, std::size_t* shared, StreamHandle* stream) {
  if (call_configurations().empty()) return remember(kInvalidValue);
  const CallConfiguration top = call_configurations().back();
  call_configurations().pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *stream = top.stream;
  return kSuccess;
}

int __cudaGetKernel(Opaque* kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return kSuccess;
}

int __cudaLaunchKernel(Opaque kernel, Dim3 grid, Dim3 block, void** arguments, std::size_t shared,
                       StreamHandle stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

// Thousands of kernels are registered before main; what their code does is not looked at.
void** __cudaRegisterFatBinary(void* binary) {
  note_fat_binary(binary);
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** /*handle*/) {}
char __cudaInitModule(void** /*handle*/) { return 1; }
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  if (std::string_view(name).ends_with("spin_kernelEl")) spin_kernels().insert(function);
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

int cudaFuncGetAttributes(FunctionAttributes* attributes, const void* function) {
  BERTH_STANDIN_ENTER();
  const GpuModel& gpu = Machine::get().gpu;
  *attributes = {};
  attributes->max_threads_per_block = 1024;
  attributes->registers = 32;
  // CUB looks for the parameters of a sort by it, among those of the GPUs that it was compiled for.
  attributes->ptx_version = attributes->binary_version =
      static_cast<int>(code_version(function, gpu));
  attributes->max_dynamic_shared_bytes = 48 * 1024;
  return kSuccess;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* /*function*/, int block,
                                                  std::size_t /*shared*/) {
  BERTH_STANDIN_ENTER();
  if (block <= 0) return remember(kInvalidValue);
  const GpuModel& gpu = Machine::get().gpu;
  *blocks =
      std::max(1, std::min(gpu.blocks_per_multiprocessor, gpu.threads_per_multiprocessor / block));
  return kSuccess;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                           int block, std::size_t shared,
                                                           unsigned /*flags*/) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared);
}

// Each symbol of device memory gets room of its own on each device, the same one every time.
int cudaGetSymbolAddress(void** pointer, const void* symbol) {
  BERTH_STANDIN_ENTER();
  static std::map<std::pair<int, const void*>, void*> symbols;
  Entry entry;
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  void*& address = symbols[{Machine::current_device(), symbol}];
  if (address == nullptr) {
    Allocation made;
    constexpr std::size_t kRoom = std::size_t{64} << 10;  // all of constant memory
    const Status status =
        entry.machine.allocate(Machine::current_device(), kRoom, Allocation::Kind::kDevice, made);
    if (status != kSuccess) return remember(status);
    address = reinterpret_cast<void*>(made.begin);
  }
  *pointer = address;
  return kSuccess;
}

int cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t size, std::size_t offset,
                       int kind) {
  void* address = nullptr;
  if (const int status = cudaGetSymbolAddress(&address, symbol); status != kSuccess) return status;
  return cudaMemcpy(static_cast<char*>(address) + offset, from, size, kind);
}

// A kernel of a test, with what it reads and writes.
int berth_standin_launch(StreamHandle handle, const char* name, const BerthStandinAccess* accesses,
                         std::size_t count) {
  BERTH_STANDIN_ENTER();
  return launch_declared(handle, name, accesses, count, 0);
}

int berth_standin_launch_for(StreamHandle handle, const char* name,
                             const BerthStandinAccess* accesses, std::size_t count,
                             std::uint64_t microseconds) {
  BERTH_STANDIN_ENTER();
  return launch_declared(handle, name, accesses, count, microseconds);
}

}  // extern "C"
}  // namespace berth::standin
