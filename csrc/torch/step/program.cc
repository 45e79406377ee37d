#include "csrc/torch/step/program.h"

#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/kernel_times.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

bool same_argument(const Argument& a, const Argument& b) {
  if (a.form != b.form || a.tensors != b.tensors || a.any != b.any) return false;
  if (a.any || may_stand_for(a.value, b.value)) return true;
  // A number of another type may make a result of another type.
  return a.form != Form::kValue || a.scalar ? a.value.tagKind() == b.value.tagKind()
                                            : same_value(a.value, b.value);
}

bool same_result(const Result& a, const Result& b) {
  return a.form == b.form && a.tensors == b.tensors && same_value(a.value, b.value);
}

// Rooms of at most so many bytes are the body's whatever comes then, so that steps that begin with
// the same calls agree about them.
constexpr Bytes kSmallRoom = 4096;

// The body has filled room that is read before an operator has filled it, or that it was seen to
// write (written_rooms.h).
void find_what_the_body_fills(StepRecord& record, const StepRecord& second) {
  std::vector<const Call*> first_use(record.storages.size(), nullptr);
  for (const Call& call : record.calls)
    for (const Operand& operand : call.operands)
      if (operand.storage != kNoStorage && first_use[operand.storage] == nullptr)
        first_use[operand.storage] = &call;
  for (std::uint32_t n = 0; n < record.calls.size(); ++n) {
    Call& call = record.calls[n];
    if (call.barrier || !facts_of(call.op).allocates) continue;
    const StorageNumber made = call.result_tensors.front().operand.storage;
    const Call* const user = first_use[made];
    call.by_body =
        record.storages[made].bytes <= kSmallRoom || user == nullptr || !facts_of(user->op).fills ||
        record.storages[made].written_by_body || second.storages[made].written_by_body ||
        std::none_of(user->writes.begin(), user->writes.end(), [&](std::uint32_t operand) {
          return user->operands[operand].storage == made;
        });
    record.storages[made].maker = call.by_body ? RecordedStorage::kFromOutside : n;
  }
}

// A value that one call alone reads, and that works element by element, need not outlive it: the
// result takes its bytes.
void find_twins(Program& program) {
  std::vector<std::uint32_t> readers(program.storages.size(), 0);  // of the version it has now
  std::vector<Call*> last(program.storages.size(), nullptr);       // that used it
  for (Call& call : program.calls) {
    std::vector<StorageNumber> used;
    for (const Operand& one : call.operands)
      if (one.storage != kNoStorage) used.push_back(one.storage);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (const StorageNumber one : used) {
      ++readers[one];
      last[one] = &call;
    }
    for (const std::uint32_t written : call.writes)
      if (const StorageNumber one = call.operands[written].storage; one != kNoStorage)
        readers[one] = 0;
  }
  for (std::uint32_t number = 0; number < program.calls.size(); ++number) {
    Call& call = program.calls[number];
    call.twin.reset();
    const OperatorFacts& facts = facts_of(call.op);
    // Kernels over complex numbers give other bits where an operand has the result's place.
    // mutant: twin-complex
    const bool complex = std::any_of(
        call.operands.begin(), call.operands.end(),
        [](const Operand& one) { return c10::isComplexType(c10::typeMetaToScalarType(one.type)); });
    if ((!facts.in_place && !facts.out) || complex) continue;
    const ResultTensor& result = call.result_tensors.front();
    if (result.argument != ResultTensor::kNew || result.operand.storage == kNoStorage ||
        program.storages[result.operand.storage].maker != number || call.barrier)
      continue;
    const RecordedStorage& made = program.storages[result.operand.storage];
    for (std::uint32_t n = 0; n < call.operands.size() && !call.twin; ++n) {
      const Operand& one = call.operands[n];
      if (one.storage == kNoStorage) continue;
      const RecordedStorage& storage = program.storages[one.storage];
      Operand as_result = one;
      as_result.storage = result.operand.storage;
      const bool whole =
          static_cast<Bytes>(c10::multiply_integers(one.sizes)) * one.type.itemsize() ==
          storage.bytes;
      const auto times =
          std::count_if(call.operands.begin(), call.operands.end(),
                        [&](const Operand& other) { return other.storage == one.storage; });
      // mutant: streams-twin
      if (storage.shared) continue;
      // mutant: step-readers
      if (program.kinds[one.storage] != StorageKind::kMade || storage.of_body() ||
          storage.outlives || storage.bytes != made.bytes || storage.device != made.device ||
          !whole || as_result != result.operand || readers[one.storage] != 1 ||
          last[one.storage] != &call || times != 1)
        continue;
      if (n == 0 && facts.in_place && call.arguments.front().form == Form::kTensor &&
          !is_overridden(*facts.in_place))
        call.twin = Twin{*facts.in_place, true, n};
      else if (facts.out && !is_overridden(*facts.out))
        call.twin = Twin{*facts.out, false, n};
    }
  }
}

}  // namespace

