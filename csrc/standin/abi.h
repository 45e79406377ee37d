#pragma once

#include <cstddef>
#include <cstdint>

// The part of the binary interface of the CUDA runtime and driver, version 13, that the stand-in
// answers: our own declarations of the types, after NVIDIA's public documentation. No header of
// NVIDIA's is needed to build the stand-in, and none may be included beside this one.
//
// Names follow the documentation's without the prefix: kSuccess is cudaSuccess and CUDA_SUCCESS,
// whose numbers agree where both exist. Handles are opaque pointers, device pointers plain
// addresses.
namespace berth::standin {

enum Status : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInitializationError = 3,  // also what every call of a forked child gets
  kCudartUnloading = 4,
  kInvalidDevice = 101,
  kDeviceUninitialized = 201,
  kPeerAccessUnsupported = 217,
  kOperatingSystem = 304,
  kInvalidResourceHandle = 400,
  kIllegalState = 401,
  kSymbolNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,  // the first of the sticky ones, which name damage done by earlier work
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kAssert = 710,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kLaunchFailure = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
  kUnknown = 999,
};

// Name ("cudaErrorInvalidValue") and text of a status.
const char* status_name(int status) noexcept;
const char* status_text(int status) noexcept;

struct StreamHandleTag;
struct EventHandleTag;
using StreamHandle = StreamHandleTag*;
using EventHandle = EventHandleTag*;
struct CommunicatorTag;
using CommunicatorHandle = CommunicatorTag*;  // ncclComm_t
using Opaque = void*;  // graphs, their executables and nodes, pools, kernels, modules

// The handles that name a stream without creating one.
inline const StreamHandle kDefaultStream = nullptr;
inline const StreamHandle kLegacyStream = reinterpret_cast<StreamHandle>(1);
inline const StreamHandle kPerThreadStream = reinterpret_cast<StreamHandle>(2);

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventInterprocess = 4;
inline constexpr unsigned kExternal = 1;  // of an event's record and wait while capturing

enum CopyKind : int {
  kHostToHost = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kByAddress = 4
};
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };
enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };
enum MemoryType : int {
  kMemoryUnregistered = 0,
  kMemoryHost = 1,
  kMemoryDevice = 2,
  kMemoryManaged = 3
};

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Uuid {
  char bytes[16];
};

struct DeviceProperties {
  char name[256];
  Uuid uuid;
  char luid[8];
  unsigned luid_device_node_mask;
  std::size_t total_global_memory;
  std::size_t shared_memory_per_block;
  int registers_per_block;
  int warp_size;
  std::size_t memory_pitch;
  int max_threads_per_block;
  int max_threads_dim[3];
  int max_grid_size[3];
  std::size_t total_constant_memory;
  int major;
  int minor;
  std::size_t texture_alignment;
  std::size_t texture_pitch_alignment;
  int multiprocessor_count;
  int integrated;
  int can_map_host_memory;
  int textures[25];  // twelve limits of textures
  int surfaces[14];  // seven limits of surfaces
  std::size_t surface_alignment;
  int concurrent_kernels;
  int ecc_enabled;
  int pci_bus_id;
  int pci_device_id;
  int pci_domain_id;
  int tcc_driver;
  int async_engine_count;
  int unified_addressing;
  int memory_bus_width;
  int l2_cache_size;
  int persisting_l2_cache_max_size;
  int max_threads_per_multiprocessor;
  int stream_priorities_supported;
  int global_l1_cache_supported;
  int local_l1_cache_supported;
  std::size_t shared_memory_per_multiprocessor;
  int registers_per_multiprocessor;
  int managed_memory;
  int is_multi_gpu_board;
  int multi_gpu_board_group_id;
  int host_native_atomic_supported;
  int pageable_memory_access;
  int concurrent_managed_access;
  int compute_preemption_supported;
  int can_use_host_pointer_for_registered_memory;
  int cooperative_launch;
  std::size_t shared_memory_per_block_optin;
  int pageable_memory_access_uses_host_page_tables;
  int direct_managed_memory_access_from_host;
  int max_blocks_per_multiprocessor;
  int access_policy_max_window_size;
  std::size_t reserved_shared_memory_per_block;
  int host_register_supported;
  int sparse_array_supported;
  int host_register_read_only_supported;
  int timeline_semaphore_interop_supported;
  int memory_pools_supported;
  int gpu_direct_rdma_supported;
  unsigned gpu_direct_rdma_flush_writes_options;
  int gpu_direct_rdma_writes_ordering;
  unsigned memory_pool_supported_handle_types;
  int deferred_mapping_array_supported;
  int ipc_event_supported;
  int cluster_launch;
  int unified_function_pointers;
  int device_numa_config;
  int device_numa_id;
  int mps_enabled;
  int host_numa_id;
  unsigned gpu_pci_device_id;
  unsigned gpu_pci_subsystem_id;
  int host_numa_multinode_ipc_supported;
  int reserved[56];
};
static_assert(offsetof(DeviceProperties, total_global_memory) == 288);
static_assert(offsetof(DeviceProperties, multiprocessor_count) == 384);
static_assert(sizeof(DeviceProperties) == 1008);

struct PointerAttributes {
  int type;  // MemoryType
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

struct FunctionAttributes {
  std::size_t shared_bytes;
  std::size_t constant_bytes;
  std::size_t local_bytes;
  int max_threads_per_block;
  int registers;
  int ptx_version;
  int binary_version;
  int cache_mode_ca;
  int max_dynamic_shared_bytes;
  int preferred_shared_carveout;
  int cluster_dimensions_must_be_set;
  int required_cluster[3];
  int cluster_scheduling_policy;
  int non_portable_cluster_allowed;
  int reserved[16];
};
static_assert(sizeof(FunctionAttributes) == 144);

struct LaunchConfig {
  Dim3 grid;
  Dim3 block;
  std::size_t dynamic_shared_bytes;
  StreamHandle stream;
  void* attributes;
  unsigned attribute_count;
};

struct IpcHandle {
  char bytes[64];
};

// ncclUniqueId.
struct UniqueId {
  char bytes[128];
};

// Where memory is; type 1 is a device.
struct Location {
  int type;
  int id;
};

struct AccessDescription {
  Location location;
  int flags;  // 0 none, 1 read, 3 read and write
};
static_assert(sizeof(AccessDescription) == 12);

// Of physical memory that the driver's cuMemCreate makes.
struct AllocationProperties {
  int type;
  int requested_handle_types;  // 1: a file descriptor
  Location location;
  void* win32;
  unsigned char compression, gpu_direct_rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(AllocationProperties) == 32);

struct PoolProperties {
  int allocation_type;
  int handle_types;
  Location location;
  void* win32;
  std::size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
static_assert(sizeof(PoolProperties) == 88);

}  // namespace berth::standin
