#include "csrc/torch/step/program_graph.h"

#include "csrc/core/bytes.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace berth::torch::step {

namespace {

using graph::Alternative;
using graph::OperatorId;
using graph::ValueId;

class Builder {
 public:
  Builder(const Program& program, Bytes alignment)
      : program_(program), versions_(program.storages.size(), 0), aside_(find_aside()) {
    for (StorageNumber n = 0; n < program.storages.size(); ++n)
      out_.graph.storages.push_back(
          {.bytes = align_up(program.storages[n].bytes, alignment), .kind = kind_of(n)});
  }

  ProgramGraph build() {
    for (const Call& call : program_.calls) add(call);
    find_phases();
    add_end();
    return std::move(out_);
  }

 private:
  graph::StorageClass kind_of(StorageNumber n) const {
    if (program_.kinds[n] == StorageKind::kMade) return graph::StorageClass::kStep;
    return program_.kinds[n] == StorageKind::kResident || program_.storages[n].outlives
               ? graph::StorageClass::kResident
               : graph::StorageClass::kInput;
  }

  // Residents that are used as state that no result depends on, and by no other call.
  std::vector<bool> find_aside() const {
    std::vector<bool> aside(program_.storages.size());
    for (const Call& call : program_.calls)
      for (const std::uint32_t operand : call.aside) {
        const StorageNumber storage = call.operands[operand].storage;
        aside[storage] = program_.kinds[storage] == StorageKind::kResident;
      }
    for (const Call& call : program_.calls)
      for (std::uint32_t n = 0; n < call.operands.size(); ++n)
        if (const StorageNumber storage = call.operands[n].storage;
            storage != kNoStorage && !std::count(call.aside.begin(), call.aside.end(), n))
          aside[storage] = false;
    return aside;
  }

  static graph::Read read_of(const Operand& operand, std::uint32_t version) {
    const std::size_t item = operand.type.itemsize();
    return {.value = {operand.storage, version},
            .offset = static_cast<Bytes>(operand.offset) * item,
            .bytes = at::detail::computeStorageNbytes(operand.sizes, operand.strides, item)};
  }

  // Where the alternative reads the storage's present version; the part grows to hold all that is
  // read of it.
  std::uint32_t add_read(Alternative& alternative, const Operand& operand) {
    const graph::Read read = read_of(operand, versions_[operand.storage]);
    for (std::uint32_t n = 0; n < alternative.reads.size(); ++n) {
      graph::Read& there = alternative.reads[n];
      if (there.value != read.value) continue;
      const Bytes end = std::max(there.offset + there.bytes, read.offset + read.bytes);
      there.offset = std::min(there.offset, read.offset);
      there.bytes = end - there.offset;
      return n;
    }
    alternative.reads.push_back(read);
    return static_cast<std::uint32_t>(alternative.reads.size() - 1);
  }

  void add(const Call& call) {
    const auto id = static_cast<OperatorId>(out_.graph.operators.size());
    graph::Operator op;
    op.name = name_of(call.op);
    op.traits.random = op.traits.draws_again = call.random;
    op.traits.host_sync = call.host_read;
    Alternative& alternative = op.alternatives.emplace_back();
    alternative.ns = call.ns;
    alternative.workspace = call.workspace;

    std::vector<std::uint32_t>& reads = out_.reads.emplace_back();
    for (const Operand& operand : call.operands)
      reads.push_back(operand.storage == kNoStorage || aside_[operand.storage]
                          ? kNever
                          : add_read(alternative, operand));
    std::vector<StorageNumber> written;
    for (const std::uint32_t operand : call.writes) {
      const StorageNumber storage = call.operands[operand].storage;
      if (aside_[storage])
        alternative.workspace += out_.graph.storages[storage].bytes;
      else if (std::find(written.begin(), written.end(), storage) == written.end())
        written.push_back(storage);
    }
    for (const StorageNumber storage : written) {
      alternative.writes.push_back({storage, ++versions_[storage]});
      op.traits.changes_state |= out_.graph.storages[storage].kind != graph::StorageClass::kStep;
    }
    std::vector<std::uint32_t>& writes = out_.writes.emplace_back();
    for (const ResultTensor& result : call.result_tensors) {
      writes.push_back(kNever);
      const StorageNumber storage = result.operand.storage;
      if (result.argument != ResultTensor::kNew || storage == kNoStorage ||
          program_.storages[storage].maker != id)
        continue;
      if (versions_[storage] == 0) {
        versions_[storage] = 1;
        alternative.writes.push_back({storage, 1});
      }
      const auto at =
          std::find(alternative.writes.begin(), alternative.writes.end(), ValueId{storage, 1});
      writes.back() = static_cast<std::uint32_t>(at - alternative.writes.begin());
    }
    add_control(id, call);
    out_.graph.operators.push_back(std::move(op));
  }