bool Operand::operator==(const Operand& other) const {
  // mutant: data-shapes-compared
  const bool both_vary = varies && other.varies;
  return storage == other.storage && type == other.type && wrapped_number == other.wrapped_number &&
         conjugate == other.conjugate && negative == other.negative && varies == other.varies &&
         opaque == other.opaque && sizes.size() == other.sizes.size() &&
         (both_vary || (moves == other.moves && offset == other.offset && sizes == other.sizes &&
                        strides == other.strides));
}

bool same_call(const Call& a, const Call& b) {
  return &a.op.schema() == &b.op.schema() && a.gradients_on == b.gradients_on &&
         a.barrier == b.barrier && a.checked == b.checked && a.stream == b.stream &&
         a.writes == b.writes && a.copied == b.copied && a.resized == b.resized &&
         a.keeps == b.keeps && *a.modes == *b.modes && a.autocast == b.autocast &&
         a.operands == b.operands && a.result_tensors == b.result_tensors &&
         std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    same_argument) &&
         std::equal(a.results.begin(), a.results.end(), b.results.begin(), b.results.end(),
                    same_result);
}

std::vector<std::pair<std::uint32_t, c10::IValue>> values_of(const Call& call, const Call& other) {
  std::vector<std::pair<std::uint32_t, c10::IValue>> values;
  for (std::uint32_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& one = call.arguments[n];
    if (one.form == Form::kValue && !one.any && !same_value(one.value, other.arguments[n].value))
      values.emplace_back(n, one.value);
  }
  return values;
}

std::size_t common_calls(const std::vector<Call>& a, const std::vector<Call>& b) {
  const auto different = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same_call).first;
  return static_cast<std::size_t>(different - a.begin());
}

bool has_calls_of(const Program& program, const StepRecord& record) {
  const std::size_t count = program.calls.size();
  return count == record.calls.size() && common_calls(program.calls, record.calls) == count;
}

bool is_program_of(const Program& program, const StepRecord& record) {
  if (program.varying != 0 || record.varying != 0) return program.varying == record.varying;
  return has_calls_of(program, record);
}

namespace {

// What two calls of one operator do not have in common.
std::string difference_of(const Call& a, const Call& b) {
  std::uint32_t operand = 0;
  const std::size_t arguments = std::min(a.arguments.size(), b.arguments.size());
  for (std::size_t n = 0; n < arguments; ++n) {
    const auto takes = [n](std::string_view what) {
      return fmt::format("takes {} in argument {}", what, n);
    };
    const Argument& one = a.arguments[n];
    const Argument& other = b.arguments[n];
    if (one.form != other.form) return takes("an argument of another form");
    if (one.tensors != other.tensors) return takes("a list of another length");
    if (!same_argument(one, other)) return takes("another value");
    for (const std::uint32_t end = operand + one.tensors; operand < end; ++operand) {
      const Operand& tensor = a.operands[operand];
      Operand like = b.operands[operand];
      if (tensor == like) continue;
      like.storage = tensor.storage;
      like.offset = tensor.offset;
      like.moves = tensor.moves;
      return takes(tensor == like ? "another tensor of this shape"
                                  : "a tensor of another shape or type");
    }
  }
  if (*a.modes != *b.modes)
    return fmt::format("runs under another {}", a.modes->difference(*b.modes));
  if (a.autocast != b.autocast) return "is called under another autocast";
  if (a.gradients_on != b.gradients_on) return "is called with and without gradients";
  if (a.stream != b.stream) return "is called on another stream";
  if (a.result_tensors != b.result_tensors)
    return facts_of(a.op).shapes_by_data
               ? "returns a tensor of another shape, which depends on data"
               : "returns a tensor of another shape";
  return "is called another way";
}

}  // namespace

