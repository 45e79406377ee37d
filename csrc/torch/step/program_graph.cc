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

// Parts of a call have at least this share of its first list's bytes, but for the last.
constexpr Bytes kMostParts = 32;

// The number of elements that a call does the same for; 0 where it is none that can be taken apart:
// all lists have as many, or none, and their elements are alike in shape from list to list.
std::size_t elements_of(const Call& call) {
  if (!facts_of(call.op).listwise || call.random || call.host_read) return 0;
  std::size_t elements = 0;
  std::size_t operand = 0;
  const Operand* first = nullptr;
  for (const Argument& argument : call.arguments) {
    const Operand* const list = call.operands.data() + operand;
    operand += argument.tensors;
    if (argument.form == Form::kOptionalTensors) return 0;
    if (argument.form != Form::kTensors || argument.tensors == 0) continue;
    if (elements == 0) {
      elements = argument.tensors;
      first = list;
    }
    if (argument.tensors != elements) return 0;
    for (std::size_t n = 0; n < elements; ++n) {
      if (list[n].storage == kNoStorage) return 0;
      // Steps are lists of single numbers; anything else is as its like in the first list.
      const bool number = list[n].sizes.empty();
      if (!number && (list[n].sizes != first[n].sizes || list[n].strides != first[n].strides))
        return 0;
      if (list[n].type != list[0].type) return 0;
    }
  }
  for (const Result& result : call.results)
    if (result.form != Form::kTensors || result.tensors != elements) return 0;
  return elements < 2 ? 0 : elements;
}

Bytes bytes_of(const Operand& operand) {
  return static_cast<Bytes>(c10::multiply_integers(operand.sizes)) * operand.type.itemsize();
}

// With the share of the call's bytes that each part has.
std::vector<std::pair<Part, double>> parts_of(const Call& call, std::uint32_t number) {
  const std::size_t elements = elements_of(call);
  if (elements == 0) return {{{.call = number}, 1.0}};
  std::size_t operand = 0;
  for (const Argument& argument : call.arguments) {
    if (argument.form == Form::kTensors && argument.tensors > 0) break;
    operand += argument.tensors;
  }
  Bytes all = 0;
  for (std::size_t n = 0; n < elements; ++n) all += bytes_of(call.operands[operand + n]);
  std::vector<std::pair<Part, double>> parts;
  Bytes bytes = 0;
  std::uint32_t first = 0;
  for (std::uint32_t n = 0; n < elements; ++n) {
    bytes += bytes_of(call.operands[operand + n]);
    if (n + 1 < elements && bytes * kMostParts < all) continue;
    const double share = all == 0 ? 1.0 / static_cast<double>(elements)
                                  : static_cast<double>(bytes) / static_cast<double>(all);
    parts.push_back({{.call = number, .first = first, .count = n + 1 - first}, share});
    first = n + 1;
    bytes = 0;
  }
  if (parts.size() == 1) return {{{.call = number}, 1.0}};
  return parts;
}

// The operands, or results, of a part by their numbers in the call. `Lists`: arguments or results.
template <typename Lists>
std::vector<std::uint32_t> numbers_of(const Lists& lists, const Part& part) {
  std::vector<std::uint32_t> numbers;
  std::uint32_t before = 0;
  for (const auto& list : lists) {
    const bool cut = part.count != Part::kWhole && list.form == Form::kTensors && list.tensors > 0;
    const std::uint32_t first = cut ? part.first : 0, count = cut ? part.count : list.tensors;
    for (std::uint32_t n = 0; n < count; ++n) numbers.push_back(before + first + n);
    before += list.tensors;
  }
  return numbers;
}

