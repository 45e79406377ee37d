#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/input.h"
#include "csrc/cli/core/option_values.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/spelling.h"
#include "csrc/cli/summaries/stats_summary.h"
#include "csrc/facts/rounding.h"
#include "csrc/plan/file.h"
#include "csrc/replay/hits_by_kind.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/through_caching_model.h"
#include "csrc/replay/through_malloc.h"
#include "csrc/replay/through_torch.h"
#include "csrc/replay/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace berth::cli {
namespace {

struct ReplayOptions {
  std::string input;
  std::vector<std::string> allocators = {"planned", "pool", "glibc"};
  std::vector<std::string> perturbations;
  std::uint64_t seed = 1;
  std::string memory_limit, handle, plan, gpu = "H100", memory = "virtual";
  bool steps = false;
  bool json = false;
};

std::vector<std::string> allocator_names() {
  std::vector<std::string> names = {"planned", "pool"};
  for (const auto* more : {&replay::torch_allocators(), &replay::model_allocators()})
    names.insert(names.end(), more->begin(), more->end());
  for (const replay::MallocLibrary& library : replay::malloc_libraries())
    names.emplace_back(library.name);
  return names;
}

replay::Result replay_one(const std::string& name, const replay::Workload& workload,
                          const ReplayOptions& options) {
  const Bytes limit =
      options.memory_limit.empty() ? 0 : size_option("--memory-limit", options.memory_limit);
  if (name == "planned" || name == "pool") {
    replay::BerthOptions berth;
    berth.planned = name == "planned";
    berth.steps = true;
    berth.memory_limit = limit;
    if (options.memory == "plain") berth.memory = replay::PaperMemory::kPlain;
    if (!options.plan.empty() && berth.planned) berth.plan = read_plan(options.plan);
    if (!options.handle.empty()) berth.handle = size_option("--handle", options.handle);
    return replay::through_berth(workload, berth);
  }
  const auto& models = replay::model_allocators();
  if (std::find(models.begin(), models.end(), name) != models.end())
    return replay::through_caching_model(workload, name == "expandable-model", limit);
  const auto& torch = replay::torch_allocators();
  if (std::find(torch.begin(), torch.end(), name) != torch.end())
    return replay::through_torch(name, workload, limit);
  const auto& libraries = replay::malloc_libraries();
  return replay::through_malloc(
      *std::find_if(libraries.begin(), libraries.end(),
                    [&](const replay::MallocLibrary& library) { return name == library.name; }),
      workload);
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// What the driver's calls cost the host, in milliseconds.
double milliseconds(const MemoryCallCounts& calls, const std::string& gpu) {
  return driver_costs(gpu).of(calls) / 1000;
}

Json to_json(const replay::Result& result, const replay::Workload& workload,
             const ReplayOptions& options) {
  Json json = {
      {"reserved_peak_bytes", or_null(result.reserved_peak)},
      {"driver_calls", or_null(result.driver_calls)},
      {"driver_ms",
       result.memory_calls ? Json(milliseconds(*result.memory_calls, options.gpu)) : Json(nullptr)},
      {"retries", or_null(result.retries)},
      {"ns_per_operation", or_null(result.ns_per_operation)},
      {"hits", or_null(result.hits)},
      {"hits_bucket", or_null(result.hits_bucket)},
      {"lent", or_null(result.lent)},
      {"misses", or_null(result.misses)},
      {"unplanned", or_null(result.unplanned)},
      {"realigned", or_null(result.realigned)},
      {"arena_bytes", or_null(result.arena)},
      {"out_of_memory", result.out_of_memory}};
  if (result.memory_calls) {
    Json calls = Json::object();
    for (std::size_t i = 0; i < kMemoryCalls; ++i) {
      const auto call = static_cast<MemoryCall>(i);
      calls[std::string(name_of(call))] = result.memory_calls->of(call);
    }
    json["memory_calls"] = calls;
  }
  if (result.stats) json["statistics"] = StatsSummary(*result.stats).to_json();
  if (!result.problem.empty()) json["problem"] = result.problem;
  if (!result.steps.empty()) {
    Json kinds = Json::array();
    for (const replay::KindResult& kind : replay::hits_by_kind(workload, result.steps)) {
      kinds.push_back({{"steps", kind.steps},
                       {"step_requests", kind.step_requests},
                       {"many_sizes", kind.many_sizes},
                       {"requests", kind.requests},
                       {"hits", kind.hits},
                       {"misses", kind.misses},
                       {"requests_from_fourth_step", kind.late_requests},
                       {"hits_from_fourth_step", kind.late_hits}});
    }
    json["kinds"] = kinds;
  }
  if (options.steps && !result.steps.empty()) {
    Json steps = Json::array();
    for (const replay::StepResult& step : result.steps) {
      steps.push_back({{"requests", step.requests},
                       {"hits", step.hits},
                       {"misses", step.misses},
                       {"live_bytes", step.live},
                       {"reserved_bytes", step.reserved},
                       {"driver_ms", milliseconds(step.memory_calls, options.gpu)}});
    }
    json["steps"] = steps;
  }
  return json;
}

std::string count_or_dash(const std::optional<std::uint64_t>& count) {
  return count ? format_count(*count) : "-";
}

using Results = std::vector<std::pair<std::string, replay::Result>>;

// Exact hits and those of buckets.
std::optional<std::uint64_t> served(const replay::Result& result) {
  if (!result.hits) return std::nullopt;
  return *result.hits + result.hits_bucket.value_or(0);
}

// How the steps of each kind were served; empty where there is one kind, or none.
std::string kinds_to_text(const std::string& name, const replay::Workload& workload,
                          const replay::Result& result) {
  constexpr std::size_t kMost = 12;
  const std::vector<replay::KindResult> kinds = replay::hits_by_kind(workload, result.steps);
  if (kinds.size() < 2 || result.hits.value_or(0) + result.hits_bucket.value_or(0) == 0) return {};
  Table table({{"steps"}, {"requests each"}, {"hits"}, {"misses"}, {"hits from the fourth on"}});
  for (std::size_t i = 0; i < std::min(kinds.size(), kMost); ++i) {
    const replay::KindResult& kind = kinds[i];
    table.add({format_count(kind.steps),
               kind.step_requests == 0
                   ? "each its own"
                   : format_count(kind.step_requests) + (kind.many_sizes ? ", of many sizes" : ""),
               format_percent(share(kind.hits, kind.requests)), format_count(kind.misses),
               kind.late_requests == 0
                   ? "-"
                   : format_percent(share(kind.late_hits, kind.late_requests))});
  }
  std::string text = fmt::format("\n{}, by kind of step\n{}", name, table.to_string());
  if (kinds.size() > kMost)
    text += fmt::format("  and {}\n", format_number_of(kinds.size() - kMost, "kind"));
  return text;
}

std::string to_text(const ReplayOptions& options, const replay::Workload& workload, Bytes live_peak,
                    const Results& results) {
  std::string text = fmt::format(
      "{}: {}, {}, live peak {}\n\n", options.input, format_number_of(workload.requests, "request"),
      format_number_of(workload.steps, "step"), format_exactly(live_peak));
  Table table({{"allocator", Table::Align::kLeft},
               {"reserved peak"},
               {"over live"},
               {"hits"},
               {"lent"},
               {"misses"},
               {"driver calls"},
               {"driver ms"},
               {"ns each"}});
  for (const auto& [name, result] : results) {
    const bool known = result.reserved_peak.has_value() && !result.out_of_memory;
    table.add({name, known ? format_bytes(*result.reserved_peak) : "-",
               known && live_peak > 0
                   ? fmt::format("{:.3f}", static_cast<double>(*result.reserved_peak) /
                                               static_cast<double>(live_peak))
                   : "-",
               count_or_dash(served(result)), count_or_dash(result.lent),
               count_or_dash(result.misses), count_or_dash(result.driver_calls),
               result.memory_calls
                   ? fmt::format("{:.1f}", milliseconds(*result.memory_calls, options.gpu))
                   : "-",
               result.ns_per_operation ? fmt::format("{:.0f}", *result.ns_per_operation) : "-"});
  }
  text += table.to_string();
  for (const auto& [name, result] : results) {
    if (!result.stats || !result.arena) continue;
    const StatsSummary summary(*result.stats);
    text += fmt::format("\n{}\n{}{}", name, summary.outcomes(), summary.reasons());
  }
  for (const auto& [name, result] : results) {
    if (!result.steps.empty()) text += kinds_to_text(name, workload, result);
  }
  for (const auto& [name, result] : results) {
    if (result.steps.empty() || !options.steps) continue;
    text += fmt::format("\n{}, step by step\n", name);
    Table steps({{"step"},
                 {"requests"},
                 {"hits"},
                 {"misses"},
                 {"live at its end"},
                 {"reserved"},
                 {"driver ms"}});
    for (std::size_t i = 0; i < result.steps.size(); ++i) {
      const replay::StepResult& step = result.steps[i];
      steps.add({format_count(i + 1), format_count(step.requests), format_count(step.hits),
                 format_count(step.misses), format_bytes(step.live), format_bytes(step.reserved),
                 fmt::format("{:.1f}", milliseconds(step.memory_calls, options.gpu))});
    }
    text += steps.to_string();
  }
  return text;
}

int replay(const ReplayOptions& options) {
  const std::vector<std::string> names = allocator_names();
  for (const std::string& name : options.allocators) throw_if_unknown("allocator", name, names);
  PerturbationOption perturb{.seed = options.seed};
  for (const std::string& text : options.perturbations) add_perturbation(perturb, text);
  replay::Workload workload = replay::make_workload(read_trace_input(OpenedFile(options.input)));
  if (!options.perturbations.empty())
    workload = replay::perturb(workload, perturb.perturbation, perturb.seed);

  Results results;
  {
    ProgressLine line;
    for (const std::string& name : options.allocators) {
      line.show(fmt::format("replaying: {}", name));
      if (std::none_of(results.begin(), results.end(),
                       [&](const auto& r) { return r.first == name; }))
        results.emplace_back(name, replay_one(name, workload, options));
    }
  }
  const Bytes live_peak = workload.live_peak(facts::kCudaUnit);
  bool fits = true;
  for (const auto& [name, result] : results) {
    fits &= !result.out_of_memory;
    if (!result.problem.empty()) print_note(fmt::format("{}: {}", name, result.problem));
  }
  if (options.json) {
    Json allocators = Json::object();
    for (const auto& [name, result] : results)
      allocators[name] = to_json(result, workload, options);
    print_json(Json{{"requests", workload.requests},
                    {"frees", workload.frees},
                    {"steps", workload.steps},
                    {"live_peak_bytes", live_peak},
                    {"lower_bound_bytes", workload.live_peak(workload.alignment)},
                    {"allocators", allocators}});
  } else {
    print(printable(to_text(options, workload, live_peak, results)));
  }
  return fits ? kDone : kNo;
}

}  // namespace

Command add_replay(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("replay", "Serve a trace's requests by several allocators");
  const auto options = std::make_shared<ReplayOptions>();
  app->add_option("trace", options->input,
                  "A trace, an events CSV or a lifetimes CSV, plain or gzip")
      ->required();
  app->add_option("--allocator", options->allocators,
                  fmt::format("Which, with commas: {}", fmt::join(allocator_names(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES")
      ->default_str("planned,pool,glibc");
  app->add_option("--perturb", options->perturbations,
                  "Change a share of the requests from the fourth step on, e.g. "
                  "insert=0.1%,drop=0.1%,resize=0.1%,swap=0.1%,seed=7; insert:0.001 is the same")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CHANGES");
  app->add_option("--seed", options->seed, "Seed of the changes, where --perturb names none")
      ->check(is_whole_number)
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--memory-limit", options->memory_limit,
                  "Memory that berth, PyTorch's allocators and their models may hold; exit 1 if it "
                  "does not suffice")
      ->type_name("SIZE");
  app->add_option("--plan", options->plan,
                  "Plan that `planned` serves from the start, instead of learning")
      ->type_name("FILE");
  app->add_option(
         "--handle", options->handle,
         "The largest handle of memory that berth allocates: a larger one makes fewer driver "
         "calls and holds more memory")
      ->type_name("SIZE");
  app->add_option("--memory", options->memory,
                  "The memory under planned and pool, as BERTH_MEMORY: virtual or plain")
      ->check(CLI::IsMember({"virtual", "plain"}))
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--gpu", options->gpu,
                  "The GPU whose costs of driver calls are reported: H100 or A100")
      ->check(CLI::IsMember({"H100", "A100"}))
      ->type_name("NAME")
      ->capture_default_str();
  app->add_flag("--steps", options->steps, "Report each step");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "planned           berth, learning in place over the run\n"
      "pool              berth without a plan\n"
      "caching           PyTorch's CUDA allocator on the stand-in, in a child process\n"
      "expandable        the same with expandable segments\n"
      "caching-model     a model of the first: fast, needs no libtorch\n"
      "expandable-model  a model of the second\n"
      "glibc, jemalloc,  preloaded in a child process\n"
      "tcmalloc,\n"
      "mimalloc\n\n"
      "Memory is never touched. Reserved is what an allocator holds from the system, by its own\n"
      "count: glibc arena + hblkhd, jemalloc stats.resident, tcmalloc heap_size - unmapped. Of\n"
      "mimalloc it is the process's private writable memory. Live sizes are rounded to 512 bytes.\n"
      "driver ms is what the driver's calls cost the host, by others' measurements of that GPU.\n"
      "ns each is of requests and frees: the median over stretches of 1,024, without planning.\n\n"
      "Example:\n  berth replay gpt.trace --allocator planned,pool,glibc --perturb insert=1%");
  return {app, [options] { return replay(*options); }};
}

}  // namespace berth::cli