bool same_storage(const RecordedStorage& a, const RecordedStorage& b) {
  // mutant: step-storage-size
  return a.foreign == b.foreign && a.shared == b.shared &&
         (a.bytes == b.bytes || (a.varies && b.varies));
}

namespace {

// The first call that takes another storage than that of the other record, in words.
std::string other_storage(const StepRecord& record, const StepRecord& other) {
  for (std::size_t n = 0; n < record.calls.size(); ++n)
    for (const Operand& one : record.calls[n].operands)
      if (one.storage != kNoStorage &&
          !same_storage(record.storages[one.storage], other.storages[one.storage]))
        return fmt::format("operator {}: {} takes a part of another tensor's memory", n,
                           words_of(record.calls[n].op));
  return "a tensor has other memory";
}

}  // namespace

bool same_calls(const StepRecord& record, const StepRecord& other, std::string* why) {
  const std::size_t common = common_calls(record.calls, other.calls);
  const bool same = common == record.calls.size() && common == other.calls.size();
  if (same && record.several_streams == other.several_streams &&
      std::equal(record.storages.begin(), record.storages.end(), other.storages.begin(),
                 other.storages.end(), same_storage))
    return true;
  if (why != nullptr && same && record.storages.size() == other.storages.size()) {
    *why = other_storage(record, other);
  } else if (why != nullptr) {
    const auto name = [&](const StepRecord& of) {
      return common < of.calls.size() ? words_of(of.calls[common].op) : std::string("the end");
    };
    *why = fmt::format("operator {}: {} and {}", common, name(record), name(other));
    if (common < record.calls.size() && common < other.calls.size() &&
        &record.calls[common].op.schema() == &other.calls[common].op.schema())
      *why = fmt::format("operator {}: {} {}", common, name(record),
                         difference_of(record.calls[common], other.calls[common]));
  }
  return false;
}

void note_left(StepRecord& record, std::uint64_t step, const std::vector<StepRecord::Left>& left) {
  if (record.step + 1 != step) return;
  for (const StepRecord::Left& one : left) record.storages[one.storage].gone_in_next = one.gone;
}

std::uint64_t hash_of(const StepRecord& record) {
  std::uint64_t hash = 2 * record.calls.size() + (record.several_streams ? 1 : 0);
  const auto add = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29U;
  };
  for (const Call& call : record.calls) {
    add(reinterpret_cast<std::uintptr_t>(&call.op.schema()));
    add((call.gradients_on ? 1U : 0U) + (call.barrier ? 2U : 0U));
    for (const Operand& one : call.operands) {
      add(one.storage);
      add(static_cast<std::uint64_t>(one.offset));
      for (const std::int64_t size : one.sizes) add(static_cast<std::uint64_t>(size));
    }
  }
  return hash;
}

Program make_program(StepRecord first, const StepRecord& second) {
  Program program;
  find_what_the_body_fills(first, second);
  for (std::size_t n = 0; n < first.calls.size(); ++n) {
    Call& call = first.calls[n];
    call.ns = std::min(call.ns, second.calls[n].ns);
    call.workspace = std::max(call.workspace, second.calls[n].workspace);
  }
  even_out_times(first.calls);
  for (std::size_t n = 0; n < first.storages.size(); ++n) {
    RecordedStorage& storage = first.storages[n];
    const RecordedStorage& later = second.storages[n];
    storage.outlives |= later.outlives;
    storage.gone = std::max(storage.gone, later.gone);
    storage.bytes = std::max(storage.bytes, later.bytes);
    program.kinds.push_back(storage.maker != RecordedStorage::kFromOutside ? StorageKind::kMade
                            : storage.identity != nullptr && storage.identity == later.identity
                                ? StorageKind::kResident
                                : StorageKind::kInput);
  }
  std::unordered_set<const c10::StorageImpl*> left;
  for (const RecordedStorage& one : first.storages)
    if (one.identity != nullptr) left.insert(one.identity);
  for (std::size_t n = 0; n < first.storages.size(); ++n)
    first.storages[n].fresh =
        program.kinds[n] == StorageKind::kInput && !left.contains(second.storages[n].identity);
  program.sets_generators = first.sets_generators || second.sets_generators;
  program.several_streams = first.several_streams;
  program.varying = first.varying;
  program.calls = std::move(first.calls);
  program.storages = std::move(first.storages);
  find_twins(program);
  return program;
}

}  // namespace berth::torch::step
