#include "csrc/graph/step_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace berth::graph {

namespace {

std::vector<std::uint32_t> numbers_to(std::size_t end) {
  std::vector<std::uint32_t> numbers(end);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Backward is what ran in it; the optimizer is what came after the last of that and needs something
// of it. What could as well have run before (counts of steps) is no part of it.
std::vector<Phase> phases_of(const std::vector<StepCall>& calls, std::size_t storages) {
  const auto last = std::find_if(calls.rbegin(), calls.rend(),
                                 [](const StepCall& call) { return call.backward; });
  const auto end = static_cast<std::size_t>(calls.rend() - last);
  std::vector<bool> written(storages), read(storages);
  std::vector<Phase> phases;
  bool late_host_read = false, late_draw = false;
  for (std::size_t n = 0; n < calls.size(); ++n) {
    const StepCall& call = calls[n];
    bool late = call.backward;
    if (!late && n >= end && end > 0) {
      late = late_host_read || (call.random && late_draw);
      for (const CallOperand& one : call.operands)
        late = late || (one.storage != kNoNumber &&
                        (written[one.storage] || (one.writes && read[one.storage])));
    }
    phases.push_back(call.backward ? Phase::kBackward : late ? Phase::kOptimizer : Phase::kForward);
    if (!late) continue;
    late_host_read |= call.host_read;
    late_draw |= call.random;
    for (const CallOperand& one : call.operands) {
      if (one.storage == kNoNumber) continue;
      read[one.storage] = true;
      if (one.writes) written[one.storage] = true;
    }
    for (const std::uint32_t storage : call.results)
      if (storage != kNoNumber) written[storage] = true;
  }
  return phases;
}

}  // namespace

StepGraph::StepGraph(const std::vector<StepStorage>& storages, const std::vector<StepCall>& calls,
                     std::vector<StorageId> rooms)
    : storages_(storages), calls_(calls), rooms_(std::move(rooms)) {
  for (std::uint32_t n = 0; n < storages_.size(); ++n)
    if (rooms_[n] == graph_.storages.size())
      graph_.storages.push_back({.bytes = storages_[n].bytes, .kind = storages_[n].kind});
  versions_.resize(graph_.storages.size(), 0);
  find_aside();
}

// Storages that are the same in every step, and used as state that no result depends on, and by no
// other call.
void StepGraph::find_aside() {
  aside_.assign(storages_.size(), false);
  const auto for_each = [&](const auto& visit) {
    for (const StepCall& call : calls_)
      for (const CallOperand& one : call.operands)
        if (one.storage != kNoNumber) visit(one);
  };
  for_each([&](const CallOperand& one) {
    if (one.aside) aside_[one.storage] = storages_[one.storage].same;
  });
  for_each([&](const CallOperand& one) {
    if (!one.aside) aside_[one.storage] = false;
  });
}

// Where the alternative reads the storage's present version; the part grows to hold all that is
// read of it.
std::uint32_t StepGraph::add_read(Alternative& to, const CallOperand& operand) const {
  const StorageId room = rooms_[operand.storage];
  Read read{.value = {room, versions_[room]}};
  if (graph_.storages[room].bytes > 0) {
    read.offset = operand.offset;
    read.bytes = operand.bytes;
  }
  for (std::uint32_t n = 0; n < to.reads.size(); ++n) {
    Read& there = to.reads[n];
    if (there.value != read.value) continue;
    const Bytes end = std::max(there.offset + there.bytes, read.offset + read.bytes);
    there.offset = std::min(there.offset, read.offset);
    there.bytes = end - there.offset;
    return n;
  }
  to.reads.push_back(read);
  return static_cast<std::uint32_t>(to.reads.size() - 1);
}

void StepGraph::write(Alternative& alternative, std::uint32_t storage) {
  const StorageId room = rooms_[storage];
  alternative.writes.push_back({room, ++versions_[room]});
}

StepGraph::Added StepGraph::add(std::uint32_t call) {
  return add(call, numbers_to(calls_[call].operands.size()),
             numbers_to(calls_[call].results.size()), 1);
}

StepGraph::Added StepGraph::add(std::uint32_t number, const std::vector<std::uint32_t>& operands,
                                const std::vector<std::uint32_t>& results, double share) {
  const StepCall& call = calls_[number];
  const auto id = static_cast<OperatorId>(graph_.operators.size());
  Operator op;
  op.name = call.name;
  op.traits.random = op.traits.draws_again = call.random;
  op.traits.host_sync = call.host_read;
  Alternative& alternative = op.alternatives.emplace_back();
  alternative.ns = static_cast<std::uint64_t>(share * static_cast<double>(call.ns));
  alternative.workspace = static_cast<Bytes>(share * static_cast<double>(call.workspace));

  Added added;
  for (const std::uint32_t n : operands) {
    const CallOperand& one = call.operands[n];
    added.reads.push_back(
        one.storage == kNoNumber || aside_[one.storage] ? kNoNumber : add_read(alternative, one));
  }
  std::vector<std::uint32_t>& made = added.made;
  for (const std::uint32_t n : operands) {
    const CallOperand& one = call.operands[n];
    if (!one.writes || one.storage == kNoNumber) continue;
    if (aside_[one.storage])
      alternative.workspace += graph_.storages[rooms_[one.storage]].bytes;
    else if (std::find(made.begin(), made.end(), one.storage) == made.end())
      made.push_back(one.storage);
  }
  for (const std::uint32_t storage : made) {
    write(alternative, storage);
    op.traits.changes_state |= graph_.storages[rooms_[storage]].kind != StorageClass::kStep;
  }
  for (const std::uint32_t n : results) {
    const std::uint32_t storage = call.results[n];
    added.writes.push_back(kNoNumber);
    if (storage == kNoNumber || storages_[storage].maker != number) continue;
    const auto at = std::find(made.begin(), made.end(), storage);
    added.writes.back() = static_cast<std::uint32_t>(at - made.begin());
    if (at != made.end()) continue;
    write(alternative, storage);
    made.push_back(storage);
  }
  add_control(id, call);
  if (call.host_read || call.checked) last_host_read_ = id;
  call_of_.push_back(number);
  graph_.operators.push_back(std::move(op));
  return added;
}

void StepGraph::add_control(OperatorId id, const StepCall& call) {
  // mutant: step-read
  if (last_host_read_ != kNoNumber) graph_.control.emplace_back(last_host_read_, id);
  if (call.barrier) {
    for (; since_barrier_ < id; ++since_barrier_) graph_.control.emplace_back(since_barrier_, id);
    ++since_barrier_;
  }
  for (const CallOperand& one : call.operands) {
    if (!one.writes || one.storage == kNoNumber || !aside_[one.storage]) continue;
    const auto [before, first] = last_aside_.try_emplace(one.storage, id);
    if (!first) graph_.control.emplace_back(std::exchange(before->second, id), id);
  }
  if (!call.random) return;
  if (last_random_ != kNoNumber) graph_.control.emplace_back(last_random_, id);
  last_random_ = id;
}

void StepGraph::add_end() {
  const auto id = static_cast<OperatorId>(graph_.operators.size());
  Operator op;
  op.name = "end of the step";
  op.phase = Phase::kOptimizer;
  op.traits.host_sync = true;
  Alternative& alternative = op.alternatives.emplace_back();
  for (std::uint32_t n = 0; n < storages_.size(); ++n)
    if (storages_[n].kind == StorageClass::kStep && storages_[n].outlives)
      alternative.reads.push_back({.value = {rooms_[n], versions_[rooms_[n]]},
                                   .offset = 0,
                                   .bytes = storages_[n].outliving_bytes});
  for (OperatorId before = 0; before < id; ++before) graph_.control.emplace_back(before, id);
  graph_.operators.push_back(std::move(op));
}

Graph StepGraph::finish() && {
  const std::vector<Phase> phases = phases_of(calls_, storages_.size());
  for (OperatorId op = 0; op < call_of_.size(); ++op)
    graph_.operators[op].phase = phases[call_of_[op]];
  add_end();
  return std::move(graph_);
}

}  // namespace berth::graph
