#include "csrc/torch/step/program.h"

#include "csrc/torch/step/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace berth::torch::step {

namespace {

bool same_argument(const Argument& a, const Argument& b) {
  if (a.form != b.form || a.tensors != b.tensors) return false;
  // A number of another type may make a result of another type.
  return a.form != Form::kValue || a.scalar ? a.value.tagKind() == b.value.tagKind()
                                            : same_value(a.value, b.value);
}

bool same_result(const Result& a, const Result& b) {
  return a.form == b.form && a.tensors == b.tensors;
}

// Rooms of at most so many bytes are the body's whatever comes then, so that steps that begin with
// the same calls agree about them.
constexpr Bytes kSmallRoom = 4096;

// Room that is read before an operator has filled it the body has filled.
void find_what_the_body_fills(StepRecord& record) {
  std::vector<const Call*> first_use(record.storages.size(), nullptr);
  for (const Call& call : record.calls)
    for (const Operand& operand : call.operands)
      if (operand.storage != kNoStorage && first_use[operand.storage] == nullptr)
        first_use[operand.storage] = &call;
  for (std::uint32_t n = 0; n < record.calls.size(); ++n) {
    Call& call = record.calls[n];
    if (!facts_of(call.op).allocates) continue;
    const StorageNumber made = call.result_tensors.front().operand.storage;
    const Call* const user = first_use[made];
    call.by_body =
        record.storages[made].bytes <= kSmallRoom || user == nullptr || !facts_of(user->op).fills ||
        std::none_of(user->writes.begin(), user->writes.end(), [&](std::uint32_t operand) {
          return user->operands[operand].storage == made;
        });
    record.storages[made].maker = call.by_body ? RecordedStorage::kFromOutside : n;
  }
}

}  // namespace

bool same_call(const Call& a, const Call& b) {
  return &a.op.schema() == &b.op.schema() && a.gradients_on == b.gradients_on &&
         a.operands == b.operands && a.result_tensors == b.result_tensors &&
         std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    same_argument) &&
         std::equal(a.results.begin(), a.results.end(), b.results.begin(), b.results.end(),
                    same_result);
}

std::size_t common_calls(const std::vector<Call>& a, const std::vector<Call>& b) {
  const auto different = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same_call).first;
  return static_cast<std::size_t>(different - a.begin());
}

bool same_calls(const StepRecord& record, const StepRecord& other, std::string* why) {
  const std::size_t common = common_calls(record.calls, other.calls);
  if (common == record.calls.size() && common == other.calls.size()) return true;
  if (why != nullptr) {
    const auto name = [&](const StepRecord& of) {
      return common < of.calls.size() ? name_of(of.calls[common].op) : std::string("the end");
    };
    *why = fmt::format("operator {}: {} and {}", common, name(record), name(other));
  }
  return false;
}

Program make_program(StepRecord first, const StepRecord& second) {
  Program program;
  find_what_the_body_fills(first);
  for (std::size_t n = 0; n < first.calls.size(); ++n) {
    Call& call = first.calls[n];
    call.ns = std::min(call.ns, second.calls[n].ns);
    call.workspace = std::max(call.workspace, second.calls[n].workspace);
  }
  for (std::size_t n = 0; n < first.storages.size(); ++n) {
    RecordedStorage& storage = first.storages[n];
    const RecordedStorage& later = second.storages[n];
    storage.outlives |= later.outlives;
    program.kinds.push_back(storage.maker != RecordedStorage::kFromOutside ? StorageKind::kMade
                            : storage.identity == later.identity           ? StorageKind::kResident
                                                                           : StorageKind::kInput);
  }
  program.sets_generators = first.sets_generators || second.sets_generators;
  program.calls = std::move(first.calls);
  program.storages = std::move(first.storages);
  return program;
}

std::vector<std::uint32_t> last_uses(const Program& program) {
  std::vector<std::uint32_t> last(program.storages.size(), kNever);
  const auto use = [&](const Operand& operand, std::size_t call) {
    if (operand.storage != kNoStorage) last[operand.storage] = static_cast<std::uint32_t>(call);
  };
  for (std::size_t n = 0; n < program.calls.size(); ++n) {
    for (const Operand& operand : program.calls[n].operands) use(operand, n);
    for (const ResultTensor& result : program.calls[n].result_tensors)
      if (result.argument == ResultTensor::kNew) use(result.operand, n);
  }
  return last;
}

}  // namespace berth::torch::step
