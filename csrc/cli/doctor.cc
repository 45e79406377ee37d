#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/input.h"
#include "csrc/cli/core/option_values.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/device_report.h"
#include "csrc/cli/diagnosis.h"
#include "csrc/cli/summaries/trace_summary.h"
#include "csrc/core/check.h"
#include "csrc/replay/forecast.h"
#include "csrc/trace/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace berth::cli {
namespace {

struct DoctorOptions {
  std::string input, gpu_total;
  CLI::Option* device_given = nullptr;
  std::string device;  // a number, or nothing
  bool json = false;
};

double ratio(Bytes part, Bytes whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

template <class Value>
Json value_or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Of an option's value: what is wrong with it, or nothing.
std::string is_device(const std::string& text) {
  constexpr std::size_t kDigits = 4;
  if (text.empty() || (is_whole_number(text).empty() && text.size() <= kDigits)) return {};
  return fmt::format("'{}' is no number of a device", text);
}

// What is said of one run.
struct Visit {
  replay::Forecast forecast;
  TraceSummary summary;
  std::vector<Finding> findings;
  bool of_snapshot = false, expandable = false;
  std::optional<Bytes> gpu_total;

  // Whether berth's forecast fits the GPU; true where none is named.
  [[nodiscard]] bool fits() const { return !gpu_total || forecast.planned <= *gpu_total; }
};

Json to_json(const Visit& visit) {
  const replay::Forecast& it = visit.forecast;
  const bool cuda = !it.on_cpu;
  Json findings = Json::array();
  for (const Finding& finding : visit.findings)
    findings.push_back({{"name", finding.name}, {"text", finding.text}});
  Json json = {
      {"source", visit.of_snapshot ? "snapshot" : "trace"},
      {"requests", it.requests},
      {"steps", it.steps},
      {"live_peak_bytes", it.live},
      {"resident_bytes", it.resident},
      {"native_reserved_bytes", cuda ? Json(it.native()) : Json(nullptr)},
      {"native_measured", it.measured.has_value()},
      {"native_expandable", visit.expandable},
      {"caching_model_bytes", cuda ? Json(it.caching) : Json(nullptr)},
      {"expandable_model_bytes", cuda ? Json(it.expandable) : Json(nullptr)},
      {"planned_reserved_bytes", it.planned},
      {"planned_run_reserved_bytes", it.planned_run},
      {"pool_reserved_bytes", it.pool},
      {"arena_bytes", it.arena},
      {"arena_bound_bytes", it.arena_bound},
      {"saving_bytes", cuda ? Json(it.saving()) : Json(nullptr)},
      {"saving_share", cuda ? Json(ratio(it.saving(), it.native())) : Json(nullptr)},
      {"batch_factor",
       cuda ? value_or_null(it.batch_factor(std::max(it.native(), it.planned), it.planned))
            : Json(nullptr)},
      {"repeating_requests_share", it.repeating_requests},
      {"repeating_bytes_share", value_or_null(it.repeating_bytes)},
      {"hits_share", it.hits},
      {"kinds", it.kinds},
      {"repeated_steps", it.repeated},
      {"repeated_live_peak_bytes", it.repeated == 0 ? Json(nullptr) : Json(it.repeated_live)},
      {"assumes_one_step_repeats", it.assumed},
      {"findings", findings},
      {"holders", visit.summary.holders_to_json()}};
  if (visit.gpu_total) {
    json["gpu_total_bytes"] = *visit.gpu_total;
    json["native_fits"] = cuda ? Json(it.native() <= *visit.gpu_total) : Json(nullptr);
    json["planned_fits"] = visit.fits();
    json["native_batch_factor"] =
        cuda ? value_or_null(it.batch_factor(*visit.gpu_total, it.native())) : Json(nullptr);
    json["planned_batch_factor"] = value_or_null(it.batch_factor(*visit.gpu_total, it.planned));
  }
  return json;
}

std::string reserved_table(const Visit& visit) {
  const replay::Forecast& it = visit.forecast;
  Table table({{"", Table::Align::kLeft}, {"at most"}, {"over live"}, {"", Table::Align::kLeft}});
  const auto add = [&](const char* what, Bytes bytes, std::string how) {
    table.add(
        {what, format_bytes(bytes), fmt::format("{:.3f}", ratio(bytes, it.live)), std::move(how)});
  };
  table.add({"live, the bound", format_bytes(it.live), "1.000",
             fmt::format("{} of it {}", format_bytes(it.resident),
                         it.resident_by_step ? "residents" : "lives half the run or longer")});
  if (!it.on_cpu) {
    if (it.measured)
      add(visit.expandable ? "PyTorch, expandable" : "PyTorch's allocator", *it.measured,
          "measured");
    if (!it.measured) add("PyTorch's allocator", it.caching, "by its model");
    if (!visit.expandable) add("its expandable segments", it.expandable, "by its model");
  }
  add("berth, learning in place", it.planned,
      it.arena == 0 ? "replayed; no plan comes of it"
                    : fmt::format("replayed; its plan takes {}", format_bytes(it.arena)));
  if (it.planned != it.planned_run)
    add("berth, the run alone", it.planned_run, "replayed without repeats of its step");
  return table.to_string();
}

std::string batch_text(const Visit& visit) {
  const replay::Forecast& it = visit.forecast;
  std::string text;
  if (!it.on_cpu && it.saving() != 0) {
    constexpr double kNoticed = 1.005;  // less is printed as 1.00
    if (const auto factor = it.batch_factor(it.native(), it.planned); factor && *factor >= kNoticed)
      text += fmt::format("{:.2f} times as large in what PyTorch's allocator holds now", *factor);
  }
  if (visit.gpu_total) {
    const auto native = it.batch_factor(*visit.gpu_total, it.native());
    const auto planned = it.batch_factor(*visit.gpu_total, it.planned);
    if (planned)
      text += fmt::format("{}{:.2f} times on the GPU", text.empty() ? "" : "; ", *planned);
    if (planned && native && !it.on_cpu) text += fmt::format(" ({:.2f} without berth)", *native);
  }
  if (text.empty()) return text;
  return "  batch      " +
         wrap(fmt::format("at least {}, if all but residents grows with it", text), 13, 98);
}

std::string to_text(const DoctorOptions& options, const Visit& visit) {
  const replay::Forecast& it = visit.forecast;
  std::string text =
      fmt::format("{}: {}, {}\n\n{}\n", options.input, format_number_of(it.requests, "request"),
                  format_number_of(it.steps, "step"), reserved_table(visit));
  if (!it.on_cpu)
    text += fmt::format("  saving     {} ({} of what PyTorch's allocator holds)\n",
                        format_bytes(it.saving()), format_percent(ratio(it.saving(), it.native())));
  text += batch_text(visit);
  if (visit.gpu_total)
    text += fmt::format("  GPU        of {}: under berth it {}{}\n", format_bytes(*visit.gpu_total),
                        visit.fits() ? "fits" : "does not fit",
                        it.on_cpu                         ? ""
                        : it.native() <= *visit.gpu_total ? ", without too"
                                                          : ", without it does not");
  if (it.assumed) {
    text += "  repeats    none in this history; its step is taken to repeat\n";
  } else {
    text += fmt::format(
        "  repeats    {} of the requests{}\n", format_percent(it.repeating_requests),
        it.repeating_bytes ? fmt::format(", {} of the bytes", format_percent(*it.repeating_bytes))
                           : std::string());
  }
  if (!visit.findings.empty()) text += "\nTo know\n";
  for (const Finding& finding : visit.findings) text += "  - " + wrap(finding.text + ".", 4, 96);
  return text + visit.summary.holders_to_text();
}

int doctor(const DoctorOptions& options) {
  const bool device_given = options.device_given->count() != 0;
  std::optional<std::uint32_t> device;
  if (!options.device.empty()) device = static_cast<std::uint32_t>(std::stoul(options.device));
  if (options.input.empty()) {
    BERTH_CHECK(device_given, kUsage,
                "name a snapshot or a trace, or --device for what this machine's GPUs can do");
    BERTH_CHECK(options.gpu_total.empty(), kUsage, "--gpu-total needs a snapshot or a trace");
    return report_devices(options.device, options.json);
  }
  BERTH_CHECK(!device_given || device, kUsage, "--device of a snapshot needs a number");
  Visit visit;
  if (!options.gpu_total.empty()) visit.gpu_total = size_option("--gpu-total", options.gpu_total);
  std::optional<Snapshot> snapshot;
  Trace trace;
  const OpenedFile input(options.input);
  if (input.kind == InputKind::kPickle) {
    snapshot = read_snapshot(options.input, device);
    visit.of_snapshot = true;
    visit.expandable = snapshot->expandable;
    trace = std::move(snapshot->trace);
  } else {
    BERTH_CHECK(!device, kUsage, "--device needs a snapshot, '{}' is none", options.input);
    trace = read_trace_input(input);
  }
  const bool cut =
      std::find(trace.strings.begin(), trace.strings.end(), kBeforeHistory) != trace.strings.end();
  {
    ProgressLine line;
    line.show("replaying");
    visit.forecast = replay::forecast(trace);
    visit.summary = summarize(trace);
  }
  visit.findings = diagnose(visit.forecast, snapshot ? &*snapshot : nullptr, cut);
  if (options.json) {
    print_json(to_json(visit));
  } else {
    print(printable(to_text(options, visit)));
  }
  return visit.fits() ? kDone : kNo;
}

}  // namespace

Command add_doctor(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "doctor", "Forecast what berth would save, before anything is changed; examine a GPU");
  const auto options = std::make_shared<DoctorOptions>();
  app->add_option(
      "input", options->input,
      "A memory snapshot of PyTorch, a trace, an events CSV or a lifetimes CSV, plain or "
      "gzip");
  options->device_given =
      app->add_option(
             "--device", options->device,
             "Without an input: report what the driver of CUDA can do with this machine's GPUs, "
             "or with GPU N, and what berth uses. With a snapshot: the device, if several have "
             "a history")
          ->type_name("[N]")
          ->check(is_device)
          ->expected(0, 1);
  app->add_option(
         "--gpu-total", options->gpu_total,
         "Report whether the run fits a GPU with this much free memory, e.g. 79GiB; exit 1 if "
         "it does not fit under berth")
      ->type_name("SIZE");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "The bound is the largest sum of live blocks, rounded to 512 bytes: no allocator holds "
      "less.\n"
      "PyTorch's allocator  measured where the snapshot has its segments, else by a model\n"
      "berth                its allocator over a model of the device: it learns as in training,\n"
      "                     first steps included. A run that is too short to learn in is\n"
      "                     replayed twice, as it was and with its step repeated; the larger\n"
      "                     figure counts\n"
      "batch                by how much it can grow at least. Residents (weights, optimizer\n"
      "                     state) do not grow with it; everything else is assumed to\n\n"
      "In the program, without berth: torch.cuda.memory._record_memory_history() at its start, "
      "and\n"
      "after some steps torch.cuda.memory._dump_snapshot('snapshot.pickle').\n\n"
      "--device alone tries each form of a GPU's memory with one page, best first, and prints "
      "what\n"
      "works, what berth uses and why. Exit 4: there is no driver or no GPU. Exit 1: the settings\n"
      "(BERTH_MEMORY) require a form that a GPU does not have.\n\n"
      "Example:\n  berth doctor snapshot.pickle\n  berth doctor x.trace --gpu-total 79GiB --json\n"
      "  berth doctor --device");
  return {app, [options] { return doctor(*options); }};
}

}  // namespace berth::cli
