#pragma once

#include "csrc/standin/abi.h"

// The entry points of the stand-in that have a behaviour of their own, by their real names. What a
// function does beyond NVIDIA's documentation, or leaves out, is said where it is defined.
//
// They return a Status as int, like the real ones; torch imports some more, which the generated
// part of the libraries answers with success.
namespace berth::standin {
extern "C" {

// Devices (device_calls.cc).
int cudaGetDeviceCount(int* count);
int cudaGetDevice(int* device);
int cudaSetDevice(int device);
int cudaGetDeviceProperties(DeviceProperties* properties, int device);
int cudaDeviceGetAttribute(int* value, int attribute, int device);
int cudaDeviceGetPCIBusId(char* text, int length, int device);
int cudaDeviceGetByPCIBusId(int* device, const char* text);
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
int cudaDeviceCanAccessPeer(int* can, int device, int peer);
int cudaDeviceEnablePeerAccess(int peer, unsigned flags);
int cudaDeviceDisablePeerAccess(int peer);
int cudaDeviceSynchronize();
int cudaDeviceReset();
int cudaDriverGetVersion(int* version);
int cudaRuntimeGetVersion(int* version);
int cudaGetLastError();
int cudaPeekAtLastError();
const char* cudaGetErrorName(int status);
const char* cudaGetErrorString(int status);

// Memory (memory_calls.cc).
int cudaMallocManaged(void** pointer, std::size_t size, unsigned flags);
int cudaMemPrefetchAsync(const void* pointer, std::size_t size, Location location, unsigned flags,
                         StreamHandle stream);
int cudaMemAdvise(const void* pointer, std::size_t size, int advice, Location location);
int cudaMalloc(void** pointer, std::size_t size);
int cudaFree(void* pointer);
int cudaMemGetInfo(std::size_t* free, std::size_t* total);
int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer);
int cudaHostAlloc(void** pointer, std::size_t size, unsigned flags);
int cudaMallocHost(void** pointer, std::size_t size);
int cudaFreeHost(void* pointer);
int cudaHostRegister(void* pointer, std::size_t size, unsigned flags);
int cudaHostUnregister(void* pointer);
int cudaHostGetDevicePointer(void** device, void* host, unsigned flags);
int cudaIpcGetMemHandle(IpcHandle* handle, void* pointer);
int cudaIpcOpenMemHandle(void** pointer, IpcHandle handle, unsigned flags);
int cudaIpcCloseMemHandle(void* pointer);

// Copies and memsets (copy_calls.cc).
int cudaMemcpy(void* to, const void* from, std::size_t size, int kind);
int cudaMemcpyAsync(void* to, const void* from, std::size_t size, int kind, StreamHandle stream);
int cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                        std::size_t size, StreamHandle stream);
int cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                      std::size_t width, std::size_t height, int kind, StreamHandle stream);
int cudaMemset(void* pointer, int value, std::size_t size);
int cudaMemsetAsync(void* pointer, int value, std::size_t size, StreamHandle stream);

// Streams and events (stream_calls.cc).
int cudaStreamCreate(StreamHandle* stream);
int cudaStreamCreateWithFlags(StreamHandle* stream, unsigned flags);
int cudaStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority);
int cudaStreamDestroy(StreamHandle stream);
int cudaStreamQuery(StreamHandle stream);
int cudaStreamSynchronize(StreamHandle stream);
int cudaStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned flags);
int cudaStreamGetPriority(StreamHandle stream, int* priority);
int cudaStreamGetFlags(StreamHandle stream, unsigned* flags);
int cudaStreamGetId(StreamHandle stream, unsigned long long* id);
int cudaStreamGetDevice(StreamHandle stream, int* device);
int cudaStreamAddCallback(StreamHandle stream, void (*callback)(StreamHandle, int, void*),
                          void* data, unsigned flags);
int cudaLaunchHostFunc(StreamHandle stream, void (*function)(void*), void* data);
int cudaEventCreate(EventHandle* event);
int cudaEventCreateWithFlags(EventHandle* event, unsigned flags);
int cudaEventDestroy(EventHandle event);
int cudaEventRecord(EventHandle event, StreamHandle stream);
int cudaEventRecordWithFlags(EventHandle event, StreamHandle stream, unsigned flags);
int cudaEventQuery(EventHandle event);
int cudaEventSynchronize(EventHandle event);
int cudaEventElapsedTime(float* ms, EventHandle start, EventHandle end);
int cudaIpcGetEventHandle(IpcHandle* handle, EventHandle event);
int cudaIpcOpenEventHandle(EventHandle* event, IpcHandle handle);

// Capture and graphs (graph_calls.cc).
int cudaStreamBeginCapture(StreamHandle stream, int mode);
int cudaStreamEndCapture(StreamHandle stream, Opaque* graph);
int cudaStreamIsCapturing(StreamHandle stream, int* status);
int cudaStreamGetCaptureInfo(StreamHandle stream, int* status, unsigned long long* id,
                             Opaque* graph, const Opaque** dependencies, const void** edges,
                             std::size_t* count);
