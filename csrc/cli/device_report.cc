#include "csrc/cli/device_report.h"

#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/scratch_folder.h"
#include "csrc/core/check.h"
#include "csrc/replay/child_process.h"
#include "csrc/replay/standin_files.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

namespace berth::cli {
namespace {

// Contexts of eight GPUs take some seconds; a driver that hangs takes for ever.
constexpr auto kPatience = std::chrono::seconds(60);

Json ask_child(const std::string& device) {
  const std::filesystem::path program = replay::find_device_report();
  BERTH_CHECK(!program.empty(), kSystem,
              "berth-device-report is not beside this program: this berth was built without CUDA");
  const ScratchFolder folder("berth-doctor");
  const std::filesystem::path file = folder.path() / "devices.json";
  std::vector<std::string> command = {program.string(), file.string()};
  if (!device.empty()) command.push_back(device);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool late = false;
  const replay::ChildExit ended =
      replay::run_child(command, {}, {.watch = [&](pid_t child) {
                          if (late || std::chrono::steady_clock::now() < end) return;
                          late = true;
                          ::kill(child, SIGKILL);
                        }});
  BERTH_CHECK(!late, kSystem, "the driver of CUDA does not answer within {} s", kPatience.count());
  BERTH_CHECK(ended.signal == 0, kSystem,
              "berth-device-report was ended by signal {} while it called the driver of CUDA",
              ended.signal);
  std::ifstream input(file);
  Json report = Json::parse(input, nullptr, false);
  BERTH_CHECK(report.is_object(), kSystem, "berth-device-report ended with {} and wrote nothing",
              ended.code);
  if (!report.contains("error")) return report;
  throw Error(ended.code == kWrongUsage ? ErrorKind::kUsage : ErrorKind::kSystem,
              report.value("error", std::string()));
}

const char* yes_or_no(const Json& value) { return value.get<bool>() ? "yes" : "no"; }

std::string peers_text(const Json& peers) {
  std::string text;
  for (const Json& peer : peers)
    text += fmt::format("{}cuda:{}", text.empty() ? "" : ", ", peer.get<int>());
  return text.empty() ? "none" : text;
}

std::string outcome_text(const Json& one) {
  if (!one["promised"].get<bool>()) return "not tried: an attribute of the driver is 0";
  const std::string error = one["error"].is_null() ? "" : one["error"].get<std::string>();
  if (one["works"].is_null()) return "cannot be told: " + error;
  if (!one["works"].get<bool>()) return error;
  return fmt::format("works, with {}", format_bytes(one["page_bytes"].get<Bytes>()));
}

std::string to_text(const Json& report, const Json& device) {
  std::string text =
      fmt::format("cuda:{}: {}, {}", device["index"].get<int>(), device["name"].get<std::string>(),
                  format_bytes(device["total_bytes"].get<Bytes>()));
  if (!device["free_bytes"].is_null())
    text += fmt::format(", {} free", format_bytes(device["free_bytes"].get<Bytes>()));
  text += "\n\n";
  const auto line = [&](std::string_view what, std::string_view value) {
    text += fmt::format("  {:<25}{}\n", what, value);
  };
  line("CUDA of the driver", report["driver"].get<std::string>());
  line("CUDA of the runtime", report["runtime"].get<std::string>());
  line("virtual memory", yes_or_no(device["virtual_memory"]));
  line("shared by descriptors", yes_or_no(device["file_descriptors"]));
  line("RDMA of virtual memory", yes_or_no(device["rdma"]));
  if (!device["recommended_page_bytes"].is_null())
    line("page it recommends", format_bytes(device["recommended_page_bytes"].get<Bytes>()));
  line("peers", peers_text(device["peers"]));
  text += "\n";
  Table table({{"memory", Table::Align::kLeft}, {"tried with a page", Table::Align::kLeft}});
  for (const Json& one : device["tries"])
    table.add({one["name"].get<std::string>(), outcome_text(one)});
  text += table.to_string() + "\n";
  const auto handle = report["handle_setting_bytes"].get<Bytes>();
  const std::string settings =
      fmt::format("BERTH_MEMORY={}, BERTH_HANDLE={}", report["memory_setting"].get<std::string>(),
                  handle == 0 ? "0" : format_bytes(handle));
  const bool refused = !device["refused"].is_null();
  text += "  " + wrap(fmt::format("berth {}: {} ({})", refused ? "refuses" : "uses",
                                  device[refused ? "refused" : "why"].get<std::string>(), settings),
                      2, kLineWidth - 2);
  return text;
}

}  // namespace

int report_devices(const std::string& device, bool json) {
  const Json report = ask_child(device);
  bool refused = false;
  std::string text;
  for (const Json& one : report["devices"]) {
    refused = refused || !one["refused"].is_null();
    text += (text.empty() ? "" : "\n") + to_text(report, one);
  }
  if (json)
    print_json(report);
  else
    print(printable(text));
  return refused ? kNo : kDone;
}

}  // namespace berth::cli