  void add_control(OperatorId id, const Call& call) {
    if (last_host_read_ != kNever) out_.graph.control.emplace_back(last_host_read_, id);
    if (call.host_read) last_host_read_ = id;
    for (const std::uint32_t operand : call.writes) {
      const StorageNumber storage = call.operands[operand].storage;
      if (!aside_[storage]) continue;
      const auto [before, first] = last_aside_.try_emplace(storage, id);
      if (!first) out_.graph.control.emplace_back(std::exchange(before->second, id), id);
    }
    if (!call.random) return;
    if (last_random_ != kNever) out_.graph.control.emplace_back(last_random_, id);
    last_random_ = id;
  }

  // Backward is what ran in it; the optimizer is what came after the last of that and needs
  // something of it. What could as well have run before (counts of steps) is no part of it.
  void find_phases() {
    const auto& calls = program_.calls;
    const auto last =
        std::find_if(calls.rbegin(), calls.rend(), [](const Call& call) { return call.backward; });
    const auto end = static_cast<std::size_t>(calls.rend() - last);
    std::vector<bool> written(program_.storages.size()), read(program_.storages.size());
    bool late_host_read = false, late_draw = false;
    for (std::size_t n = 0; n < calls.size(); ++n) {
      const Call& call = calls[n];
      bool late = call.backward;
      if (!late && n >= end && end > 0) {
        late = late_host_read || (call.random && late_draw);
        for (const Operand& one : call.operands)
          late = late || (one.storage != kNoStorage && written[one.storage]);
        for (const std::uint32_t operand : call.writes)
          late = late || (call.operands[operand].storage != kNoStorage &&
                          read[call.operands[operand].storage]);
      }
      out_.graph.operators[n].phase = call.backward ? graph::Phase::kBackward
                                      : late        ? graph::Phase::kOptimizer
                                                    : graph::Phase::kForward;
      if (!late) continue;
      late_host_read |= call.host_read;
      late_draw |= call.random;
      for (const Operand& one : call.operands)
        if (one.storage != kNoStorage) read[one.storage] = true;
      for (const std::uint32_t operand : call.writes)
        if (call.operands[operand].storage != kNoStorage)
          written[call.operands[operand].storage] = true;
      for (const ResultTensor& result : call.result_tensors)
        if (result.operand.storage != kNoStorage) written[result.operand.storage] = true;
    }
  }

  void add_end() {
    const auto id = static_cast<OperatorId>(out_.graph.operators.size());
    graph::Operator op;
    op.name = "end of the step";
    op.phase = graph::Phase::kOptimizer;
    op.traits.host_sync = true;
    Alternative& alternative = op.alternatives.emplace_back();
    for (StorageNumber n = 0; n < program_.storages.size(); ++n)
      if (program_.kinds[n] == StorageKind::kMade && program_.storages[n].outlives)
        alternative.reads.push_back(
            {.value = {n, versions_[n]}, .offset = 0, .bytes = program_.storages[n].bytes});
    for (OperatorId before = 0; before < id; ++before) out_.graph.control.emplace_back(before, id);
    out_.graph.operators.push_back(std::move(op));
  }

  const Program& program_;
  ProgramGraph out_;
  std::vector<std::uint32_t> versions_;
  std::vector<bool> aside_;  // by storage
  std::map<StorageNumber, OperatorId> last_aside_;
  OperatorId last_host_read_ = kNever, last_random_ = kNever;
};

}  // namespace

ProgramGraph graph_of(const Program& program, Bytes alignment) {
  return Builder(program, alignment).build();
}

namespace {

// Counts what is on the device along a schedule, to say how many copies out must have ended before
// what follows them has room: none as long as there is room beside them.
class Room {
 public:
  Room(const graph::Graph& graph, const graph::Schedule& schedule, Bytes most)
      : graph_(graph), schedule_(schedule), most_(most), there_(schedule.buffers.size(), false) {
    for (std::size_t n = 0; n < there_.size(); ++n)
      if (kind_of(static_cast<graph::BufferId>(n)) != graph::StorageClass::kStep)
        bear(static_cast<graph::BufferId>(n));
  }

