/* berth for C, and for other frameworks: planned memory of a GPU or of the host without libtorch.
 *
 * The pair berth_malloc / berth_free has the signature of torch.cuda.memory.CUDAPluggableAllocator.
 * Use berth_malloc_or_throw there, since PyTorch does not check for null. csrc/capi/README.md has
 * the lines in Python. The complete allocator for PyTorch is <berth/torch_cuda.h>.
 *
 * Link berth::capi, or load libberth.so. All functions are thread-safe and none throws, but for
 * berth_malloc_or_throw and the three for PyTorch's pools. Sizes are bytes. A device is a CUDA
 * device's index, or BERTH_HOST. A stream is a cudaStream_t, and null is the default stream. On the
 * host it is any number that names an order of requests. Lanes of plans are numbered by the order
 * in which their streams first come, so equal runs agree.
 *
 * If a function fails, berth_last_error() of its thread has the reason. */
#ifndef BERTH_BERTH_H_
#define BERTH_BERTH_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library serves headers of its own major version up to its own minor version. */
#define BERTH_ABI_MAJOR 1
#define BERTH_ABI_MINOR 4

/* Major version in the upper 16 bits. */
uint32_t berth_abi_version(void);

enum {
  BERTH_HOST = -1 /* as a device */
};

typedef enum berth_status {
  BERTH_OK = 0,
  BERTH_NO = 1,            /* the answer is no: nothing there, nothing done */
  BERTH_USAGE = 2,         /* a wrong argument, or a call out of order */
  BERTH_INPUT = 3,         /* an unreadable, damaged or illegal file */
  BERTH_SYSTEM = 4,        /* a failing system or driver call */
  BERTH_OUT_OF_MEMORY = 5, /* after every fallback */
  BERTH_UNSUPPORTED = 6    /* this library was built without it */
} berth_status;

/* The last failure of a call on this thread, in one line; "" before any. Valid until the next one.
 */
const char* berth_last_error(void);

/* The options of all devices, which are made at their first use. Zeros are the defaults. */
typedef struct berth_options {
  size_t size;       /* sizeof(berth_options), so that later versions may add */
  const char* mode;  /* learn (default), record, serve, off: as BERTH_MODE */
  const char* plan;  /* file to serve, or to keep up to date while learning */
  const char* trace; /* file to record to */
  size_t memory_limit;
  int streams_may_end; /* 1: streams are destroyed while blocks used on them live; costs waiting */
  /* The form of a GPU's memory: auto (default), virtual, plain, as BERTH_MEMORY. If the driver has
   * no virtual memory, virtual is refused: BERTH_SYSTEM at the first block. Since 1.4. */
  const char* memory;
  /* The largest handle of a GPU's virtual memory, as BERTH_HANDLE. Since 1.4. */
  size_t handle;
} berth_options;

/* Sets the options. Optional, and only before the first use of any device. Without it, and with
 * null, the environment decides (BERTH_MODE, ...); null reads it now. */
berth_status berth_init(const berth_options* options);

/* Allocates a block for work on the stream, aligned to 512 bytes. Null for size 0, or if it fails.
 */
void* berth_malloc(size_t size, int device, void* stream);
/* The same for callers in C++: throws berth::Error, a std::runtime_error. */
void* berth_malloc_or_throw(size_t size, int device, void* stream);

/* Frees a block on a stream. If it was requested on another stream, its bytes wait for the queued
 * work of both. The size is compared with the requested one, unless it is 0. Does nothing after the
 * process began to exit, and in a forked child. */
void berth_free(void* block, size_t size, int device, void* stream);
/* The same, and returns a status. */
berth_status berth_release(void* block, size_t size, int device, void* stream);

/* The block is used on this stream too: its free waits for what is queued there by then. */
berth_status berth_record_stream(void* block, int device, void* stream);
/* The same without a device, for PyTorch's set_record_stream_fn(). Does nothing where no live block
 * starts there. Since 1.1. */
