#include "csrc/torch/step/program_graph.h"

#include "csrc/core/bytes.h"
#include "csrc/graph/step_graph.h"
#include "csrc/torch/step/operator_facts.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

namespace berth::torch::step {

namespace {

using graph::Alternative;

// Parts of a call have at least this share of its first list's bytes, but for the last.
constexpr Bytes kMostParts = 32;

// The number of elements that a call does the same for; 0 where it is none that can be taken apart:
// all lists have as many, or none, and their elements are alike in shape from list to list.
std::size_t elements_of(const Call& call) {
  if (!facts_of(call.op).listwise || call.random || call.host_read || call.checked) return 0;
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
      : program_(program), alignment_(alignment), form_(form) {
    find_storages();
    for (const Call& call : program.calls) calls_.push_back(as_step_call(call));
    find_rooms();
  }

  ProgramGraph build() {
    graph::StepGraph graph(storages_, calls_, out_.room);
    for (std::uint32_t n = 0; n < program_.calls.size(); ++n) {
      if (!form_.split)
        add(graph, {.call = n}, 1);
      else
        for (const auto& [part, share] : parts_of(program_.calls[n], n)) add(graph, part, share);
    }
    out_.graph = std::move(graph).finish();
    return std::move(out_);
  }

 private:
  void find_storages() {
    const auto is_on_host = [](const RecordedStorage& one) { return one.device.is_cpu(); };
    const bool host_counts =
        std::all_of(program_.storages.begin(), program_.storages.end(), is_on_host);
    for (StorageNumber n = 0; n < program_.storages.size(); ++n) {
      // Beside a device the host's tensors take none of its memory: numbers, counts of steps.
      const RecordedStorage& storage = program_.storages[n];
      const Bytes bytes =
          align_up(host_counts || !is_on_host(storage) ? storage.bytes : 0, alignment_);
      storages_.push_back({.bytes = bytes,
                           .kind = kind_of(n),
                           .same = program_.kinds[n] == StorageKind::kResident,
                           .maker = storage.maker,
                           .outlives = storage.outlives,
                           .outliving_bytes = std::min(storage.bytes, bytes)});
    }
  }
  graph::StorageClass kind_of(StorageNumber n) const {
    if (program_.kinds[n] == StorageKind::kMade) return graph::StorageClass::kStep;
    return program_.kinds[n] == StorageKind::kResident || program_.storages[n].outlives
               ? graph::StorageClass::kResident
               : graph::StorageClass::kInput;
  }

  graph::StepCall as_step_call(const Call& call) const {
    graph::StepCall step{.name = name_of(call.op),
                         .backward = call.backward,
                         .random = call.random,
                         // Autograd tells allocators of the streams that take gradients, by a
                         // pointer: none is made again.
                         .host_read = call.host_read || (program_.several_streams && call.backward),
                         .barrier = call.barrier,
                         .checked = call.checked,
                         .ns = call.ns,
                         .workspace = call.workspace,
                         .operands = {},
                         .results = {}};
    for (const Operand& operand : call.operands) {
      graph::CallOperand& one = step.operands.emplace_back();
      if (operand.storage == kNoStorage) continue;
      const std::size_t item = operand.type.itemsize();
      one.storage = operand.storage;
      one.bytes = at::detail::computeStorageNbytes(operand.sizes, operand.strides, item);
      // A view of nothing may begin behind the end.
      if (one.bytes > 0) one.offset = static_cast<Bytes>(operand.offset) * item;
    }
    for (const std::uint32_t operand : call.writes) step.operands[operand].writes = true;
    for (const std::uint32_t operand : call.aside) step.operands[operand].aside = true;
    // What a side stream takes is not made again: it is another version from here on.
    // mutant: streams-again
    for (std::size_t n = 0; call.on_side() && n < call.operands.size(); ++n)
      if (const StorageNumber one = call.operands[n].storage; one != kNoStorage)
        step.operands[n].writes |= !program_.storages[one].of_body();
    for (const ResultTensor& result : call.result_tensors)
      step.results.push_back(result.argument == ResultTensor::kNew ? result.operand.storage
                                                                   : kNoStorage);
    return step;
  }

  // Storages of the graph are those whose bytes are nobody else's.
  void find_rooms() {
    std::vector<StorageNumber> owner(storages_.size());
    std::iota(owner.begin(), owner.end(), 0);
    for (const Call& call : program_.calls)
      if (form_.twins && call.twin)
        owner[call.result_tensors.front().operand.storage] =
            owner[call.operands[call.twin->operand].storage];
    graph::StorageId rooms = 0;
    for (StorageNumber n = 0; n < owner.size(); ++n)
      out_.room.push_back(owner[n] == n ? rooms++ : out_.room[owner[n]]);
  }

  void add(graph::StepGraph& graph, const Part& part, double share) {
    const Call& call = program_.calls[part.call];
    std::vector<std::uint32_t> operands = numbers_of(call.arguments, part);
    // What a barrier writes beside its arguments, which is one part.
    for (auto n = operands.size(); call.barrier && n < call.operands.size(); ++n)
      operands.push_back(static_cast<std::uint32_t>(n));
    graph::StepGraph::Added added =
        graph.add(part.call, operands, numbers_of(call.results, part), share);
    out_.reads.push_back(std::move(added.reads));
    out_.writes.push_back(std::move(added.writes));
    out_.made.push_back(std::move(added.made));
    out_.parts.push_back(part);
    if (part.count != Part::kWhole) return;
    // They take and leave the same.
    for (const CallAlternative& one : call.alternatives) {
      std::vector<Alternative>& alternatives = graph.last().alternatives;
      Alternative& other = alternatives.emplace_back(alternatives.front());
      other.ns = one.ns;
      other.workspace += align_up(one.workspace, alignment_) - call.workspace;
      other.algorithm = one.name;
    }
  }

  const Program& program_;
  const Bytes alignment_;
  const GraphForm form_;
  std::vector<graph::StepStorage> storages_;
  std::vector<graph::StepCall> calls_;
  ProgramGraph out_;
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

// Counts what is on the device along a schedule, to say how many offloads must have ended before
// what follows them has room: none as long as there is room beside them.
class Room {
 public:
  Room(const graph::Graph& graph, const graph::Schedule& schedule, Bytes most)
      : graph_(graph), schedule_(schedule), most_(most), there_(schedule.buffers.size(), false) {
    const std::vector<bool> on_host = graph::begin_on_host(graph, schedule);
    for (std::size_t n = 0; n < there_.size(); ++n)
      if (kind_of(static_cast<graph::BufferId>(n)) != graph::StorageClass::kStep && !on_host[n])
        bear(static_cast<graph::BufferId>(n));
  }

  // The offloads that must have ended before the step, of all so far.
  std::uint32_t before(const graph::ScheduleStep& step) {
    using Kind = graph::ScheduleStep::Kind;
    switch (step.kind) {
      case Kind::kRun: {
        const graph::Alternative& taken = graph_.operators[step.op].alternatives[step.alternative];
        for (const graph::BufferId made : step.writes) bear(made);
        make_room(taken.workspace);
        break;
      }
      case Kind::kReload:
        bear(step.buffer);
        make_room(0);
        break;
      case Kind::kOffload:
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
  std::deque<Bytes> leaving_;  // of offloads that need not have ended
  std::uint32_t ended_ = 0;
};

Instruction::Kind kind_of(graph::ScheduleStep::Kind kind) {
  using Kind = graph::ScheduleStep::Kind;
  switch (kind) {
    case Kind::kRun:
      return Instruction::Kind::kRun;
    case Kind::kDrop:
      return Instruction::Kind::kRelease;
    case Kind::kOffload:
      return Instruction::Kind::kOffload;
    case Kind::kReload:
      return Instruction::Kind::kReload;
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
  if (step.alternative > 0) instruction.alternative = step.alternative - 1;
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
      one->recomputed_at = one->storage != kNoStorage && made_later[one->storage];
      continue;
    }
    if (one->storage != kNoStorage) one->recomputed_at = made_later[one->storage];
    one->again_later = runs_later[one->call];
    runs_later[one->call] = true;
    for (const Instruction::Made& made : one->made) made_later[made.storage] = true;
  }
}

// What the body of a step of several streams can have itself: libtorch may tell its allocator of
// streams, and read it by pointers.
void find_given(const Program& program, Instructions& of) {
  // mutant: streams-given
  if (!program.several_streams) return;
  of.given.assign(program.storages.size(), kNoBuffer);
  of.read_again.assign(of.buffers, 0);
  std::vector<StorageNumber> holds(of.buffers, kNoStorage);
  std::vector<bool> leaves(program.storages.size()), ran(program.calls.size());
  for (const Instruction& one : of.list) {
    if (one.kind == Instruction::Kind::kRelease) continue;
    if (one.storage != kNoStorage) leaves[one.storage] = true;
    if (one.kind != Instruction::Kind::kRun) continue;
    const bool again = ran[one.call];
    ran[one.call] = true;
    for (const BufferNumber operand : one.operands)
      if (again && operand != kNoBuffer) of.read_again[operand] = 1;
    for (const Instruction::Made& made : one.made) {
      const StorageNumber before = std::exchange(holds[made.buffer], made.storage);
      BufferNumber& buffer = of.given[made.storage];
      if (before != kNoStorage && before != made.storage)
        leaves[before] = leaves[made.storage] = true;
      if (again || (buffer != kNoBuffer && buffer != made.buffer)) leaves[made.storage] = true;
      buffer = made.buffer;
    }
  }
  for (StorageNumber n = 0; n < program.storages.size(); ++n)
    if (leaves[n] || program.storages[n].of_body()) of.given[n] = kNoBuffer;
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

  const std::vector<bool> on_host = graph::begin_on_host(of.graph, schedule);
  for (StorageNumber n = 0; n < program.storages.size(); ++n)
    if (program.kinds[n] == StorageKind::kResident && on_host[result.first_of[n]])
      result.begin_on_host.push_back(n);

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
  find_given(program, result);
  return result;
}

}  // namespace berth::torch::step
