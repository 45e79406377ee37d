#pragma once

#include "csrc/torch/step/record.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace berth::torch::step {

// The role of a storage in a step, found from two records.
enum class StorageKind : std::uint8_t {
  kResident,  // the same in every step: parameters, buffers, state of optimizers
  kInput,     // from outside, another one in each step: batches, numbers, results of the last step
  kMade,      // made by a call of the step
};

// A step with two equal records. Later steps are checked against it and run by it. Immutable, so
// ghosts and executors share one.
struct Program {
  std::vector<Call> calls;
  std::vector<RecordedStorage> storages;
  std::vector<StorageKind> kinds;  // by storage
  // Whether the step sets generators. Each draw then needs its generator's state.
  bool sets_generators = false;
  // Whether work of the step is ordered between streams: see streams.h.
  bool several_streams = false;
  std::uint64_t varying = 0;  // as in its record
  // Whether the storage is not copied to the host: side streams may use it, or somebody behind the
  // step that an event of the step's orders, or autograd asks for its pointer.
  [[nodiscard]] bool stays(StorageNumber storage) const {
    const RecordedStorage& one = storages[storage];
    if (one.shared || !several_streams) return one.shared;
    return one.outlives || (!one.of_body() && calls[one.maker].backward);
  }
};

// Whether both records have equal calls, in equal storages: operators, operands, results, values.
// Numbers that may change are not compared. If not, `why` names the first difference.
[[nodiscard]] bool same_calls(const StepRecord& record, const StepRecord& other,
                              std::string* why = nullptr);
// Whether steps may have one for the other.
[[nodiscard]] bool same_storage(const RecordedStorage& a, const RecordedStorage& b);
// Notes what the run's step with this number has found out of what the one before left, where that
// is the record's.
void note_left(StepRecord& record, std::uint64_t step, const std::vector<StepRecord::Left>& left);
// A hash: equal for records with equal calls, and seldom for others.
[[nodiscard]] std::uint64_t hash_of(const StepRecord& record);
// The length of the common beginning of two lists of calls.
[[nodiscard]] std::size_t common_calls(const std::vector<Call>& a, const std::vector<Call>& b);

// The program of two records with equal calls. A call's time is the smaller one of both records,
// and then the median of equal calls.
[[nodiscard]] Program make_program(StepRecord first, const StepRecord& second);

// Whether each call of the program is equal to the record's.
[[nodiscard]] bool has_calls_of(const Program& program, const StepRecord& record);
// Whether the program is made of this record, or of one that is equal.
[[nodiscard]] bool is_program_of(const Program& program, const StepRecord& record);

// Whether two calls are equal, apart from numbers that may change and from measurements.
[[nodiscard]] bool same_call(const Call& a, const Call& b);
// What equal calls do not have in common: by argument the numbers and generators of the first one
// that are others in the second.
[[nodiscard]] std::vector<std::pair<std::uint32_t, c10::IValue>> values_of(const Call& call,
                                                                           const Call& other);

inline constexpr std::uint32_t kNever = ~std::uint32_t{0};

}  // namespace berth::torch::step
