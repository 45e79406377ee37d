#include "csrc/cli/dry_run/dry_run_report.h"

#include "csrc/cli/dry_run/left_out.h"
#include "csrc/replay/torch_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

namespace berth::cli {
namespace {

constexpr std::size_t kHolders = 10;
constexpr std::array<std::string_view, 4> kAllocators = {"caching", "expandable", "learning",
                                                         "planned"};

// What people call an allocator.
std::string label(const std::string& name) {
  if (name == "caching") return "PyTorch, caching allocator";
  if (name == "expandable") return "PyTorch, expandable segments";
  if (name == "learning") return "berth, learning in place";
  return "berth, with the plan";
}

std::string signed_bytes(Bytes limit, Bytes need) {
  return need <= limit ? format_bytes(limit - need) + " left"
                       : format_bytes(need - limit) + " too much";
}

Json holder_json(const PeakHolders::Holder& holder) {
  const auto text = [](const std::string& name) {
    return name.empty() ? Json(nullptr) : Json(name);
  };
  return {{"module", text(holder.module)},
          {"operator", text(holder.op)},
          {"role", text(holder.role)},
          {"bytes", holder.bytes},
          {"blocks", holder.blocks}};
}

Json holders_json(const std::vector<PeakHolders::Holder>& holders) {
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(holders.size(), kHolders); ++i)
    list.push_back(holder_json(holders[i]));
  return list;
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::string holders_text(const PeakHolders& holders) {
  if (holders.peak == 0) return {};
  std::string text = fmt::format("\nWho holds the peak of {}\n", format_bytes(holders.peak));
  Table table({{"module", Table::Align::kLeft},
               {"operator", Table::Align::kLeft},
               {"what", Table::Align::kLeft},
               {"bytes"},
               {"share"},
               {"blocks"}});
  PeakHolders::Holder others;
  for (std::size_t i = 0; i < holders.holders.size(); ++i) {
    const PeakHolders::Holder& holder = holders.holders[i];
    if (i >= kHolders) {
      others.bytes += holder.bytes;
      others.blocks += holder.blocks;
      continue;
    }
    table.add({or_dash(holder.module), or_dash(holder.op), or_dash(holder.role),
               format_bytes(holder.bytes), format_percent(share(holder.bytes, holders.peak)),
               format_count(holder.blocks)});
  }
  if (others.blocks > 0) {
    table.add({fmt::format("({} more)", holders.holders.size() - kHolders), "", "",
               format_bytes(others.bytes), format_percent(share(others.bytes, holders.peak)),
               format_count(others.blocks)});
  }
  text += table.to_string();
  std::string roles;
  for (const PeakHolders::Holder& holder : holders.by_role) {
    roles += fmt::format("{}{} {}", roles.empty() ? "" : ", ",
                         holder.role.empty() ? "other" : holder.role, format_bytes(holder.bytes));
  }
  return text + "  together: " + wrap(roles, 12, 98);
}

std::string fit_text(const DryRunFit& fit) {
  std::string text = fmt::format("\nThe largest {} that fits ({})\n", fit.argument,
                                 format_number_of(fit.runs, "more run"));
  Table batches({{"allocator", Table::Align::kLeft}, {"largest"}, {"", Table::Align::kLeft}});
  const auto add = [&](const std::string& name, const BatchSearch::Answer& answer) {
    std::string what;
    if (answer.smallest_too_large)
      what = format_count(*answer.smallest_too_large) + " does not fit";
    else if (answer.refused)
      what = "the program refuses " + format_count(*answer.refused);
    else
      what = answer.flat ? "the largest tried; the need does not grow with it"
                         : "the largest tried; runs ran out (--fit-runs)";
    if (!answer.exact && !answer.flat && (answer.smallest_too_large || answer.refused))
      what += "; none was tried between";
    if (answer.step > 1)
      what += fmt::format("; multiples of {}, as the program wants", answer.step);
    batches.add({name, answer.largest == 0 ? "none" : format_count(answer.largest), what});
  };
  for (const DryRunFit::Row& row : fit.rows) add(label(row.name), row.answer);
  for (const DryRunFit::ScheduledRow& row : fit.scheduled)
    add(fmt::format("run --fit, + {:.0f} % time", 100 * row.more_time), row.answer);
  text += batches.to_string();
  if (!fit.scheduled.empty())
    text += "  " + wrap(
                       "run --fit: with a step program; time by the roofline, beside the step with "
                       "the same batch as written",
                       4, 98);
  return text;
}

}  // namespace

std::size_t DryRunReport::worst() const {
  const auto most = std::ranges::max_element(ranks, {}, [](const Rank& rank) {
    return std::pair(rank.needs.least(false).value_or(0), rank.needs.live_peak);
  });
  return static_cast<std::size_t>(most - ranks.begin());
}

std::vector<GpuUse> DryRunReport::gpus() const {
  std::vector<const Needs*> all;
  for (const Rank& rank : ranks) all.push_back(&rank.needs);
  return gpu_uses(all);
}

bool DryRunReport::fits() const {
  return std::ranges::all_of(gpus(), [&](const GpuUse& gpu) {
    const auto needed = gpu.least_needed(job.gpu->context_bytes);
    return !needed || *needed <= job.total;
  });
}

Json DryRunReport::to_json() const {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  const auto held_in_run = [&](const RankTraces::File& trace) {
    const HeldInRun* const held = run.find_held(trace);
    return held != nullptr ? Json(held->peak) : Json(nullptr);
  };
  const Bytes context = job.gpu->context_bytes;
  Json list = Json::array(), devices = Json::array();
  std::map<int, std::map<std::string, Json>> fit_on;
  for (const GpuUse& gpu : gpus()) {
    Json held = Json::object();
    for (const std::string_view name : kAllocators) {
      const auto needed = gpu.needed(name, context);
      const Json fits = needed ? Json(*needed <= job.total) : Json(nullptr);
      fit_on[gpu.device][std::string(name)] = fits;
      if (needed)
        held[std::string(name)] = {{"held_bytes", known(gpu.held(name, context))},
                                   {"least_device_bytes", *needed},
                                   {"fits", fits}};
    }
    devices.push_back(
        {{"device", gpu.device}, {"processes", gpu.processes.size()}, {"allocators", held}});
  }
  for (const Rank& rank : ranks) {
    const Needs& needs = rank.needs;
    Json reserved = Json::object();
    for (const Needs::Reserved& one : needs.reserved) {
      reserved[one.name] = {{"reserved_peak_bytes", known(one.peak)},
                            {"least_bytes", known(one.least)},
                            {"retries", known(one.retries)},
                            {"fits", fit_on[needs.file.device][one.name]}};
      if (!one.problem.empty()) reserved[one.name]["problem"] = one.problem;
    }
    Json plan = nullptr;
    if (needs.planned) {
      plan = {{"file", rank.plan.empty() ? Json(nullptr) : Json(rank.plan)},
              {"arena_bytes", needs.planned->arena},
              {"lower_bound_bytes", needs.planned->bound},
              {"outside_arena_bytes", needs.planned->outside},
              {"resident_bytes", needs.planned->residents},
              {"slots", needs.planned->slots}};
    }
    Json one = {{"rank", needs.file.rank},
                {"device", needs.file.device},
                {"trace", needs.file.path},
                {"requests", needs.requests},
                {"steps", needs.steps},
                {"live_peak_bytes", needs.live_peak},
                {"held_in_run_bytes", held_in_run(needs.file)},
                {"allocators", reserved},
                {"plan", plan},
                {"holders", holders_json(needs.holders.holders)},
                {"holders_by_module", holders_json(needs.holders.by_module)},
                {"holders_by_operator", holders_json(needs.holders.by_operator)},
                {"holders_by_role", holders_json(needs.holders.by_role)},
                {"item_reads", needs.item_reads},
                {"shapes_by_value", needs.shapes_by_value},
                {"private_pools", needs.private_pools}};
    if (!needs.planned) one["why_no_plan"] = needs.why_no_plan;
    list.push_back(std::move(one));
  }
  Json lacking = Json::array();
  for (const LackingCode& one : run.lacking)
    lacking.push_back(
        {{"library", one.library}, {"compiled", one.compiled}, {"translated", one.translated}});
  Json json = {{"gpu", job.gpu->short_name},
               {"gpu_name", job.gpu->name},
               {"gpus", job.gpus},
               {"total_bytes", job.total},
               {"context_bytes", job.gpu->context_bytes},
               {"exit_code", run.code},
               {"signal", run.signal},
               {"seconds", run.seconds},
               {"host_peak_bytes", run.host_peak},
               {"standin_host_bytes", run.standin_host_bytes},
               {"values", job.values},
               {"unknown_reads", run.unknown_reads},
               {"unknown_read_bytes", run.unknown_read_bytes},
               {"left_out", find_left_out(job, run).to_json()},
               {"lacking_code", lacking},
               {"torch_settings_not_followed", replay::torch_settings_of_environment().unknown},
               {"fits", fits()},
               {"worst_rank", ranks.empty() ? Json(nullptr) : Json(worst())},
               {"devices", devices},
               {"ranks", list}};
  if (!steps.empty()) {
    Json planned = Json::array();
    for (const FittedStep& step : steps) planned.push_back(cli::to_json(step, job));
    json["scheduled"] = planned;
  } else if (!why_no_steps.empty()) {
    json["why_not_scheduled"] = why_no_steps;
  }
  if (fit) {
    Json rows = Json::object(), scheduled = Json::array();
    const auto answer_json = [&](const BatchSearch::Answer& answer) -> Json {
      return {{"largest", answer.largest},
              {"exact", answer.exact},
              {"step", answer.step},
              {"flat", answer.flat},
              {"smallest_too_large", known(answer.smallest_too_large)},
              {"refused", known(answer.refused)}};
    };
    for (const DryRunFit::Row& row : fit->rows) rows[row.name] = answer_json(row.answer);
    for (const DryRunFit::ScheduledRow& row : fit->scheduled) {
      scheduled.push_back(answer_json(row.answer));
      scheduled.back()["more_time"] = row.more_time;
    }
    json["fit"] = {{"argument", fit->argument},
                   {"runs", fit->runs},
                   {"largest", rows},
                   {"scheduled", scheduled}};
  }
  return json;
}

// What is said of a step that is larger than the GPU.
std::string DryRunReport::larger_text() const {
  std::string text;
  if (!steps.empty()) {
    const auto most = std::ranges::max_element(
        steps, {}, [](const FittedStep& step) { return step.within.base_peak; });
    text += fits() ? "\nBy a schedule within the GPU's memory"
                   : "\nLarger than the GPU: berth trains it by a schedule";
    if (steps.size() > 1) text += fmt::format(", rank {} of {}", most->rank, steps.size());
    return text + "\n" + cli::to_text(*most, job);
  }
  if (fits()) return text;
  const Bytes needed = ranks[worst()].needs.live_peak + job.gpu->context_bytes;
  return "\nLarger than the GPU: `python -m berth run --fit` trains it all the same\n  " +
         wrap(fmt::format("At its peak {} of tensors then wait on the host. The GPU must have "
                          "room for what the largest operator takes and makes.{}",
                          format_bytes(needed - std::min(needed, job.total)),
                          why_no_steps.empty() ? "" : " No schedule: " + why_no_steps + "."),
              4, 98);
}

std::string DryRunReport::to_text() const {
  const auto lacking_text = [&](const LackingCode& one) {
    std::string has;
    for (const unsigned sm : one.compiled)
      has += fmt::format("{}sm_{}", has.empty() ? "" : ", ", sm);
    for (const unsigned sm : one.translated)
      has += fmt::format("{}PTX for {}", has.empty() ? "" : ", ", sm);
    return fmt::format(
        "{} has no code for this GPU (sm_{}{}; it has {}): on a real one its kernels "
        "fail. The figures are those of a torch that has such code.",
        file_name(one.library), job.gpu->major, job.gpu->minor, has);
  };
  const Rank& most = ranks[worst()];
  const Needs& needs = most.needs;
  const Bytes context = job.gpu->context_bytes;
  const std::vector<GpuUse> uses = gpus();
  const auto gpu_of = [&](const Needs& one) -> const GpuUse& {
    return *std::ranges::find(uses, one.file.device, &GpuUse::device);
  };
  const auto held_here = [&](const RankTraces::File& trace) {
    const HeldInRun* const held = run.find_held(trace);
    return held != nullptr ? format_bytes(held->peak) : std::string("-");
  };
  std::string text = fmt::format("Dry run on {}{}, {} each: {}, {} of host memory\n",
                                 job.gpus > 1 ? fmt::format("{} x ", job.gpus) : "", job.gpu->name,
                                 format_bytes(job.total), fmt::format("{:.1f} s", run.seconds),
                                 format_bytes(run.host_peak));
  for (const LackingCode& one : run.lacking) text += "  " + wrap(lacking_text(one), 4, 98);
  if (ranks.size() > 1) {
    Table table({{"rank"},
                 {"GPU"},
                 {"trace", Table::Align::kLeft},
                 {"live peak"},
                 {"held here"},
                 {"least needed"},
                 {"fits", Table::Align::kLeft}});
    for (const Rank& rank : ranks) {
      const GpuUse& use = gpu_of(rank.needs);
      const auto least = rank.needs.least(use.shared());
      const auto needed = use.least_needed(context);
      table.add({std::to_string(rank.needs.file.rank), std::to_string(rank.needs.file.device),
                 file_name(rank.needs.file.path), format_bytes(rank.needs.live_peak),
                 held_here(rank.needs.file), least ? format_bytes(*least) : "-",
                 !needed                ? "-"
                 : *needed <= job.total ? "yes"
                                        : "no"});
    }
    text += "\n" + table.to_string();
    for (const GpuUse& gpu : uses) {
      const auto needed = gpu.least_needed(context);
      if (gpu.shared() && needed)
        text += "  " + wrap(fmt::format("GPU {} is shared by {} processes: together {} at least, "
                                        "each at its peak and with a context of its own: {}",
                                        gpu.device, gpu.processes.size(), format_bytes(*needed),
                                        signed_bytes(job.total, *needed)),
                            4, 98);
    }
    text += "  " + wrap(
                       "held here: device memory that the process took in this run, under berth "
                       "in mode record and without a plan",
                       4, 98);
    text += fmt::format("\nThe one that needs most: rank {} on GPU {}, {}\n", needs.file.rank,
                        needs.file.device, file_name(needs.file.path));
  }
  text += fmt::format("  {}, {}; live peak {}", format_number_of(needs.requests, "request"),
                      format_number_of(needs.steps, "step"), format_exactly(needs.live_peak));
  if (ranks.size() == 1 && run.find_held(needs.file) != nullptr)
    text += fmt::format("\n  held in this run, under berth in mode record and without a plan: {}",
                        held_here(needs.file));
  text += "\n\n";

  const GpuUse& gpu = gpu_of(needs);
  Table table({{"allocator", Table::Align::kLeft},
               {"reserved"},
               {"over live"},
               {gpu.shared() ? "all on its GPU" : "least GPU"},
               {"fits", Table::Align::kLeft},
               {""}});
  for (const Needs::Reserved& one : needs.reserved) {
    const auto needed = gpu.needed(one.name, context);
    if (!one.peak || !needed) {
      table.add(
          {label(one.name), one.peak ? format_bytes(*one.peak) : "-", "-", "-", "-", "not known"});
      continue;
    }
    table.add({label(one.name), format_bytes(*one.peak),
               fmt::format("{:.3f}", share(*one.peak, needs.live_peak)), format_bytes(*needed),
               *needed <= job.total ? "yes" : "no", signed_bytes(job.total, *needed)});
  }
  text += table.to_string();
  if (!gpu.shared())
    text +=
        "  " + wrap(
                   "reserved: without a limit; least GPU: the smallest on which the run finishes, "
                   "its context counted",
                   4, 98);
  for (const Needs::Reserved& one : needs.reserved)
    if (!gpu.shared() && one.retries.value_or(0) > 0)
      text +=
          "  " + wrap(fmt::format("{}: on this GPU it gives its cache back and tries again {}; the "
                                  "device is idle meanwhile",
                                  label(one.name), format_times(*one.retries)),
                      4, 98);
  const auto& not_followed = replay::torch_settings_of_environment().unknown;
  if (!not_followed.empty())
    text +=
        "  " + wrap(fmt::format("PYTORCH_ALLOC_CONF: {} not followed by the models of PyTorch's "
                                "allocators",
                                fmt::join(not_followed, ", ")),
                    4, 98);
  for (const Needs::Reserved& one : needs.reserved)
    if (!one.problem.empty())
      text += "  " + wrap(fmt::format("{}: {}", label(one.name), one.problem), 4, 98);
  if (needs.planned) {
    text += "  " +
            wrap(fmt::format("the plan: arena {} (bound {}), {} beside it; {} outlive steps; {}",
                             format_bytes(needs.planned->arena), format_bytes(needs.planned->bound),
                             format_bytes(needs.planned->outside),
                             format_bytes(needs.planned->residents),
                             format_number_of(needs.planned->slots, "place")),
                 4, 98);
  } else {
    text +=
        "  " + wrap(fmt::format("no plan: {}; a program that makes four steps or more may have one",
                                needs.why_no_plan),
                    4, 98);
  }
  text += larger_text();
  if (fit) text += fit_text(*fit);
  text += holders_text(needs.holders);

  text += "\nWhat a dry run cannot know\n";
  const auto say = [&](const std::string& what) { text += "  - " + wrap(what, 4, 98); };
  std::uint64_t item_reads = 0, shapes_by_value = 0;
  for (const Rank& rank : ranks) {
    item_reads += rank.needs.item_reads;
    shapes_by_value += rank.needs.shapes_by_value;
  }
  const std::string values = job.values == "memory" ? "the bytes that lay there" : job.values;
  if (run.unknown_reads > 0) {
    say(fmt::format(
        "Values: kernels do not run. The host read results of kernels {} times ({}; item() {} "
        "times) and got {}.",
        format_count(run.unknown_reads), format_bytes(run.unknown_read_bytes),
        format_count(item_reads), values));
  } else {
    say("Values: kernels do not run. This program read no result of one.");
  }
  if (shapes_by_value > 0) {
    say(
        fmt::format("Shapes: values decide the size of the results of {} (nonzero, masks, unique). "
                    "Here these values are {}.",
                    format_number_of(shapes_by_value, "operator"), values));
  }
  if (std::ranges::any_of(ranks, [](const Rank& rank) { return rank.needs.private_pools > 0; }))
    say("Private pools (captured graphs, torch.cuda.MemPool): only the memory held in this run "
        "contains them, and no other figure.");
  for (const std::string& line : find_left_out(job, run).to_text()) say(line);
  if (needs.torn) say("The end of the trace is missing: the program did not end by itself.");
  text += "\n";
  for (const Rank& rank : ranks)
    text += fmt::format("wrote {}{}\n", rank.needs.file.path,
                        rank.plan.empty() ? "" : fmt::format(" and {}", rank.plan));
  return printable(text);
}

}  // namespace berth::cli
