#include "csrc/torch/step/data_shapes.h"

#include "csrc/torch/step/equal_shapes.h"
#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/program.h"
#include "csrc/torch/step/streams.h"
#include "csrc/torch/step/tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace berth::torch::step {

namespace {

// A step of which more calls vary has little that a schedule could move.
constexpr double kMostVarying = 0.75;

// The same part of a storage, apart from its shape. `differs` is set where that is another one.
bool same_but_shape(Operand& a, const Operand& b, bool& differs) {
  if (a.storage != b.storage || a.opaque != b.opaque || a.type != b.type ||
      a.wrapped_number != b.wrapped_number || a.conjugate != b.conjugate ||
      a.negative != b.negative || a.sizes.size() != b.sizes.size())
    return false;
  const bool same = a.varies == b.varies && a.moves == b.moves && a.offset == b.offset &&
                    a.sizes == b.sizes && a.strides == b.strides;
  if (same) {
    differs |= a.varies;
    return true;
  }
  differs = a.varies = true;
  return true;
}

bool same_but_value(const Argument& a, const Argument& b, bool& differs) {
  if (a.form != b.form || a.tensors != b.tensors) return false;
  if (a.form != Form::kValue || a.any || b.any) return true;
  if (a.scalar || may_stand_for(a.value, b.value))
    return a.value.tagKind() == b.value.tagKind() || may_stand_for(a.value, b.value);
  if (same_value(a.value, b.value)) return true;
  // Sizes and offsets, by number.
  differs = true;
  const auto is_shape = [](const c10::IValue& one) { return one.isInt() || one.isIntList(); };
  return is_shape(a.value) && is_shape(b.value);
}

// Whether the calls are the same but for shapes. `taken`, `given`: whether those of arguments, or
// of results, differ.
bool same_but_shapes(Call& a, const Call& b, bool& taken, bool& given) {
  if (&a.op.schema() != &b.op.schema() || a.gradients_on != b.gradients_on ||
      a.stream != b.stream || a.writes != b.writes || a.resized != b.resized ||
      a.keeps != b.keeps || *a.modes != *b.modes || a.autocast != b.autocast ||
      a.arguments.size() != b.arguments.size() || a.operands.size() != b.operands.size() ||
      a.results.size() != b.results.size() || a.result_tensors.size() != b.result_tensors.size())
    return false;
  a.varies |= b.varies;
  if (!a.varies && (a.barrier != b.barrier || a.checked != b.checked || a.copied != b.copied))
    return false;
  for (std::size_t n = 0; n < a.arguments.size(); ++n)
    if (!same_but_value(a.arguments[n], b.arguments[n], taken)) return false;
  for (std::size_t n = 0; n < a.operands.size(); ++n)
    if (!same_but_shape(a.operands[n], b.operands[n], taken)) return false;
  for (std::size_t n = 0; n < a.results.size(); ++n) {
    if (a.results[n].form != b.results[n].form || a.results[n].tensors != b.results[n].tensors)
      return false;
    given |= !same_value(a.results[n].value, b.results[n].value);
  }
  for (std::size_t n = 0; n < a.result_tensors.size(); ++n) {
    ResultTensor& one = a.result_tensors[n];
    const ResultTensor& other = b.result_tensors[n];
    if (one.argument != other.argument || one.keys != other.keys ||
        !same_but_shape(one.operand, other.operand, given))
      return false;
  }
  return true;
}

// Whether it is by data that the call, the first one that differs, is not `other`: the body has got
// some before, or gets some by this call.
bool data_decide(const std::vector<Call>& calls, std::size_t call, const Call& other) {
  if (std::any_of(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(call),
                  [](const Call& one) { return one.host_read; }))
    return true;
  Call first = calls[call];
  bool taken = false, given = false;
  return first.host_read && same_but_shapes(first, other, taken, given) && !taken;
}

// The dimensions of the call's results that differ.
void note_shaped_by_data(const Call& a, const Call& b, ShapedByData& by_data) {
  for (std::size_t n = 0; n < a.result_tensors.size(); ++n) {
    const auto& sizes = a.result_tensors[n].operand.sizes;
    for (std::size_t d = 0; d < sizes.size() && d < 64; ++d)
      if (sizes[d] != b.result_tensors[n].operand.sizes[d])
        by_data[&a.op.schema()][n] |= std::uint64_t{1} << d;
  }
}

std::size_t varying_calls(const StepRecord& record) {
  return static_cast<std::size_t>(std::count_if(record.calls.begin(), record.calls.end(),
                                                [](const Call& one) { return one.varies; }));
}

bool too_many_vary(const StepRecord& record) {
  return static_cast<double>(varying_calls(record)) >
         kMostVarying * static_cast<double>(record.calls.size());
}

}  // namespace

bool let_shapes_vary(StepRecord& record, const StepRecord& other) {
  const std::vector<Call>& calls = record.calls;
  if (calls.size() != other.calls.size() || record.storages.size() != other.storages.size() ||
      record.several_streams || other.several_streams)
    return false;
  // Most records part where no data have decided anything: that is cheap to tell.
  const std::size_t common = common_calls(calls, other.calls);
  // mutant: data-shapes-outside
  if (common == calls.size() || !data_decide(calls, common, other.calls[common])) return false;
  StepRecord merged = record;
  ShapedByData by_data;
  for (std::uint32_t n = 0; n < merged.calls.size(); ++n) {
    Call& call = merged.calls[n];
    bool taken = false, given = false;
    if (!same_but_shapes(call, other.calls[n], taken, given)) return false;
    if (!taken && !given && !call.varies) continue;
    if (call.by_body) return false;
    if (given && !taken) note_shaped_by_data(calls[n], other.calls[n], by_data);
    call.varies = true;
    call.copied.clear();
    make_barrier(merged, n);
  }
  for (std::size_t n = 0; n < merged.storages.size(); ++n) {
    RecordedStorage& one = merged.storages[n];
    const RecordedStorage& same = other.storages[n];
    if (one.device != same.device || one.shared != same.shared) return false;
    if (one.foreign != same.foreign && !one.varies && !same.varies) return false;
    if (one.bytes != same.bytes) {
      if (!one.made_by_barrier && !one.made_within && !same.made_within) return false;
      one.varies = true;
      one.bytes = std::max(one.bytes, same.bytes);
    }
    one.varies |= same.varies;
    one.made_within |= same.made_within;
  }
  if (too_many_vary(merged)) return false;
  StepRecord spread = merged;
  const bool may = let_equal_shapes_vary(spread, by_data) && !too_many_vary(spread);
  record = std::move(may ? spread : merged);
  return true;
}

}  // namespace berth::torch::step
