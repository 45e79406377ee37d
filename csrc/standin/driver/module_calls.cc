// The driver's modules: kernels that were compiled while the program runs, by Triton or nvrtc. They
// are loaded, asked for what they take, and launched as nothing, in their stream's turn.

#include "csrc/standin/driver/module.h"
#include "csrc/standin/entry.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <unordered_map>

namespace berth::standin {
namespace {

constexpr auto kFileNotFound = static_cast<Status>(301);
constexpr auto kInvalidImage = static_cast<Status>(200);
constexpr auto kNotFound = static_cast<Status>(500);
constexpr auto kOutOfResources = static_cast<Status>(701);

// What a kernel counts for in the times of events. Autotuners repeat one until they have measured
// it for long enough.
constexpr std::uint64_t kKernelUs = 10;

// Of CUfunction_attribute.
enum FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedBytes = 1,
  kConstantBytes = 2,
  kLocalBytes = 3,
  kRegisters = 4,
  kPtxVersion = 5,
  kBinaryVersion = 6,
  kMaxDynamicSharedBytes = 8,
};

// CUlaunchConfig.
struct DriverLaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared;
  StreamHandle stream;
  void* attributes;
  unsigned attribute_count;
};

// By handle, under the machine's lock. A handle of a kernel is its address.
struct Modules {
  std::unordered_map<Opaque, std::unique_ptr<Module>> loaded;
  std::unordered_map<const void*, Module*> kernels;

  static Modules& all() {
    static auto* modules = new Modules;
    return *modules;
  }

  Opaque add(std::unique_ptr<Module> made) {
    Module* const module = made.get();
    loaded.emplace(module, std::move(made));
    return module;
  }
  Status remove(Opaque handle) {
    if (loaded.find(handle) == loaded.end()) return kInvalidResourceHandle;
    std::erase_if(kernels, [&](const auto& kernel) { return kernel.second == handle; });
    loaded.erase(handle);
    return kSuccess;
  }
  Status find(Opaque handle, const char* name, Opaque* kernel) {
    const auto module = loaded.find(handle);
    if (module == loaded.end()) return kInvalidResourceHandle;
    KernelFunction* const found = name != nullptr ? module->second->find(name) : nullptr;
    if (found == nullptr) return kNotFound;
    kernels.emplace(found, module->second.get());
    *kernel = found;
    return kSuccess;
  }
  KernelFunction* kernel(Opaque handle) {
    return kernels.find(handle) == kernels.end() ? nullptr : static_cast<KernelFunction*>(handle);
  }
};

Status load(Opaque* module, const void* image, std::size_t size) {
  Entry entry;
  entry.machine.use(Machine::current_device());
  std::unique_ptr<Module> made = Module::load(image, size);
  if (made == nullptr || module == nullptr) return made == nullptr ? kInvalidImage : kInvalidValue;
  *module = Modules::all().add(std::move(made));
  return kSuccess;
}

Status launch(Opaque function, const unsigned (&grid)[3], const unsigned (&block)[3],
              unsigned shared, StreamHandle stream) {
  return on_stream(stream, [&](Entry& entry, const StreamPointer& pointer) {
    const KernelFunction* const kernel = Modules::all().kernel(function);
    if (kernel == nullptr) return kInvalidResourceHandle;
    std::uint64_t threads = 1;
    for (const unsigned side : block) threads *= side;
    if (threads == 0 || threads > 1024 || std::ranges::count(grid, 0U) != 0 ||
        shared > static_cast<unsigned>(kernel->max_dynamic_shared_bytes)) {
      return kInvalidValue;
    }
    if (threads > static_cast<std::uint64_t>(kernel->max_threads_per_block()))
      return kOutOfResources;
    return entry.machine.enqueue(
        entry.lock, *pointer,
        {.kind = Operation::Kind::kKernel, .name = kernel->name, .clock_us = kKernelUs});
  });
}

}  // namespace

