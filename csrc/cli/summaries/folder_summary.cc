#include "csrc/cli/summaries/folder_summary.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/plan/file.h"
#include "csrc/plan/head.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

namespace berth::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNames = 1 << 14;

std::vector<std::string> plans_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (it->path().extension() == ".plan" && !name.starts_with('.')) names.push_back(name);
    if (names.size() == kMostNames) break;
  }
  BERTH_CHECK(!error, kInput, "cannot read '{}': {}", path, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

PlanHead head_in(const std::string& file) {
  BERTH_CHECK(!is_special(file), kInput, "'{}' is no regular file", file);
  std::optional<PlanHead> head = read_plan_head(file);
  return head ? std::move(*head) : head_of(read_plan(file));
}

// "1,196 to 1,210"
std::string requests_of(const PlanHead& head) {
  if (head.kinds.empty()) return "-";
  const auto [least, most] =
      std::minmax_element(head.kinds.begin(), head.kinds.end(),
                          [](const auto& a, const auto& b) { return a.requests < b.requests; });
  return least->requests == most->requests
             ? format_count(most->requests)
             : fmt::format("{} to {}", format_count(least->requests), format_count(most->requests));
}

std::string device_of(const PlanHead& head) {
  const std::string& name = head.program.device_name;
  return head.program.world_size <= 1
             ? name
             : fmt::format("{}, rank {} of {}", name, head.program.rank, head.program.world_size);
}

}  // namespace

FolderSummary summarize_folder(const std::string& path) {
  const fs::path folder(path);
  Json plans = Json::array(), problems = Json::array();
  Table table({{"plan", Table::Align::kLeft},
               {"kinds"},
               {"requests"},
               {"arena"},
               {"device", Table::Align::kLeft}});
  Bytes total = 0;
  for (const std::string& name : plans_in(path)) {
    try {
      const std::string file = (folder / name).string();
      const PlanHead head = head_in(file);
      std::error_code error;
      const auto size = fs::file_size(file, error);
      const Bytes bytes = error ? 0 : size;
      total += bytes;
      Json requests = Json::array();
      for (const PlanHead::Kind& kind : head.kinds) requests.push_back(kind.requests);
      plans.push_back({{"file", name},
                       {"file_bytes", bytes},
                       {"kinds", head.kind_count},
                       {"step_requests", requests},
                       {"cycle", head.cycle},
                       {"arena_bytes", head.arena_bytes},
                       {"fingerprint", fmt::format("{:016x}", head.fingerprint)},
                       {"torch_version", head.program.torch_version},
                       {"device", head.program.device_name},
                       {"world_size", head.program.world_size},
                       {"rank", head.program.rank}});
      table.add({name, format_count(head.kind_count) + (head.cycle ? ", in turns" : ""),
                 requests_of(head), format_bytes(head.arena_bytes), device_of(head)});
    } catch (const Error& error) {
      problems.push_back(error.what());
    }
  }
  std::string text = fmt::format("{}: {}, {}\n", path, format_number_of(plans.size(), "plan"),
                                 format_bytes(total));
  if (!table.empty()) text += table.to_string();
  for (const Json& problem : problems)
    text += fmt::format("  not read: {}\n", problem.get<std::string>());
  return {{{"kind", "folder"}, {"bytes", total}, {"plans", plans}, {"problems", problems}},
          std::move(text)};
}

}  // namespace berth::cli