  // The copies out that must have ended before the step, of all so far.
  std::uint32_t before(const graph::ScheduleStep& step) {
    using Kind = graph::ScheduleStep::Kind;
    switch (step.kind) {
      case Kind::kRun: {
        const graph::Alternative& way = graph_.operators[step.op].alternatives[step.alternative];
        for (const graph::BufferId made : step.writes) bear(made);
        make_room(way.workspace);
        break;
      }
      case Kind::kCopyIn:
        bear(step.buffer);
        make_room(0);
        break;
      case Kind::kCopyOut:
        there_[step.buffer] = false;
        leaving_.push_back(bytes_of(step.buffer));
        break;
      case Kind::kDrop:
        if (there_[step.buffer]) live_ -= bytes_of(step.buffer);
        there_[step.buffer] = false;
        break;
    }
    return ended_;
  }

 private:
  [[nodiscard]] graph::StorageClass kind_of(graph::BufferId buffer) const {
    return graph_.storages[schedule_.buffers[buffer].storage].kind;
  }
  [[nodiscard]] Bytes bytes_of(graph::BufferId buffer) const {
    return graph_.storages[schedule_.buffers[buffer].storage].bytes;
  }
  void bear(graph::BufferId buffer) {
    if (there_[buffer]) return;
    there_[buffer] = true;
    live_ += bytes_of(buffer);
  }
  void make_room(Bytes workspace) {
    while (live_ + workspace > most_ && !leaving_.empty()) {
      live_ -= leaving_.front();
      leaving_.pop_front();
      ++ended_;
    }
  }

  const graph::Graph& graph_;
  const graph::Schedule& schedule_;
  const Bytes most_;
  std::vector<bool> there_;    // by buffer
  Bytes live_ = 0;             // with what leaves
  std::deque<Bytes> leaving_;  // of copies out that need not have ended
  std::uint32_t ended_ = 0;
};

Instruction::Kind kind_of(graph::ScheduleStep::Kind kind) {
  using Kind = graph::ScheduleStep::Kind;
  switch (kind) {
    case Kind::kRun:
      return Instruction::Kind::kRun;
    case Kind::kDrop:
      return Instruction::Kind::kRelease;
    case Kind::kCopyOut:
      return Instruction::Kind::kCopyOut;
    case Kind::kCopyIn:
      return Instruction::Kind::kCopyIn;
  }
  return Instruction::Kind::kRun;
}

}  // namespace

Instructions instructions_of(const Program& program, const ProgramGraph& of,
                             const graph::Schedule& schedule, Bytes most) {
  Instructions result;
  Room room(of.graph, schedule, most);
  for (const graph::Buffer& buffer : schedule.buffers) result.storage_of.push_back(buffer.storage);
  result.first_of.assign(program.storages.size(), kNoBuffer);
  for (BufferNumber n = 0; n < result.storage_of.size(); ++n)
    if (BufferNumber& first = result.first_of[result.storage_of[n]]; first == kNoBuffer) first = n;

  for (const graph::ScheduleStep& step : schedule.steps) {
    Instruction& instruction = result.list.emplace_back();
    instruction.kind = kind_of(step.kind);
    instruction.outs_ended = room.before(step);
    if (instruction.kind != Instruction::Kind::kRun) {
      instruction.buffer = step.buffer;
      continue;
    }
    if (step.op == program.calls.size()) {  // the end
      result.list.pop_back();
      continue;
    }
    instruction.call = step.op;
    const std::vector<Operand>& operands = program.calls[step.op].operands;
    for (std::size_t n = 0; n < operands.size(); ++n) {
      const StorageNumber storage = operands[n].storage;
      const std::uint32_t read = of.reads[step.op][n];
      instruction.operands.push_back(read != kNever          ? step.reads[read]
                                     : storage == kNoStorage ? kNoBuffer
                                                             : result.first_of[storage]);
    }
    for (const std::uint32_t write : of.writes[step.op])
      instruction.results.push_back(write == kNever ? kNoBuffer : step.writes[write]);
    const auto& writes = of.graph.operators[step.op].alternatives[step.alternative].writes;
    for (std::size_t n = 0; n < writes.size(); ++n)
      instruction.made.emplace_back(step.writes[n], writes[n].version);
  }
  // From the back: whether what is released is made again, what is run, run again.
  std::map<StorageNumber, std::uint32_t> made_later;  // the highest version
  std::vector<bool> runs_later(program.calls.size());
  for (auto one = result.list.rbegin(); one != result.list.rend(); ++one) {
    if (one->kind != Instruction::Kind::kRun) {
      one->made_again = made_later.contains(result.storage_of[one->buffer]);
      continue;
    }
    one->again_later = runs_later[one->call];
    runs_later[one->call] = true;
    for (const auto& [buffer, version] : one->made) {
      std::uint32_t& highest = made_later[result.storage_of[buffer]];
      highest = std::max(highest, version);
    }
  }
  return result;
}

}  // namespace berth::torch::step