class Builder {
 public:
  Builder(const Program& program, Bytes alignment, const GraphForm& form)
      : program_(program), alignment_(alignment), split_(form.split), aside_(find_aside()) {
    const auto is_on_host = [](const RecordedStorage& one) { return one.device.is_cpu(); };
    const bool host_counts =
        std::all_of(program.storages.begin(), program.storages.end(), is_on_host);
    for (StorageNumber n = 0; n < program.storages.size(); ++n) {
      out_.room.push_back(n);
      // Beside a device the host's tensors take none of its memory: numbers, counts of steps.
      const RecordedStorage& storage = program.storages[n];
      const Bytes bytes = host_counts || !is_on_host(storage) ? storage.bytes : 0;
      out_.graph.storages.push_back({.bytes = align_up(bytes, alignment), .kind = kind_of(n)});
    }
    for (const Call& call : program.calls)
      if (form.twins && call.twin)
        out_.room[call.result_tensors.front().operand.storage] =
            out_.room[call.operands[call.twin->operand].storage];
    number_rooms();
    versions_.resize(out_.graph.storages.size(), 0);
  }

  ProgramGraph build() {
    for (std::uint32_t n = 0; n < program_.calls.size(); ++n) {
      const Call& call = program_.calls[n];
      if (!split_)
        add(call, {.call = n}, 1);
      else
        for (const auto& [part, share] : parts_of(call, n)) add(call, part, share);
      note_host_read(call);
    }
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

  // Storages of the graph are those whose bytes are nobody else's.
  void number_rooms() {
    std::vector<graph::Storage> rooms;
    std::vector<graph::StorageId> number(out_.room.size());
    for (StorageNumber n = 0; n < out_.room.size(); ++n) {
      if (out_.room[n] == n) {
        number[n] = static_cast<graph::StorageId>(rooms.size());
        rooms.push_back(out_.graph.storages[n]);
      }
    }
    for (graph::StorageId& room : out_.room) room = number[room];
    out_.graph.storages = std::move(rooms);
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

  graph::Read read_of(const Operand& operand) const {
    const std::size_t item = operand.type.itemsize();
    const graph::StorageId room = out_.room[operand.storage];
    if (out_.graph.storages[room].bytes == 0) return {.value = {room, versions_[room]}};
    return {.value = {room, versions_[room]},
            .offset = static_cast<Bytes>(operand.offset) * item,
            .bytes = at::detail::computeStorageNbytes(operand.sizes, operand.strides, item)};
  }

  // Where the alternative reads the storage's present version; the part grows to hold all that is
  // read of it.
  std::uint32_t add_read(Alternative& alternative, const Operand& operand) const {
    const graph::Read read = read_of(operand);
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

  void add(const Call& call, const Part& part, double share) {
    const auto id = static_cast<OperatorId>(out_.graph.operators.size());
    graph::Operator op;
    op.name = name_of(call.op);
    op.traits.random = op.traits.draws_again = call.random;
    op.traits.host_sync = call.host_read;
    Alternative& alternative = op.alternatives.emplace_back();
    alternative.ns = static_cast<std::uint64_t>(share * static_cast<double>(call.ns));
    alternative.workspace = static_cast<Bytes>(share * static_cast<double>(call.workspace));

    const std::vector<std::uint32_t> operands = numbers_of(call.arguments, part);
    std::vector<std::uint32_t>& reads = out_.reads.emplace_back();
    for (const std::uint32_t n : operands) {
      const Operand& operand = call.operands[n];
      reads.push_back(operand.storage == kNoStorage || aside_[operand.storage]
                          ? kNever
                          : add_read(alternative, operand));
    }
    std::vector<StorageNumber>& made = out_.made.emplace_back();
    for (const std::uint32_t operand : call.writes) {
      if (!std::binary_search(operands.begin(), operands.end(), operand)) continue;
      const StorageNumber storage = call.operands[operand].storage;
      if (storage == kNoStorage) continue;
      if (aside_[storage])
        alternative.workspace += out_.graph.storages[out_.room[storage]].bytes;
      else if (std::find(made.begin(), made.end(), storage) == made.end())
        made.push_back(storage);
    }
    for (const StorageNumber storage : made) {
      write(alternative, storage);
      op.traits.changes_state |=
          out_.graph.storages[out_.room[storage]].kind != graph::StorageClass::kStep;
    }
    std::vector<std::uint32_t>& writes = out_.writes.emplace_back();
    for (const std::uint32_t n : numbers_of(call.results, part)) {
      const ResultTensor& result = call.result_tensors[n];
      writes.push_back(kNever);
      const StorageNumber storage = result.operand.storage;
      if (result.argument != ResultTensor::kNew || storage == kNoStorage ||
          program_.storages[storage].maker != part.call)
        continue;
      auto at = std::find(made.begin(), made.end(), storage);
      if (at == made.end()) {
        write(alternative, storage);
        made.push_back(storage);
        at = std::prev(made.end());
      }
      writes.back() = static_cast<std::uint32_t>(at - made.begin());
    }
    // They take and leave the same.
    if (part.count == Part::kWhole)
      for (const Way& way : call.ways) {
        Alternative& other = op.alternatives.emplace_back(op.alternatives.front());
        other.ns = way.ns;
        other.workspace += align_up(way.workspace, alignment_) - call.workspace;
        other.algorithm = way.name;
      }
    add_control(id, call);
    out_.parts.push_back(part);
    out_.graph.operators.push_back(std::move(op));
  }

  void write(Alternative& alternative, StorageNumber storage) {
    const graph::StorageId room = out_.room[storage];
    alternative.writes.push_back({room, ++versions_[room]});
  }

  void add_control(OperatorId id, const Call& call) {
    if (last_host_read_ != kNever) out_.graph.control.emplace_back(last_host_read_, id);
    for (const std::uint32_t operand : call.writes) {
      const StorageNumber storage = call.operands[operand].storage;
      if (storage == kNoStorage || !aside_[storage]) continue;
      const auto [before, first] = last_aside_.try_emplace(storage, id);
      if (!first) out_.graph.control.emplace_back(std::exchange(before->second, id), id);
    }
    if (!call.random) return;
    if (last_random_ != kNever) out_.graph.control.emplace_back(last_random_, id);
    last_random_ = id;
  }
  void note_host_read(const Call& call) {
    if (call.host_read) last_host_read_ = static_cast<OperatorId>(out_.graph.operators.size() - 1);
  }

  // Backward is what ran in it; the optimizer is what came after the last of that and needs
  // something of it. What could as well have run before (counts of steps) is no part of it.
  void find_phases() {
    const auto& calls = program_.calls;
    const auto last =
        std::find_if(calls.rbegin(), calls.rend(), [](const Call& call) { return call.backward; });
    const auto end = static_cast<std::size_t>(calls.rend() - last);
    std::vector<bool> written(program_.storages.size()), read(program_.storages.size());
    std::vector<graph::Phase> phases;
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
      phases.push_back(call.backward ? graph::Phase::kBackward
                       : late        ? graph::Phase::kOptimizer
                                     : graph::Phase::kForward);
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
    for (OperatorId op = 0; op < out_.parts.size(); ++op)
      out_.graph.operators[op].phase = phases[out_.parts[op].call];
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
        alternative.reads.push_back({.value = {out_.room[n], versions_[out_.room[n]]},
                                     .offset = 0,
                                     .bytes = std::min(program_.storages[n].bytes,
                                                       out_.graph.storages[out_.room[n]].bytes)});
    for (OperatorId before = 0; before < id; ++before) out_.graph.control.emplace_back(before, id);
    out_.graph.operators.push_back(std::move(op));
  }

  const Program& program_;
  const Bytes alignment_;
  const bool split_;
  ProgramGraph out_;
  std::vector<std::uint32_t> versions_;  // by storage of the graph
  std::vector<bool> aside_;              // by storage of the program
  std::map<StorageNumber, OperatorId> last_aside_;
  OperatorId last_host_read_ = kNever, last_random_ = kNever;
};

}  // namespace

bool can_split(const Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(),
                     [](const Call& call) { return parts_of(call, 0).size() > 1; });
}

ProgramGraph graph_of(const Program& program, Bytes alignment, const GraphForm& form) {
  return Builder(program, alignment, form).build();
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

namespace {

// What is run by an operator's step: the call, where its operands and results are.
Instruction run_of(const Program& program, const ProgramGraph& of, const graph::ScheduleStep& step,
                   const std::vector<BufferNumber>& first_of) {
  Instruction instruction;
  const Part& part = of.parts[step.op];
  const Call& call = program.calls[part.call];
  instruction.call = part.call;
  instruction.first = part.first;
  instruction.count = part.count;
  if (step.alternative > 0) instruction.way = step.alternative - 1;
  const std::vector<std::uint32_t> operands = numbers_of(call.arguments, part);
  for (std::size_t n = 0; n < operands.size(); ++n) {
    const StorageNumber storage = call.operands[operands[n]].storage;
    const std::uint32_t read = of.reads[step.op][n];
    instruction.operands.push_back(read != kNever          ? step.reads[read]
                                   : storage == kNoStorage ? kNoBuffer
                                                           : first_of[storage]);
  }
  for (const std::uint32_t write : of.writes[step.op])
    instruction.results.push_back(write == kNever ? kNoBuffer : step.writes[write]);
  const auto& writes = of.graph.operators[step.op].alternatives[step.alternative].writes;
  for (std::size_t n = 0; n < writes.size(); ++n)
    instruction.made.push_back({step.writes[n], of.made[step.op][n], writes[n].version});
  return instruction;
}

// From the back: whether what is released or written over is made again, what is run, run again.
void look_ahead(const Program& program, std::vector<Instruction>& list) {
  std::vector<bool> made_later(program.storages.size()), runs_later(program.calls.size());
  for (auto one = list.rbegin(); one != list.rend(); ++one) {
    if (one->kind != Instruction::Kind::kRun) {
      one->made_again = one->storage != kNoStorage && made_later[one->storage];
      continue;
    }
    if (one->storage != kNoStorage) one->made_again = made_later[one->storage];
    one->again_later = runs_later[one->call];
    runs_later[one->call] = true;
    for (const Instruction::Made& made : one->made) made_later[made.storage] = true;
  }
}

}  // namespace

Instructions instructions_of(const Program& program, const ProgramGraph& of,
                             const graph::Schedule& schedule, Bytes most) {
  Instructions result;
  Room room(of.graph, schedule, most);
  result.buffers = static_cast<BufferNumber>(schedule.buffers.size());
  std::vector<BufferNumber> first_in(of.graph.storages.size(), kNoBuffer);
  for (BufferNumber n = 0; n < schedule.buffers.size(); ++n)
    if (BufferNumber& first = first_in[schedule.buffers[n].storage]; first == kNoBuffer) first = n;
  for (const graph::StorageId one : of.room) result.first_of.push_back(first_in[one]);
  // By buffer: whose bytes it has.
  std::vector<StorageNumber> holds(schedule.buffers.size(), kNoStorage);
  for (StorageNumber n = 0; n < program.storages.size(); ++n)
    if (program.kinds[n] != StorageKind::kMade) holds[result.first_of[n]] = n;

  for (const graph::ScheduleStep& step : schedule.steps) {
    const std::uint32_t ended = room.before(step);
    const Instruction::Kind kind = kind_of(step.kind);
    if (kind != Instruction::Kind::kRun) {
      Instruction& instruction = result.list.emplace_back();
      instruction.kind = kind;
      instruction.buffer = step.buffer;
      instruction.storage = holds[step.buffer];
      instruction.outs_ended = ended;
      continue;
    }
    if (step.op == of.parts.size()) continue;  // the end
    Instruction& instruction = result.list.emplace_back(run_of(program, of, step, result.first_of));
    instruction.outs_ended = ended;
    for (const Instruction::Made& made : instruction.made)
      if (const StorageNumber before = std::exchange(holds[made.buffer], made.storage);
          before != kNoStorage && before != made.storage) {
        instruction.storage = before;
        instruction.buffer = made.buffer;
      }
  }
  look_ahead(program, result.list);
  return result;
}

}  // namespace berth::torch::step
