#pragma once

#include "csrc/torch/step/record.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::torch::step {

// What a storage is to a step, as two records of it show.
enum class StorageKind : std::uint8_t {
  kResident,  // the same in every step: parameters, buffers, state of optimizers
  kInput,     // from outside and another in each step: batches, numbers, what the last step left
  kMade,      // made by a call of the step
};

// A step that was recorded twice and was the same: what the next ones are checked against and run
// by. Immutable, so ghosts and executors share one.
struct Program {
  std::vector<Call> calls;
  std::vector<RecordedStorage> storages;
  std::vector<StorageKind> kinds;  // by storage
  // Whether each draw is to be told its generator's state, since the step sets generators.
  bool sets_generators = false;
};

// Whether `other` calls the same: equal operators, operands, results and values, but for numbers
// that may change. Where not, `why` says what was first different.
[[nodiscard]] bool same_calls(const StepRecord& record, const StepRecord& other,
                              std::string* why = nullptr);
// The same for records whose same_calls() holds; others seldom have it.
[[nodiscard]] std::uint64_t hash_of(const StepRecord& record);
// The number of calls that two lists of them begin with in common.
[[nodiscard]] std::size_t common_calls(const std::vector<Call>& a, const std::vector<Call>& b);

// The program of two records with same calls. A call's time is the smaller one of both, and then
// the median of the calls that are alike.
[[nodiscard]] Program make_program(StepRecord first, const StepRecord& second);

// Whether two calls are the same but for numbers that may change, and for what was measured.
[[nodiscard]] bool same_call(const Call& a, const Call& b);

inline constexpr std::uint32_t kNever = ~std::uint32_t{0};

}  // namespace berth::torch::step
