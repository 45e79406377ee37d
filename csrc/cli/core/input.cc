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

// What lies in the frame of plan files, one first section each.
std::optional<InputKind> kind_in_frame(const std::string& path) {
  const std::vector<std::byte> head = read_file_head(path, kFirstSectionBytes);
  const auto first = first_section(head);
  if (first == SectionType::kSchedule) return InputKind::kSchedule;
  if (first == SectionType::kGraph) return InputKind::kGraph;
  const auto magic = std::as_bytes(std::span(kPlanMagic));
  const bool is_plan =
      std::ranges::equal(std::span(head).first(std::min(head.size(), magic.size())), magic);
  return is_plan ? std::optional(InputKind::kPlan) : std::nullopt;
}

// A JSON object; nothing else that is read begins so.
bool begins_as_json(const std::string& path) {
  for (const std::byte byte : read_file_head(path, 64)) {
    const char letter = static_cast<char>(byte);
    if (std::string_view(" \t\r\n").find(letter) == std::string_view::npos) return letter == '{';
  }
  return false;
}

}  // namespace

InputKind identify(const std::string& path, std::string_view wanted) {
  if (const auto kind = kind_in_frame(path)) return *kind;
  if (begins_as_json(path)) return InputKind::kStatistics;
  BERTH_CHECK(
      !is_pickle(path), kInput,
      "'{}' is a pickle: `berth import {} -o x.trace` makes a trace of a memory snapshot of "
      "PyTorch, `berth doctor {}` says what berth would save",
      path, path, path);
  if (const auto form = find_trace_form(path))
    return *form == TraceForm::kLifetimes ? InputKind::kLifetimes : InputKind::kTrace;
  constexpr std::size_t kLine = 4096;  // of a graph
  const std::vector<std::byte> head = read_unpacked_head(path, kLine);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (graph::is_graph_text(text)) return InputKind::kGraph;
  BERTH_CHECK(!head.empty(), kInput, "'{}' is empty: {} is wanted", path, wanted);
  throw Error(
      ErrorKind::kInput,
      fmt::format("'{}' is in no form that this command reads: it begins with '{}'. It "
                  "reads {}",
                  path, csv::printable(text.substr(0, text.find_first_of("\r\n"))), wanted));
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
    case InputKind::kStatistics:
      break;
  }
  return "a JSON object";
}

Trace read_trace_input(const std::string& path) {
  const InputKind kind = identify(path);
  BERTH_CHECK(kind == InputKind::kTrace || kind == InputKind::kLifetimes, kInput,
              "'{}' is {}: a trace or a CSV is wanted", path, name_of(kind));
  return read_trace(path);
}

}  // namespace berth::cli
