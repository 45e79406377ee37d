#pragma once

#include "csrc/torch/step/program.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace berth::torch::step {

using BufferNumber = std::uint32_t;
inline constexpr BufferNumber kNoBuffer = ~BufferNumber{0};

// One thing that an executor does. A buffer is one making of a storage: a call that is run again
// makes another.
struct Instruction {
  enum class Kind : std::uint8_t { kRun, kRelease, kCopyOut, kCopyIn };
  Kind kind = Kind::kRun;
  // Of kRun: where it finds each of the call's operands, kNoBuffer where there is no tensor, and
  // puts each of its result tensors, kNoBuffer for one that is no new storage.
  std::uint32_t call = 0;
  std::vector<BufferNumber> operands = {}, results = {};
  // The versions of storages that it makes, by the buffers that hold them then.
  std::vector<std::pair<BufferNumber, std::uint32_t>> made = {};
  bool again_later = false;  // the call runs again, by a later instruction
  // Of kRun and kCopyIn: so many copies out, of all before, must have ended, so that there is room.
  std::uint32_t outs_ended = 0;
  // Of the others.
  BufferNumber buffer = 0;
  // Of kRelease.
  bool made_again = false;  // its storage, by a later instruction
};

// A schedule of a program, to be executed.
struct Instructions {
  std::vector<Instruction> list;
  std::vector<StorageNumber> storage_of;  // by buffer
  std::vector<BufferNumber> first_of;     // by storage: where one from outside is
};

// A program and how it is run.
struct Scheduled {
  Program program;
  Instructions instructions;
  Bytes predicted_peak = 0;  // with what is resident
  Bytes resident = 0;
  std::uint64_t predicted_ns = 0, bound_ns = 0;  // no schedule within the budget takes less
  Bytes recorded_peak = 0;  // as the step was recorded, each value released after its last use
  std::uint64_t recorded_ns = 0;
  std::uint64_t runs_again = 0;  // calls that run more than once
  Bytes copied_out = 0, host_peak = 0;
  std::string budget_not_met;      // why the budget is not, and the least that would do
  std::string schedule_not_taken;  // why the one that was given is not
};

}  // namespace berth::torch::step
