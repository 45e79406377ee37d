// Writes down what a program queues in CUDA's streams, in order: preloaded in front of the stand-in
// (stream_order.py reads it). One line each:
//
//   K STREAM NAME   a kernel, a copy, a memset, work of a library
//   R EVENT STREAM  an event is recorded
//   W STREAM EVENT  a stream waits for it
//   E EVENT         the host waits for it
//   S STREAM        the host waits for a stream
//   D               the host waits for the device
//   M TEXT          the program marks a place
//
// The file is the variable LAUNCH_LOG, with the process's number behind it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  unsigned x, y, z;
} Dim3;

static __thread int within;  // a call that is written down already

static void write_line(const char* format, ...) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static FILE* file;
  if (within) return;
  pthread_mutex_lock(&mutex);
  if (file == NULL) {
    const char* name = getenv("LAUNCH_LOG");
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", name == NULL ? "/dev/null" : name, (int)getpid());
    file = fopen(name == NULL ? "/dev/null" : path, "w");
  }
  if (file != NULL) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fflush(file);
  }
  pthread_mutex_unlock(&mutex);
}

static void* next_of(const char* name) { return dlsym(RTLD_NEXT, name); }

// Writes a line, then calls what is behind this library.
#define LOGGED(name, parameters, arguments, ...)       \
  int name parameters {                                \
    static int(*next) parameters;                      \
    if (next == NULL) *(void**)&next = next_of(#name); \
    write_line(__VA_ARGS__);                           \
    ++within;                                          \
    const int result = next arguments;                 \
    --within;                                          \
    return result;                                     \
  }

void berth_test_mark(const char* text) { write_line("M %s", text); }

int cudaLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments, size_t shared,
                     void* stream) {
  static int (*next)(const void*, Dim3, Dim3, void**, size_t, void*);
  if (next == NULL) *(void**)&next = next_of("cudaLaunchKernel");
  Dl_info where;
  const int known = dladdr(function, &where) != 0;
  const char* file = known ? strrchr(where.dli_fname, '/') : NULL;
  write_line("K %p %s+%lx/%ux%ux%u", stream, file == NULL ? "?" : file + 1,
             known ? (unsigned long)((const char*)function - (const char*)where.dli_fbase) : 0UL,
             grid.x, grid.y, grid.z);
  ++within;
  const int result = next(function, grid, block, arguments, shared, stream);
  --within;
  return result;
}

typedef struct {
  Dim3 grid, block;
  size_t shared;
  void* stream;
} LaunchConfig;

int cudaLaunchKernelExC(const LaunchConfig* config, const void* function, void** arguments) {
  return cudaLaunchKernel(function, config->grid, config->block, arguments, config->shared,
                          config->stream);
}

LOGGED(cudaMemcpyAsync, (void* to, const void* from, size_t size, int kind, void* stream),
       (to, from, size, kind, stream), "K %p copy:%zu:%d", stream, size, kind)
LOGGED(cudaMemcpy, (void* to, const void* from, size_t size, int kind), (to, from, size, kind),
       "K (nil) copy:%zu:%d", size, kind)
LOGGED(cudaMemcpy2DAsync,
       (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
        int kind, void* stream),
       (to, to_pitch, from, from_pitch, width, height, kind, stream), "K %p copy2d:%zux%zu:%d",
       stream, width, height, kind)
LOGGED(cudaMemsetAsync, (void* to, int value, size_t size, void* stream), (to, value, size, stream),
       "K %p set:%zu", stream, size)
LOGGED(berth_standin_library_work, (void* stream, const char* name), (stream, name), "K %p %s",
       stream, name)
LOGGED(berth_standin_handle_work, (void** handle, const char* name), (handle, name), "K %p %s",
       *handle, name)
LOGGED(ncclAllReduce,
       (const void* from, void* to, size_t count, int type, int op, void* by, void* stream),
       (from, to, count, type, op, by, stream), "K %p allreduce:%zu", stream, count)
LOGGED(ncclReduceScatter,
       (const void* from, void* to, size_t count, int type, int op, void* by, void* stream),
       (from, to, count, type, op, by, stream), "K %p reducescatter:%zu", stream, count)
LOGGED(ncclAllGather, (const void* from, void* to, size_t count, int type, void* by, void* stream),
       (from, to, count, type, by, stream), "K %p allgather:%zu", stream, count)
LOGGED(ncclBroadcast,
       (const void* from, void* to, size_t count, int type, int root, void* by, void* stream),
       (from, to, count, type, root, by, stream), "K %p broadcast:%zu", stream, count)
LOGGED(cudaEventRecord, (void* event, void* stream), (event, stream), "R %p %p", event, stream)
LOGGED(cudaEventRecordWithFlags, (void* event, void* stream, unsigned flags),
       (event, stream, flags), "R %p %p", event, stream)
LOGGED(cudaStreamWaitEvent, (void* stream, void* event, unsigned flags), (stream, event, flags),
       "W %p %p", stream, event)
LOGGED(cudaEventSynchronize, (void* event), (event), "E %p", event)
LOGGED(cudaStreamSynchronize, (void* stream), (stream), "S %p", stream)
LOGGED(cudaDeviceSynchronize, (void), (), "D")
