#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace berth::standin {

// How soon queued work runs: `random` is a seeded scheduler that runs some of it at each call,
// `lazy` runs nothing until somebody synchronises, `eager` everything at once.
enum class Pace { kRandom, kLazy, kEager };

// What the driver does of what its attributes promise, as drivers were met:
enum class Driver {
  kFull,
  kWsl,            // WSL2: no access to memory that was made for RDMA (pytorch#192330)
  kNoDescriptors,  // no memory that can be shared by file descriptors
  kNoVirtual,      // no virtual memory, as in some containers
};

// What else calls of virtual memory are refused for, as bits. Drivers differ, so none by default.
enum Refusal : unsigned {
  kWithoutContext = 1,  // the calling thread has none
  kBesideCapture = 2,   // a capture is open that forbids the thread calls of the driver: it is void
};

// The settings, read once from the environment.
//
//   BERTH_STANDIN_GPU         H100-80     a row of the table in csrc/device/gpu_models.cc
//   BERTH_STANDIN_DEVICES     1           how many of it
//   BERTH_STANDIN_MEMORY      the GPU's   bytes in total, of each
//   BERTH_STANDIN_SEED        1           of the scheduler
//   BERTH_STANDIN_PACE        random      or lazy, eager
//   BERTH_STANDIN_DRIVER      full        or wsl, no-descriptors, no-virtual
//   BERTH_STANDIN_REFUSE      none        context, capture, or both with a comma: see Refusal
//   BERTH_STANDIN_COPY_LIMIT  none        copies and memsets of more bytes move nothing
//   BERTH_STANDIN_PATIENCE    600         seconds that a rank of NCCL waits for the others to come
//   BERTH_STANDIN_OVERCOMMIT  0           1: no request is refused, however little is left
//   BERTH_STANDIN_VALUES      memory      what the host reads of bytes that no copy wrote since
//                                         they were handed out: what lies there; zeros; a number
//   BERTH_STANDIN_REPORT      none        a file, {pid} in its name: what the process did at its
//   end BERTH_STANDIN_CHECK       report      violations of happens-before are printed; off; abort
//   BERTH_STANDIN_FAIL        none        NAME:N:ERROR[:COUNT],... (calls.cc reads it)
//   BERTH_STANDIN_LOG         none        a file that gets one line a call (the same); - for stderr
//
// A value that cannot be read ends the process with a message: a test that runs otherwise than it
// was told to would prove nothing.
struct Options {
  enum class Check { kOff, kReport, kAbort };

  std::string gpu = "H100-80";
  int devices = 1;
  std::size_t memory = 0;  // 0: what the GPU has
  std::uint64_t seed = 1;
  Pace pace = Pace::kRandom;
  Driver driver = Driver::kFull;
  unsigned refusals = 0;
  std::size_t copy_limit = SIZE_MAX;
  int patience_seconds = 600;
  bool overcommit = false;
  bool feeds_values = false;  // instead of what lies in memory
  double value = 0;           // of each element that is fed
  std::string report;         // empty: none
  Check check = Check::kReport;

  static Options from_environment();
};

}  // namespace berth::standin
