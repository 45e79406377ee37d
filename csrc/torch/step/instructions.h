#pragma once

#include "csrc/graph/schedule.h"
#include "csrc/runtime/foretold.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/step/kernel_times.h"
#include "csrc/torch/step/program.h"
#include "csrc/torch/step/shortfall.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace berth::torch::step {

using BufferNumber = std::uint32_t;
inline constexpr BufferNumber kNoBuffer = ~BufferNumber{0};

// One instruction of an executor. A buffer holds one instance of a storage: a recomputed call fills
// another buffer.
struct Instruction {
  enum class Kind : std::uint8_t { kRun, kRelease, kOffload, kReload };
  Kind kind = Kind::kRun;
  // Of kRun: where it finds each of the call's operands, kNoBuffer where there is no tensor, and
  // puts each of its result tensors, kNoBuffer for one that is no new storage. Of a call that does
  // the same for each element of its lists, `count` elements from `first` on.
  std::uint32_t call = 0;
  std::uint32_t first = 0, count = kAll;
  static constexpr std::uint32_t kAll = ~std::uint32_t{0};
  std::vector<BufferNumber> operands = {}, results = {};
  std::uint32_t alternative = kAsRecorded;  // of Call::alternatives
  static constexpr std::uint32_t kAsRecorded = ~std::uint32_t{0};
  struct Made {
    BufferNumber buffer = 0;
    StorageNumber storage = 0;
    std::uint32_t version = 0;  // of all that are made in that buffer's room
  };
  std::vector<Made> made = {};  // versions of storages
  bool again_later = false;     // the call runs again, by a later instruction
  // Of kRun and kReload: so many offloads, of all before, must have ended, so that there is room.
  std::uint32_t outs_ended = 0;
  // Of the others, and of a kRun whose result takes the bytes of an operand: where those are, and
  // the storage that has them until now; kNoStorage: nothing is taken.
  BufferNumber buffer = 0;
  StorageNumber storage = kNoStorage;
  bool recomputed_at = false;  // that storage, by a later instruction
};

// A schedule of a program, to be executed.
struct Instructions {
  std::vector<Instruction> list;
  BufferNumber buffers = 0;
  std::vector<BufferNumber> first_of;  // by storage: where one from outside is
  // Residents that are on the host when the step begins.
  std::vector<StorageNumber> begin_on_host = {};
  // Of a step of several streams, by storage: the buffer of one that the body gets itself, since it
  // is made once and never leaves; else kNoBuffer. Empty: none is.
  std::vector<BufferNumber> given = {};
  // By buffer: a call that runs again reads it, when the body may have let go of it. As long.
  std::vector<std::uint8_t> read_again = {};
};

// What executors measure of a schedule, and the schedule as planners have it.
struct Refinement {
  KernelTimes times;
  graph::Schedule schedule;
  bool split = false;  // whether lists are taken apart in it
};

// What a step asks of the allocator of one device.
struct RequestsOn {
  c10::Device device;
  StepRequests requests;
};

// A program and how it is run.
struct Scheduled {
  Program program;
  Instructions instructions;
  Bytes predicted_peak = 0;  // with what is resident
  Bytes resident = 0;
  // Whether its operators may run on another thread than the body's: none is foreign, whose
  // kernels may be in Python, but those that run when they are called.
  bool may_be_followed = false;
  // Whether a call draws again what it drew: from a state of its generator, which is another in
  // each replay of a graph that is captured.
  bool draws_again = false;
  std::uint64_t predicted_ns = 0, bound_ns = 0;  // no schedule within the budget takes less
  Bytes recorded_peak = 0;  // as the step was recorded, each value released after its last use
  std::uint64_t recorded_ns = 0;
  std::uint64_t recomputed = 0;  // calls that run more than once
  // Calls that have alternatives, and runs that take one.
  std::uint64_t alternatives = 0, chosen = 0;
  Bytes offloaded_bytes = 0, host_peak = 0;
  std::uint64_t barriers = 0;
  std::string barrier_operators;   // with how many calls each
  std::string budget_not_met;      // why the budget is not, and the least that would do
  std::string schedule_not_taken;  // why the one that was given is not
  // What it asks of berth's allocators, and their plans of it and of the programs beside it.
  std::vector<RequestsOn> requests;
  std::vector<ForetoldOn> foretold;
  // The plan that is being looked for meanwhile, by the planning thread's number; 0: none.
  std::uint64_t ticket = 0;
  bool meanwhile = false;  // as recorded, until the first plan is there
  Shortfall shortfall = {};
  // Where times decide what the schedule is, until it was planned once more; else null.
  std::unique_ptr<Refinement> refinement = {};
  [[nodiscard]] KernelTimes* times() const noexcept {
    return refinement == nullptr ? nullptr : &refinement->times;
  }
};

}  // namespace berth::torch::step
