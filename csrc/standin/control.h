#pragma once

#include "csrc/standin/abi.h"

#include <cstddef>
#include <cstdint>

// What tests ask of the stand-in beside CUDA's own functions. Exported by its libcudart, so a
// program that runs under the launcher finds them by dlsym; none of them is there on a real GPU.
//
// Strings are copied. All may be called from any thread at any time.
namespace berth::standin {
extern "C" {

struct BerthStandinAccess {
  const void* pointer;
  std::size_t size;
  int writes;  // 0: reads
};

// 1, so that a program can tell that it runs on the stand-in.
int berth_standin_version();

// A kernel that reads and writes what it says, for the happens-before checker. `name` must outlive
// the work.
int berth_standin_launch(StreamHandle stream, const char* name, const BerthStandinAccess* accesses,
                         std::size_t count);

// The same, of a kernel that takes so long by the device's clock, which events read. Nobody waits.
int berth_standin_launch_for(StreamHandle stream, const char* name,
                             const BerthStandinAccess* accesses, std::size_t count,
                             std::uint64_t microseconds);

// An allocator hands out a block for use on a stream: a violation where a last use of its bytes
// does not happen before. 0 then, else 1.
int berth_standin_hand_out(const void* pointer, std::size_t size, StreamHandle stream);

// What the checker found. berth_standin_violation copies the n-th text, cut to `size`, and returns
// its length.
std::size_t berth_standin_violations();
std::size_t berth_standin_violation(std::size_t n, char* text, std::size_t size);
void berth_standin_forget_violations();

// Calls `first` to `first + count - 1` of a function from now on fail; "*" means calls of all
// functions.
void berth_standin_fail(const char* name, std::uint64_t first, int error, std::uint64_t count);
void berth_standin_clear_faults();
std::uint64_t berth_standin_calls(const char* name);
void berth_standin_reset_calls();
// The calls that bring memory or take it back, those of csrc/device/driver_costs.h: how many there
// were, and what they would have cost the host on the GPU that this one is, by the table there.
std::uint64_t berth_standin_memory_calls();
double berth_standin_driver_microseconds();

// What of its virtual memory works from now on: 0 all, 1 as on WSL2, 2 no file descriptors, 3
// nothing.
void berth_standin_set_driver(int driver);

// What else calls of virtual memory are refused for from now on, as bits: 1 a thread without a
// context, 2 an open capture.
void berth_standin_refuse(unsigned refusals);

// The scheduler: 0 random, 1 lazy, 2 eager. berth_standin_run runs up to `count` operations that
// are ready.
void berth_standin_set_pace(int pace);
void berth_standin_seed(std::uint64_t seed);
std::size_t berth_standin_run(std::size_t count);

// Memory of a device: what is allocated now and was at most; and what another process seems to
// take.
std::size_t berth_standin_used(int device);
std::size_t berth_standin_peak(int device);
void berth_standin_take_elsewhere(int device, std::size_t bytes);

// Allocations of any kind, pinned host memory and mapped pieces included, that are still there.
std::size_t berth_standin_live_allocations();

// As if the process were exiting: every later call answers cudaErrorCudartUnloading.
void berth_standin_unload();

// What lies in these bytes is not known any more, since they were handed out anew. For
// BERTH_STANDIN_VALUES.
void berth_standin_forget(const void* pointer, std::size_t size);

// What the calling thread's reads of unknown bytes are filled with, from now on: elements of `size`
// bytes, 16 at most; 0 is what the setting says.
void berth_standin_feed(const void* element, std::size_t size);

// For the other libraries of the stand-in: count a call, and queue its work. A Status.
int berth_standin_enter(const char* name);
int berth_standin_library_work(StreamHandle stream, const char* name);
// The same for a generated function whose first argument is a LibraryHandle.
int berth_standin_handle_work(const void* handle, const char* name);

}  // extern "C"
}  // namespace berth::standin