void berth_use_on_stream(void* block, void* stream);
/* Call it before a stream is destroyed: its handle may return as another stream. Others get the
 * stream's blocks once its work is done. */
berth_status berth_forget_stream(int device, void* stream);

/* A step of the stream ends. */
berth_status berth_mark_step(int device, void* stream);

/* A graph is captured. Its replays use the bytes of its blocks again, without a request. So every
 * block that is requested on the stream until berth_end_capture() is pinned: its bytes serve nobody
 * else, freed or not, until berth_release_graph(). In the capture itself a freed block serves the
 * next request of its size on its stream. The caller keeps alive what else the graph uses. Call it
 * before the driver's capture begins.
 *
 * Where `*graph` is 0, it becomes the number of a new graph. Else it names a graph that is there:
 * for another stream of the same capture, or for a later capture whose replays are ordered with the
 * others'. Since 1.2. */
berth_status berth_begin_capture(int device, void* stream, uint64_t* graph);
/* The driver's capture has ended, well or not, on all streams. Since 1.2. */
berth_status berth_end_capture(int device, uint64_t graph);
/* The graph and all that was instantiated of it are destroyed; once for each berth_begin_capture().
 * Waits for the device, or leaves that to the end of a capture that is open. Since 1.2. */
berth_status berth_release_graph(int device, uint64_t graph);

/* The same, in the form of PyTorch's set_begin_allocate_to_pool(), set_end_allocate_to_pool_fn()
 * and set_release_pool(): `takes` is a std::function<bool(cudaStream_t)>*, passed as C++ does. They
 * throw as berth_malloc_or_throw does. Since 1.2. */
typedef struct berth_pool_id {
  uint64_t first, second;
} berth_pool_id;
void berth_begin_pool(int device, berth_pool_id pool, const void* takes);
void berth_end_pool(int device, berth_pool_id pool);
void berth_release_pool(int device, berth_pool_id pool);

/* Serves this plan from the next request on. Live blocks stay where they are. Refused while a graph
   is captured: allocating the plan's memory would void the capture. */
berth_status berth_load_plan(int device, const char* path);
/* Writes the active plan to a file. BERTH_NO where there is none yet. */
berth_status berth_save_plan(int device, const char* path);

typedef struct berth_statistics {
  size_t size; /* sizeof(berth_statistics), set by the caller */
  uint64_t requests, frees, hits, misses;
  uint64_t live_bytes, live_peak_bytes, reserved_bytes, reserved_peak_bytes;
  uint64_t arena_bytes, arena_bound_bytes;
  uint64_t steps, plans_learned, driver_calls, misuses;
} berth_statistics;

/* Fills the first `statistics->size` bytes of `*statistics`. */
berth_status berth_get_statistics(int device, berth_statistics* statistics);
/* Writes all counters as one JSON object, at most `size` bytes with the final zero. `*needed`,
 * unless null, receives the bytes that all of it needs. */
berth_status berth_statistics_json(int device, char* text, size_t size, size_t* needed);

/* Returns free memory to the device. Waits for the device's work. */
berth_status berth_trim(int device);
/* The same for all devices, for PyTorch's set_reset_fn(): torch.cuda.empty_cache() calls it.
 * Since 1.1. */
void berth_trim_all(void);
/* As berth_trim(), while others use the device. With `keep_contents` not 0 berth also moves the
 * live blocks of a GPU to pinned host memory. berth_resume_memory() brings them back, and so does
 * the next berth_malloc(). Until then blocks may be freed, but not used. `*bytes`, unless null,
 * receives the bytes that went back or came. BERTH_USAGE for contents of a host device. If the
 * host, or later the device, has no room, nothing is lost, and a later call may succeed. Since 1.3.
 */
berth_status berth_release_memory(int device, int keep_contents, size_t* bytes);
berth_status berth_resume_memory(int device, size_t* bytes);

#ifdef __cplusplus
}
#endif

#endif
