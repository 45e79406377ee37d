#include "csrc/standin/gpu_model.h"

#include <algorithm>
#include <cstring>

namespace berth::standin {
namespace {

constexpr std::size_t kKiB = 1024;

}  // namespace

DeviceProperties properties_of(const GpuModel& gpu, int device, std::size_t total_memory) {
  DeviceProperties p{};
  gpu.name.copy(p.name, sizeof p.name - 1);
  std::memcpy(p.uuid.bytes, "berth stand-in ", 15);
  p.uuid.bytes[15] = static_cast<char>('0' + device);
  p.total_global_memory = total_memory;
  p.shared_memory_per_block = 48 * kKiB;
  p.registers_per_block = 65536;
  p.warp_size = 32;
  p.memory_pitch = 0x7fffffff;
  p.max_threads_per_block = 1024;
  p.max_threads_dim[0] = p.max_threads_dim[1] = 1024;
  p.max_threads_dim[2] = 64;
  p.max_grid_size[0] = 0x7fffffff;
  p.max_grid_size[1] = p.max_grid_size[2] = 65535;
  p.total_constant_memory = 64 * kKiB;
  p.major = gpu.major;
  p.minor = gpu.minor;
  p.texture_alignment = 512;
  p.texture_pitch_alignment = 32;
  p.multiprocessor_count = gpu.multiprocessors;
  p.can_map_host_memory = 1;
  std::ranges::fill(p.textures, 16384);
  std::ranges::fill(p.surfaces, 16384);
  p.surface_alignment = 512;
  p.concurrent_kernels = 1;
  p.pci_bus_id = device + 1;
  p.async_engine_count = 3;
  p.unified_addressing = 1;
  p.memory_bus_width = gpu.memory_bus_bits;
  p.l2_cache_size = gpu.l2_cache;
  p.max_threads_per_multiprocessor = gpu.threads_per_multiprocessor;
  p.stream_priorities_supported = 1;
  p.global_l1_cache_supported = 1;
  p.local_l1_cache_supported = 1;
  p.shared_memory_per_multiprocessor = gpu.shared_per_multiprocessor;
  p.registers_per_multiprocessor = 65536;
  p.managed_memory = 1;
  p.compute_preemption_supported = 1;
  p.can_use_host_pointer_for_registered_memory = 1;
  p.cooperative_launch = 1;
  p.shared_memory_per_block_optin = gpu.shared_per_block_optin;
  p.max_blocks_per_multiprocessor = gpu.blocks_per_multiprocessor;
  p.reserved_shared_memory_per_block = 1 * kKiB;
  p.host_register_supported = 1;
  p.memory_pools_supported = 1;
  p.memory_pool_supported_handle_types = 1;
  p.ipc_event_supported = 1;
  p.cluster_launch = gpu.major >= 9;
  p.device_numa_id = -1;
  p.host_numa_id = -1;
  return p;
}

int attribute_of(const GpuModel& gpu, int device, int attribute) {
  switch (attribute) {
    case 1:
      return 1024;  // threads per block
    case 2:
    case 3:
      return 1024;  // block dimensions x, y
    case 4:
      return 64;  // z
    case 5:
      return 0x7fffffff;  // grid dimension x
    case 6:
    case 7:
      return 65535;  // y, z
    case 8:
      return 48 * 1024;  // shared memory per block
    case 9:
      return 64 * 1024;  // constant memory
    case 10:
      return 32;  // warp
    case 11:
      return 0x7fffffff;  // pitch
    case 12:
      return 65536;  // registers per block
    case 13:
      return 1'755'000;  // clock, kHz
    case 14:
      return 512;  // texture alignment
    case 15:
      return 1;  // copies beside kernels
    case 16:
      return gpu.multiprocessors;
    case 19:
      return 1;  // maps host memory
    case 31:
      return 1;  // concurrent kernels
    case 33:
      return device + 1;  // PCI bus
    case 36:
      return 2'619'000;  // memory clock, kHz
    case 37:
      return gpu.memory_bus_bits;
    case 38:
      return gpu.l2_cache;
    case 39:
      return gpu.threads_per_multiprocessor;
    case 40:
      return 3;  // copy engines
    case 41:
      return 1;  // unified addressing
    case 75:
      return gpu.major;
    case 76:
      return gpu.minor;
    case 78:
      return 1;  // stream priorities
    case 79:
    case 80:
      return 1;  // L1 caches of globals and locals
    case 81:
      return static_cast<int>(gpu.shared_per_multiprocessor);
    case 82:
      return 65536;  // registers per multiprocessor
    case 83:
      return 1;  // managed memory
    case 90:
      return 1;  // compute preemption
    case 91:
      return 1;  // host pointers of registered memory
    case 92:
    case 93:
    case 94:
      return 1;  // stream memory operations
    case 95:
      return 1;  // cooperative launch
    case 97:
      return static_cast<int>(gpu.shared_per_block_optin);
    case 99:
      return 1;  // host registration
    case 102:
    case 103:
      return 1;  // virtual memory, file descriptors of it
    case 106:
      return gpu.blocks_per_multiprocessor;
    case 110:
      return gpu.peer_access;  // virtual memory for RDMA: GPUs of data centres
    case 111:
      return 1024;  // shared memory the driver keeps per block
    case 115:
      return 1;  // memory pools
    case 119:
      return 1;  // handle types of pools
    case 120:
      return gpu.major >= 9;  // clusters
    case 125:
      return 1;  // events between processes
    default:
      return 0;
  }
}

}  // namespace berth::standin
