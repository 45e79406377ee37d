#include "csrc/graph/step_graph.h"

#include "csrc/graph/phases.h"

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

}  // namespace

StepGraph::StepGraph(const std::vector<StepStorage>& storages, const std::vector<StepCall>& calls,
                     std::vector<StorageId> rooms, StepForm form)
    : storages_(storages), calls_(calls), rooms_(std::move(rooms)), form_(form) {
  for (std::uint32_t n = 0; n < storages_.size(); ++n)
    if (rooms_[n] == graph_.storages.size())
      graph_.storages.push_back({storages_[n].bytes, storages_[n].kind, storages_[n].role});
  versions_.resize(graph_.storages.size(), 0);
  makers_.resize(graph_.storages.size(), kNoNumber);
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

void StepGraph::write(OperatorId id, Alternative& alternative, std::uint32_t storage) {
  const StorageId room = rooms_[storage];
  alternative.writes.push_back({room, ++versions_[room]});
  makers_[room] = id;
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
  op.traits.collective = call.collective;
  op.forward = call.forward;
  Alternative& alternative = op.alternatives.emplace_back();
  alternative.ns = static_cast<std::uint64_t>(share * static_cast<double>(call.ns));
  alternative.workspace = static_cast<Bytes>(share * static_cast<double>(call.workspace));

  Added added;
  OperatorId last_made = kNoNumber;  // of what it reads
  for (const std::uint32_t n : operands) {
    const CallOperand& one = call.operands[n];
    const bool reads = one.storage != kNoNumber && one.reads && !aside_[one.storage];
    added.reads.push_back(reads ? add_read(alternative, one) : kNoNumber);
    const OperatorId maker = reads ? makers_[rooms_[one.storage]] : kNoNumber;
    if (maker != kNoNumber && (last_made == kNoNumber || maker > last_made)) last_made = maker;
  }
  std::vector<std::uint32_t>& made = added.made;
  for (const std::uint32_t n : operands) {
    const CallOperand& one = call.operands[n];
    if (!one.writes || one.storage == kNoNumber) continue;
    if (aside_[one.storage])
      alternative.workspace +=
          form_ == StepForm::kProgram ? graph_.storages[rooms_[one.storage]].bytes : 0;
    else if (std::find(made.begin(), made.end(), one.storage) == made.end())
      made.push_back(one.storage);
  }
  for (const std::uint32_t storage : made) {
    write(id, alternative, storage);
    op.traits.changes_state |= graph_.storages[rooms_[storage]].kind != StorageClass::kStep;
  }
  for (const std::uint32_t n : results) {
    const std::uint32_t storage = call.results[n];
    added.writes.push_back(kNoNumber);
    if (storage == kNoNumber || storages_[storage].maker != number) continue;
    const auto at = std::find(made.begin(), made.end(), storage);
    added.writes.back() = static_cast<std::uint32_t>(at - made.begin());
    if (at != made.end()) continue;
    write(id, alternative, storage);
    made.push_back(storage);
  }
  add_control(id, call, last_made);
  if (call.host_read || call.checked) last_host_read_ = id;
  call_of_.push_back(number);
  graph_.operators.push_back(std::move(op));
  return added;
}

void StepGraph::follow(OperatorId& before, OperatorId id) {
  if (before != kNoNumber) graph_.control.emplace_back(before, id);
  before = id;
}

void StepGraph::add_control(OperatorId id, const StepCall& call, OperatorId last_made) {
  const bool in_step = call.host_read || call.collective;
  // What reads something that was made later is behind a read of the host as its maker is.
  const bool behind = (last_made != kNoNumber && last_made > last_host_read_) ||
                      (in_step && last_in_step_ != kNoNumber && last_in_step_ >= last_host_read_);
  // mutant: step-read
  if (last_host_read_ != kNoNumber && !behind) graph_.control.emplace_back(last_host_read_, id);
  if (call.barrier) {
    for (; since_barrier_ < id; ++since_barrier_) graph_.control.emplace_back(since_barrier_, id);
    ++since_barrier_;
  }
  for (const CallOperand& one : call.operands)
    if (one.writes && one.storage != kNoNumber && aside_[one.storage])
      follow(last_aside_.try_emplace(one.storage, kNoNumber).first->second, id);
  if (call.random) follow(last_random_, id);
  if (in_step) follow(last_in_step_, id);
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
  if (form_ == StepForm::kRecording) {
    find_phases_by_role(graph_, calls_);
    return std::move(graph_);
  }
  const std::vector<Phase> phases = phases_by_use(calls_, storages_.size());
  for (OperatorId op = 0; op < call_of_.size(); ++op)
    graph_.operators[op].phase = phases[call_of_[op]];
  add_end();
  return std::move(graph_);
}

Graph graph_of(const std::vector<StepStorage>& storages, const std::vector<StepCall>& calls,
               StepForm form) {
  StepGraph graph(storages, calls, numbers_to(storages.size()), form);
  for (std::uint32_t n = 0; n < calls.size(); ++n) graph.add(n);
  return std::move(graph).finish();
}

}  // namespace berth::graph