int cudaThreadExchangeStreamCaptureMode(int* mode);
int cudaGraphInstantiateWithFlags(Opaque* executable, Opaque graph, unsigned long long flags);
int cudaGraphInstantiate(Opaque* executable, Opaque graph, unsigned long long flags);
int cudaGraphLaunch(Opaque executable, StreamHandle stream);
int cudaGraphExecDestroy(Opaque executable);
int cudaGraphDestroy(Opaque graph);
int cudaGraphGetNodes(Opaque graph, Opaque* nodes, std::size_t* count);
int cudaGraphNodeGetDependencies(Opaque node, Opaque* dependencies, void* edges,
                                 std::size_t* count);
int cudaGraphDebugDotPrint(Opaque graph, const char* path, unsigned flags);

// Pools (pool_calls.cc).
int cudaMallocAsync(void** pointer, std::size_t size, StreamHandle stream);
int cudaMallocFromPoolAsync(void** pointer, std::size_t size, Opaque pool, StreamHandle stream);
int cudaFreeAsync(void* pointer, StreamHandle stream);
int cudaDeviceGetDefaultMemPool(Opaque* pool, int device);
int cudaDeviceGetMemPool(Opaque* pool, int device);
int cudaDeviceSetMemPool(int device, Opaque pool);
int cudaMemPoolCreate(Opaque* pool, const PoolProperties* properties);
int cudaMemPoolDestroy(Opaque pool);
int cudaMemPoolGetAttribute(Opaque pool, int attribute, void* value);
int cudaMemPoolSetAttribute(Opaque pool, int attribute, void* value);
int cudaMemPoolSetAccess(Opaque pool, const AccessDescription* accesses, std::size_t count);
int cudaMemPoolTrimTo(Opaque pool, std::size_t keep);

// Kernels (kernel_calls.cc).
int cudaLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments,
                     std::size_t shared, StreamHandle stream);
int cudaLaunchCooperativeKernel(const void* function, Dim3 grid, Dim3 block, void** arguments,
                                std::size_t shared, StreamHandle stream);
void __cudaRegisterFunction(void** handle, const char* function, char* device_function,
                            const char* name, int thread_limit, void* thread, void* block,
                            void* block_size, void* grid, int* warp_size);
int cudaLaunchKernelExC(const LaunchConfig* config, const void* function, void** arguments);
int cudaFuncGetAttributes(FunctionAttributes* attributes, const void* function);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block,
                                                  std::size_t shared);
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                           int block, std::size_t shared,
                                                           unsigned flags);
int cudaGetSymbolAddress(void** pointer, const void* symbol);
int cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t size, std::size_t offset,
                       int kind);

// NCCL (nccl_calls.cc).
int ncclGetVersion(int* version);
const char* ncclGetErrorString(int status);
const char* ncclGetLastError(CommunicatorHandle communicator);
int ncclGetUniqueId(UniqueId* id);
int ncclCommInitRank(CommunicatorHandle* made, int ranks, UniqueId id, int rank);
int ncclCommInitRankConfig(CommunicatorHandle* made, int ranks, UniqueId id, int rank,
                           void* config);
int ncclCommInitRankScalable(CommunicatorHandle* made, int ranks, int rank, int count,
                             UniqueId* ids, void* config);
int ncclCommInitAll(CommunicatorHandle* made, int count, const int* devices);
int ncclCommSplit(CommunicatorHandle from, int color, int key, CommunicatorHandle* made,
                  void* config);
int ncclCommShrink(CommunicatorHandle from, int* excluded, int count, CommunicatorHandle* made,
                   void* config, int flags);
int ncclCommFinalize(CommunicatorHandle communicator);
int ncclCommDestroy(CommunicatorHandle communicator);
int ncclCommAbort(CommunicatorHandle communicator);
int ncclCommGetAsyncError(CommunicatorHandle communicator, int* status);
int ncclCommCount(CommunicatorHandle communicator, int* count);
int ncclCommUserRank(CommunicatorHandle communicator, int* rank);
int ncclCommCuDevice(CommunicatorHandle communicator, int* device);
int ncclMemAlloc(void** pointer, std::size_t size);
int ncclMemFree(void* pointer);
int ncclCommRegister(CommunicatorHandle communicator, void* buffer, std::size_t size,
                     void** registered);
int ncclCommDeregister(CommunicatorHandle communicator, void* registered);
int ncclRedOpCreatePreMulSum(int* operation, const void* factor, int type, int residence,
                             CommunicatorHandle communicator);
int ncclRedOpDestroy(int operation, CommunicatorHandle communicator);
int ncclGroupStart();
int ncclGroupEnd();
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                  CommunicatorHandle communicator, StreamHandle stream);
int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root,
               CommunicatorHandle communicator, StreamHandle stream);
int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation,
                      CommunicatorHandle communicator, StreamHandle stream);
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root,
                  CommunicatorHandle communicator, StreamHandle stream);
int ncclBcast(void* data, std::size_t count, int type, int root, CommunicatorHandle communicator,
              StreamHandle stream);
