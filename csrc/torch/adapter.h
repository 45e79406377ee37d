#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What an operator throws that a step program runs, as Python knows it.
enum berth_operator_error {
  BERTH_RUNTIME_ERROR = 16,
  BERTH_INDEX_ERROR = 17,
  BERTH_VALUE_ERROR = 18,
  BERTH_TYPE_ERROR = 19,
  BERTH_NOT_IMPLEMENTED_ERROR = 20,
};

// A number by its name, or a text: then `text` is not null.
typedef struct berth_value {
  const char* name;
  const char* text;
  uint64_t number;
} berth_value;

typedef struct berth_values {
  const berth_value* values;
  size_t count;
} berth_values;

// berth under libtorch on one kind of device, for those who reach it through a shared library:
// Python by ctypes, and the small libraries to preload. Includes nothing of libtorch.
//
// libberth_torch_cpu_allocator.so and libberth_torch_cuda_allocator.so export one function,
// berth_torch_adapter(). Loading them does nothing else. Both belong to this version of berth
// alone: nobody but their own package calls them.
//
// Functions that can fail return 0, 1 where the answer is no, or the number of an error
// (berth_status in <berth/berth.h>), and then write one line to `message`, of at most `size` bytes
// with its end. `device` is a GPU's index; the CPU has one device, and does not look at it. All are
// thread-safe, and none throws.
// clang-format off
#define BERTH_TORCH_FUNCTIONS(FUNCTION) \
  /* Names and values in turn, each with its end, then an empty name; null: nothing is given. \
     What is not given comes from the environment. `unasked`: nobody called, the library was \
     preloaded. Where berth is installed already, settings that differ are an error; where \
     nobody had asked for that, a warning. */ \
  FUNCTION(int, install, (const char* settings, int unasked, char* message, size_t size)) \
  FUNCTION(int, installed, (void)) \
  FUNCTION(void, mark_step, (void)) \
  /* Counters by the names of Stats::to_json(), all 0 before berth is installed: `misses` is their \
     number, and the values of each follow. Null where there is no memory for them. */ \
  FUNCTION(const berth_values*, stats, (int device)) \
  FUNCTION(void, free_values, (const berth_values* values)) \
  /* For those without the package: the same as a JSON object, cut to `size` bytes with the end. \
     Returns the bytes of all of it; 0 where there is no memory for it, and before berth is \
     installed. */ \
  FUNCTION(size_t, stats_json, (int device, char* text, size_t size)) \
  FUNCTION(int, load_plan, (int device, const char* path, char* message, size_t size)) \
  FUNCTION(int, save_plan, (int device, const char* path, char* message, size_t size)) \
  FUNCTION(int, begin_recording, (int device, const char* path, int operators, char* message, \
             size_t size)) \
  FUNCTION(int, end_recording, (int device, char* message, size_t size)) \
  /* Free memory goes back to the device, with `keep_contents` live memory too; `bytes` says \
     how much. */ \
  FUNCTION(int, release, (int device, int keep_contents, uint64_t* bytes, char* message, \
             size_t size)) \
  FUNCTION(int, resume, (int device, uint64_t* bytes, char* message, size_t size)) \
  /* Names the calling thread's requests until end_scope() of what is returned, on that \
     thread. */ \
  FUNCTION(void*, begin_scope, (const char* name)) \
  FUNCTION(void, end_scope, (void* scope)) \
  /* A step program: see <berth/step_program.h>. Needs no allocator of berth's. */ \
  FUNCTION(int, make_step_program, (const char* engine, const char* schedule, \
             uint64_t memory_budget, double memory_share, double time_budget, \
             uint64_t copy_rate, uint64_t host_memory, int other_bits, int second_thread, \
             double plan_wait_seconds, void** program, char* message, size_t size)) \
  FUNCTION(void, free_step_program, (void* program)) \
  FUNCTION(int, begin_step, (void* program, char* message, size_t size)) \
  /* `takes_over`: a schedule runs the steps that come, and did not run this one. Where an \
     operator of the schedule throws, one of berth_operator_error, by the kind of error. */ \
  FUNCTION(int, end_step, (void* program, int failed, int* takes_over, char* message, \
             size_t size)) \
  /* The same, to whoever is installed by another table. */ \
  FUNCTION(void, program_step_ended, (int takes_over)) \
  /* As `stats`. */ \
  FUNCTION(const berth_values*, step_program_stats, (void* program)) \
  FUNCTION(int, save_step_graph, (void* program, const char* path, int as_written, \
             char* message, size_t size)) \
  /* Declares an operator pure, for all step programs of this table. */ \
  FUNCTION(int, declare_pure, (const char* name, char* message, size_t size)) \
  /* Kernels for libtorch's operators were registered: see note_kernels(). */ \
  FUNCTION(void, note_kernels, (void)) \
  /* Lets tensors spill to so many bytes of the host: see allow_spills(). */ \
  FUNCTION(int, allow_spills, (uint64_t host_memory, char* message, size_t size)) \
  /* The bytes of tensors on a GPU that spills know, on the CPU where `device` is below 0. */ \
  FUNCTION(uint64_t, known_to_spills, (int device)) \
  /* Operators of all threads are seen from now on. */ \
  FUNCTION(int, watch_threads, (char* message, size_t size)) \
  /* Composite operators of the calling thread, too. */ \
  FUNCTION(void, watch_thread, (void))
// clang-format on

typedef struct berth_torch_table {
  // Of berth, "0.1.0", and of this struct in bytes: a caller compares both with its own.
  const char* version;
  uint64_t size;
  // Each function in its order as C declares it, "int mark(const char* name);", so that a caller in
  // another language makes its own table from them.
  const char* declarations;
#define BERTH_MEMBER(result, name, parameters) result(*name) parameters;
  BERTH_TORCH_FUNCTIONS(BERTH_MEMBER)
#undef BERTH_MEMBER
} berth_torch_table;

const berth_torch_table* berth_torch_adapter(void);

#ifdef __cplusplus
}
#endif
