#include "csrc/graph/schedule_file.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/graph/columns.h"
#include "csrc/graph/generated/schedule_generated.h"

#include <string_view>
#include <unordered_map>

namespace berth::graph {
namespace {

namespace fb = schedule_file;
using Kind = ScheduleStep::Kind;

// Why no file holds this schedule; empty where one does.
std::string obstacle(const Schedule& schedule) {
  std::size_t reads = 0, writes = 0, offsets = 0;
  const std::size_t buffers = schedule.buffers.size();
  for (const Buffer& buffer : schedule.buffers) offsets += buffer.offsets.size();
  for (std::size_t k = 0; k < schedule.steps.size(); ++k) {
    const ScheduleStep& step = schedule.steps[k];
    reads += step.reads.size();
    writes += step.writes.size();
    const auto check = [&](BufferId named) {
      return named < buffers
                 ? std::string()
                 : fmt::format("step {} names buffer {}, there are {}", k, named, buffers);
    };
    std::string wrong = step.kind == Kind::kRun ? std::string() : check(step.buffer);
    for (const auto* list : {&step.reads, &step.writes})
      for (const BufferId named : *list)
        if (wrong.empty()) wrong = check(named);
    if (!wrong.empty()) return wrong;
  }
  const auto above = [](std::size_t count, const char* what, std::size_t limit) {
    return count <= limit ? std::string()
                          : fmt::format("{} {}, the limit is {}", count, what, limit);
  };
  for (const std::string& wrong :
       {above(buffers, "buffers", Schedule::kMaxBuffers),
        above(schedule.steps.size(), "steps", Schedule::kMaxSteps),
        above(reads, "reads", Schedule::kMaxUses), above(writes, "writes", Schedule::kMaxUses),
        above(offsets, "offsets", Schedule::kMaxUses),
        above(schedule.operators.size(), "operators", Graph::kMaxOperators)})
    if (!wrong.empty()) return wrong;
  return {};
}

ScheduleStep step_from(const fb::Step& from, Column<std::uint32_t>& reads,
                       Column<std::uint32_t>& writes, const std::string& name) {
  ScheduleStep step;
  BERTH_CHECK(from.kind() <= static_cast<std::uint32_t>(Kind::kReload), kInput,
              "'{}' is malformed: a step of kind {}, the last is {}", name, from.kind(),
              static_cast<std::uint32_t>(Kind::kReload));
  step.kind = static_cast<Kind>(from.kind());
  if (step.kind != Kind::kRun) {
    step.buffer = from.target();
    if (step.kind == Kind::kOffload) step.host_offset = from.workspace_offset();
    return step;
  }
  step.op = from.target();
  step.alternative = from.alternative();
  step.workspace_offset = from.workspace_offset();
  reads.next(from.reads(), [&](BufferId buffer) { step.reads.push_back(buffer); });
  writes.next(from.writes(), [&](BufferId buffer) { step.writes.push_back(buffer); });
  return step;
}

void read_identities(const fb::Schedule& from, Schedule& schedule, const std::string& name) {
  Column names(from.names(), "names of operators", Graph::kMaxOperators, name);
  Column numbers(from.operator_names(), "operators", Graph::kMaxOperators, name);
  Column operands(from.operands(), "hashes of operands", Graph::kMaxOperators, name);
  std::vector<std::string> known;
  known.reserve(names.size());
  names.next(names.size(), [&](const flatbuffers::String* one) { known.push_back(one->str()); });
  schedule.operators.reserve(numbers.size());
  numbers.next(numbers.size(), [&](std::uint32_t number) {
    BERTH_CHECK(number < known.size(), kInput,
                "'{}' is malformed: an operator has name {}, there are {}", name, number,
                known.size());
    schedule.operators.push_back({known[number], operands.next()});
  });
  operands.check_end();
}

}  // namespace

Schedule read_schedule(const std::string& path) {
  return parse_schedule(read_file(path, kMaxPlanFileBytes), path);
}

Schedule parse_schedule(std::span<const std::byte> data, const std::string& name) {
  std::vector<std::byte> copy;
  data = aligned(data, copy);
  constexpr SectionType kKnown[] = {SectionType::kSchedule};
  const std::vector<Section> sections = read_sections(data, kKnown, name);
  const auto& from = root_table<fb::Schedule>(sections, SectionType::kSchedule, 1, name);
  Column buffers(from.buffers(), "buffers", Schedule::kMaxBuffers, name);
  Column offsets(from.offsets(), "offsets", Schedule::kMaxUses, name);
  Column steps(from.steps(), "steps", Schedule::kMaxSteps, name);
  Column reads(from.reads(), "reads", Schedule::kMaxUses, name);
  Column writes(from.writes(), "writes", Schedule::kMaxUses, name);

  Schedule schedule;
  schedule.buffers.reserve(buffers.size());
  buffers.next(buffers.size(), [&](const fb::Buffer* one) {
    Buffer& buffer = schedule.buffers.emplace_back();
    buffer.storage = one->storage();
    offsets.next(one->births(), [&](Bytes offset) { buffer.offsets.push_back(offset); });
  });
  schedule.steps.reserve(steps.size());
  steps.next(steps.size(), [&](const fb::Step* one) {
    schedule.steps.push_back(step_from(*one, reads, writes, name));
  });
  offsets.check_end();
  reads.check_end();
  writes.check_end();
  schedule.arena_bytes = from.arena_bytes();
  schedule.host_bytes = from.host_bytes();
  schedule.budget = from.budget();
  schedule.engine = from.engine() ? from.engine()->str() : "";
  schedule.seed = from.seed();
  schedule.graph_hash = from.graph_hash();
  schedule.peak = from.peak();
  schedule.peak_bound = from.peak_bound();
  schedule.ns = from.ns();
  schedule.ns_bound = from.ns_bound();
  read_identities(from, schedule, name);
  const std::string wrong = obstacle(schedule);
  BERTH_CHECK(wrong.empty(), kInput, "'{}' is malformed: {}", name, wrong);
  return schedule;
}

void write_schedule(const std::string& path, const Schedule& schedule) {
  write_file_atomically(path, serialize_schedule(schedule));
}

std::vector<std::byte> serialize_schedule(const Schedule& schedule) {
  const std::string wrong = obstacle(schedule);
  BERTH_CHECK(wrong.empty(), kUsage, "a malformed schedule: {}", wrong);
  std::vector<fb::Buffer> buffers;
  std::vector<fb::Step> steps;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> reads, writes;
  for (const Buffer& buffer : schedule.buffers) {
    buffers.emplace_back(buffer.storage, static_cast<std::uint32_t>(buffer.offsets.size()));
    offsets.insert(offsets.end(), buffer.offsets.begin(), buffer.offsets.end());
  }
  for (const ScheduleStep& step : schedule.steps) {
    const auto kind = static_cast<std::uint32_t>(step.kind);
    if (step.kind != Kind::kRun) {
      const bool out = step.kind == Kind::kOffload;
      steps.emplace_back(out ? step.host_offset : Buffer::kNoOffset, step.buffer, 0, 0, 0, kind);
      continue;
    }
    steps.emplace_back(step.workspace_offset, step.op, step.alternative,
                       static_cast<std::uint32_t>(step.reads.size()),
                       static_cast<std::uint32_t>(step.writes.size()), kind);
    reads.insert(reads.end(), step.reads.begin(), step.reads.end());
    writes.insert(writes.end(), step.writes.begin(), step.writes.end());
  }
  flatbuffers::FlatBufferBuilder to;
  const auto all_buffers = to.CreateVectorOfStructs(buffers);
  const auto all_offsets = to.CreateVector(offsets);
  const auto all_steps = to.CreateVectorOfStructs(steps);
  const auto all_reads = to.CreateVector(reads);
  const auto all_writes = to.CreateVector(writes);
  const auto engine = to.CreateString(schedule.engine);
  // Not where they are not said, so that such schedules keep their bytes.
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>> all_names;
  flatbuffers::Offset<flatbuffers::Vector<std::uint32_t>> all_numbers;
  flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> all_operands;
  if (!schedule.operators.empty()) {
    std::vector<std::string> names;
    std::unordered_map<std::string_view, std::uint32_t> number_of;
    std::vector<std::uint32_t> numbers;
    std::vector<std::uint64_t> operands;
    for (const OperatorIdentity& one : schedule.operators) {
      const auto [found, first] =
          number_of.try_emplace(one.name, static_cast<std::uint32_t>(names.size()));
      if (first) names.push_back(one.name);
      numbers.push_back(found->second);
      operands.push_back(one.operands);
    }
    all_names = to.CreateVectorOfStrings(names);
    all_numbers = to.CreateVector(numbers);
    all_operands = to.CreateVector(operands);
  }
  to.Finish(fb::CreateSchedule(to, all_buffers, all_offsets, all_steps, all_reads, all_writes,
                               schedule.arena_bytes, schedule.budget, engine, schedule.seed,
                               schedule.graph_hash, schedule.peak, schedule.peak_bound, schedule.ns,
                               schedule.ns_bound, schedule.host_bytes, all_names, all_numbers,
                               all_operands));
  return write_sections({{SectionType::kSchedule, true, table_content(to)}});
}

}  // namespace berth::graph