extern "C" {

int cuModuleLoadData(Opaque* module, const void* image) {
  BERTH_STANDIN_ENTER_DRIVER();
  return load(module, image, std::size_t{1} << 40);
}

int cuModuleLoadDataEx(Opaque* module, const void* image, unsigned /*count*/, int* /*options*/,
                       void** /*values*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return load(module, image, std::size_t{1} << 40);
}

int cuModuleLoad(Opaque* module, const char* path) {
  BERTH_STANDIN_ENTER_DRIVER();
  std::ifstream file(path, std::ios::binary);
  if (!file) return kFileNotFound;
  const std::string image((std::istreambuf_iterator<char>(file)), {});
  return load(module, image.data(), image.size());
}

int cuModuleUnload(Opaque module) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  return Modules::all().remove(module);
}

int cuModuleGetFunction(Opaque* function, Opaque module, const char* name) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  return Modules::all().find(module, name, function);
}

// The newer names of the same; a kernel of a library is its function.
int cuLibraryLoadData(Opaque* library, const void* image, int* /*options*/, void** /*values*/,
                      unsigned /*count*/, int* /*library_options*/, void** /*library_values*/,
                      unsigned /*library_count*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return load(library, image, std::size_t{1} << 40);
}

int cuLibraryUnload(Opaque library) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  return Modules::all().remove(library);
}

int cuLibraryGetKernel(Opaque* kernel, Opaque library, const char* name) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  return Modules::all().find(library, name, kernel);
}

int cuKernelGetFunction(Opaque* function, Opaque kernel) {
  BERTH_STANDIN_ENTER_DRIVER();
  *function = kernel;
  return kSuccess;
}

int cuFuncGetAttribute(int* value, int attribute, Opaque function) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  const KernelFunction* const kernel = Modules::all().kernel(function);
  if (kernel == nullptr || value == nullptr)
    return value == nullptr ? kInvalidValue : kInvalidResourceHandle;
  *value = 0;
  switch (attribute) {
    case kMaxThreadsPerBlock:
      *value = kernel->max_threads_per_block();
      break;
    case kSharedBytes:
      *value = kernel->shared_bytes;
      break;
    case kLocalBytes:
      *value = kernel->local_bytes;
      break;
    case kRegisters:
      *value = kernel->registers;
      break;
    case kPtxVersion:
    case kBinaryVersion:
      *value = entry.machine.gpu.major * 10 + entry.machine.gpu.minor;
      break;
    case kMaxDynamicSharedBytes:
      *value = kernel->max_dynamic_shared_bytes;
      break;
    default:
      break;
  }
  return kSuccess;
}

int cuFuncSetAttribute(Opaque function, int attribute, int value) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  KernelFunction* const kernel = Modules::all().kernel(function);
  if (kernel == nullptr) return kInvalidResourceHandle;
  if (attribute != kMaxDynamicSharedBytes) return kSuccess;
  const auto most = static_cast<std::int64_t>(entry.machine.gpu.shared_per_block_optin);
  if (value < 0 || value > most - kernel->shared_bytes) return kInvalidValue;
  kernel->max_dynamic_shared_bytes = value;
  return kSuccess;
}

int cuFuncSetCacheConfig(Opaque /*function*/, int /*config*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return kSuccess;
}

int cuLaunchKernel(Opaque function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   StreamHandle stream, void** /*arguments*/, void** /*extra*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream);
}

int cuLaunchCooperativeKernel(Opaque function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                              StreamHandle stream, void** /*arguments*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream);
}

int cuLaunchKernelEx(const void* config, Opaque function, void** /*arguments*/, void** /*extra*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (config == nullptr) return kInvalidValue;
  DriverLaunchConfig asked;
  std::memcpy(&asked, config, sizeof asked);
  return launch(function, asked.grid, asked.block, asked.shared, asked.stream);
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Opaque function, int block,
                                                std::size_t shared) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  const GpuModel& gpu = entry.machine.gpu;
  const KernelFunction* const kernel = Modules::all().kernel(function);
  if (kernel == nullptr || block <= 0 || blocks == nullptr)
    return kernel == nullptr ? kInvalidResourceHandle : kInvalidValue;
  const std::size_t shared_of_block =
      shared + static_cast<std::size_t>(kernel->shared_bytes) + 1024;
  *blocks = std::min({gpu.blocks_per_multiprocessor, gpu.threads_per_multiprocessor / block,
                      65536 / std::max(1, kernel->registers * block),
                      static_cast<int>(gpu.shared_per_multiprocessor / shared_of_block)});
  return kSuccess;
}

// One cluster for so many multiprocessors as it has blocks.
int cuOccupancyMaxActiveClusters(int* clusters, Opaque /*function*/, const void* config) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (clusters == nullptr || config == nullptr) return kInvalidValue;
  DriverLaunchConfig asked;
  std::memcpy(&asked, config, sizeof asked);
  *clusters = Machine::get().gpu.multiprocessors / static_cast<int>(std::max(1U, asked.grid[0]));
  return kSuccess;
}

// The map of a tensor that the copy engine of a kernel follows; nothing here follows it.
int cuTensorMapEncodeTiled(void* map, int /*type*/, unsigned rank, void* address,
                           const void* /*sizes*/, const void* /*strides*/, const void* /*box*/,
                           const void* /*steps*/, int /*interleave*/, int /*swizzle*/,
                           int /*promotion*/, int /*fill*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  constexpr std::size_t kSize = 128;
  if (map == nullptr || rank < 1 || rank > 5 || reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    return kInvalidValue;
  std::memset(map, 0, kSize);
  std::memcpy(map, &address, sizeof address);
  return kSuccess;
}

}  // extern "C"
}  // namespace berth::standin
