#include "csrc/cli/core/input.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/graph/file.h"
#include "csrc/plan/section_file.h"
#include "csrc/trace/csv.h"
#include "csrc/trace/file.h"
#include "csrc/trace/snapshot.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

namespace berth::cli {

namespace {

constexpr std::size_t kHeadBytes = 4096;  // the first line of a graph

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What lies in the frame of plan files, one first section each.
std::optional<InputKind> kind_in_frame(std::span<const std::byte> head) {
  const auto first = first_section(head.first(std::min(head.size(), kFirstSectionBytes)));
  if (first == SectionType::kSchedule) return InputKind::kSchedule;
  if (first == SectionType::kGraph) return InputKind::kGraph;
  const auto magic = std::as_bytes(std::span(kPlanMagic));
  const bool is_plan = std::ranges::equal(head.first(std::min(head.size(), magic.size())), magic);
  return is_plan ? std::optional(InputKind::kPlan) : std::nullopt;
}

// A JSON object; nothing else that is read begins so.
bool begins_as_json(std::span<const std::byte> head) {
  const std::string_view text = as_text(head.first(std::min<std::size_t>(head.size(), 64)));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

// Plans, schedules, graphs and JSON are read as they are, all else packed as well.
std::optional<InputKind> kind_of(const FileHead& head) {
  if (!head.packed) {
    if (const auto kind = kind_in_frame(head.bytes)) return kind;
    if (begins_as_json(head.bytes)) return InputKind::kStatistics;
  }
  if (is_pickle(head.bytes)) return InputKind::kPickle;
  if (const auto form = trace_form(head.bytes))
    return *form == TraceForm::kLifetimes ? InputKind::kLifetimes : InputKind::kTrace;
  if (graph::is_graph_text(as_text(head.bytes))) return InputKind::kGraph;
  return std::nullopt;
}

}  // namespace

OpenedFile::OpenedFile(std::string file)
    : path(std::move(file)), head(read_file_beginning(path, kHeadBytes)), kind(kind_of(head)) {}

InputKind identify(const OpenedFile& file, std::string_view wanted) {
  BERTH_CHECK(
      file.kind != InputKind::kPickle, kInput,
      "'{}' is a pickle: `berth import {} -o x.trace` makes a trace of a memory snapshot of "
      "PyTorch, `berth doctor {}` forecasts what berth would save",
      file.path, file.path, file.path);
  if (file.kind) return *file.kind;
  const std::string_view text = as_text(file.head.bytes);
  BERTH_CHECK(!text.empty(), kInput, "'{}' is empty: {} is wanted", file.path, wanted);
  throw Error(
      ErrorKind::kInput,
      fmt::format("'{}' is in no form that this command reads: it begins with '{}'. It "
                  "reads {}",
                  file.path, csv::printable(text.substr(0, text.find_first_of("\r\n"))), wanted));
}

std::string_view name_of(InputKind kind) noexcept {
  switch (kind) {
    case InputKind::kPlan:
      return "a plan";
    case InputKind::kSchedule:
      return "a schedule";
    case InputKind::kGraph:
      return "a graph";
    case InputKind::kTrace:
      return "a trace";
    case InputKind::kLifetimes:
      return "a CSV of lifetimes";
    case InputKind::kPickle:
      return "a pickle";
    case InputKind::kStatistics:
      break;
  }
  return "a JSON object";
}

Trace read_trace_input(const OpenedFile& file) {
  const InputKind kind = identify(file);
  BERTH_CHECK(kind == InputKind::kTrace || kind == InputKind::kLifetimes, kInput,
              "'{}' is {}: a trace or a CSV is wanted", file.path, name_of(kind));
  return read_trace(file.path);
}

}  // namespace berth::cli