int ncclAllGather(const void* from, void* to, std::size_t count, int type,
                  CommunicatorHandle communicator, StreamHandle stream);
int ncclAlltoAll(const void* from, void* to, std::size_t count, int type,
                 CommunicatorHandle communicator, StreamHandle stream);
int ncclGather(const void* from, void* to, std::size_t count, int type, int root,
               CommunicatorHandle communicator, StreamHandle stream);
int ncclScatter(const void* from, void* to, std::size_t count, int type, int root,
                CommunicatorHandle communicator, StreamHandle stream);
int ncclSend(const void* from, std::size_t count, int type, int peer,
             CommunicatorHandle communicator, StreamHandle stream);
int ncclRecv(void* to, std::size_t count, int type, int peer, CommunicatorHandle communicator,
             StreamHandle stream);

// The driver (driver_calls.cc, driver_memory.cc).
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                     unsigned long long flags, int* result);
int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);
int cuGetErrorName(int status, const char** text);
int cuGetErrorString(int status, const char** text);
int cuDeviceGet(int* device, int number);
int cuDeviceGetCount(int* count);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDevicePrimaryCtxRetain(Opaque* context, int device);
int cuCtxPushCurrent_v2(Opaque context);
int cuCtxPopCurrent_v2(Opaque* context);
int cuCtxGetDevice(int* device);
int cuCtxSynchronize();
int cuCtxGetLimit(std::size_t* value, int limit);
int cuCtxSetLimit(int limit, std::size_t value);
int cuDeviceGetName(char* name, int length, int device);
int cuDeviceTotalMem_v2(std::size_t* size, int device);
int cuMemAllocManaged(std::uintptr_t* address, std::size_t size, unsigned flags);
int cuMemPrefetchAsync_v2(std::uintptr_t address, std::size_t size, Location location,
                          unsigned flags, StreamHandle stream);
int cuMemAdvise_v2(std::uintptr_t address, std::size_t size, int advice, Location location);
int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                        int* result);
int cuMemAddressReserve(std::uintptr_t* address, std::size_t size, std::size_t alignment,
                        std::uintptr_t wanted, unsigned long long flags);
int cuMemAddressFree(std::uintptr_t address, std::size_t size);
int cuMemCreate(std::uint64_t* handle, std::size_t size, const AllocationProperties* properties,
                unsigned long long flags);
int cuMemRelease(std::uint64_t handle);
int cuMemMap(std::uintptr_t address, std::size_t size, std::size_t offset, std::uint64_t handle,
             unsigned long long flags);
int cuMemUnmap(std::uintptr_t address, std::size_t size);
int cuMemSetAccess(std::uintptr_t address, std::size_t size, const AccessDescription* accesses,
                   std::size_t count);
int cuMemGetAllocationGranularity(std::size_t* granularity, const AllocationProperties* properties,
                                  int option);
int cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, std::uint64_t handle);
int cuMemRetainAllocationHandle(std::uint64_t* handle, void* address);
int cuMemExportToShareableHandle(void* shareable, std::uint64_t handle, int type,
                                 unsigned long long flags);
int cuMemImportFromShareableHandle(std::uint64_t* handle, void* shareable, int type);
int cuMemGetAddressRange_v2(std::uintptr_t* base, std::size_t* size, std::uintptr_t address);
int cuMemsetD32Async(std::uintptr_t address, unsigned value, std::size_t count,
                     StreamHandle stream);
int cuStreamWriteValue32_v2(StreamHandle stream, std::uintptr_t address, unsigned value,
                            unsigned flags);

// Kernels compiled while the program runs (module_calls.cc).
int cuModuleLoad(Opaque* module, const char* path);
int cuModuleLoadData(Opaque* module, const void* image);
int cuModuleLoadDataEx(Opaque* module, const void* image, unsigned count, int* options,
                       void** values);
int cuModuleUnload(Opaque module);
int cuModuleGetFunction(Opaque* function, Opaque module, const char* name);
int cuLibraryLoadData(Opaque* library, const void* image, int* options, void** values,
                      unsigned count, int* library_options, void** library_values,
                      unsigned library_count);
int cuLibraryUnload(Opaque library);
int cuLibraryGetKernel(Opaque* kernel, Opaque library, const char* name);
int cuKernelGetFunction(Opaque* function, Opaque kernel);
int cuFuncGetAttribute(int* value, int attribute, Opaque function);
int cuFuncSetAttribute(Opaque function, int attribute, int value);
int cuFuncSetCacheConfig(Opaque function, int config);
int cuLaunchKernel(Opaque function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   StreamHandle stream, void** arguments, void** extra);
int cuLaunchKernelEx(const void* config, Opaque function, void** arguments, void** extra);
int cuLaunchCooperativeKernel(Opaque function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                              StreamHandle stream, void** arguments);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Opaque function, int block,
                                                std::size_t shared);
int cuOccupancyMaxActiveClusters(int* clusters, Opaque function, const void* config);
int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address, const void* sizes,
                           const void* strides, const void* box, const void* steps, int interleave,
                           int swizzle, int promotion, int fill);

}  // extern "C"
}  // namespace berth::standin
