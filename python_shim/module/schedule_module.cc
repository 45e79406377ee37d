#include "csrc/core/bytes.h"
#include "csrc/graph/file.h"
#include "csrc/graph/from_trace.h"
#include "python_shim/module/arrays.h"
#include "python_shim/module/bindings.h"
#include "python_shim/module/search.h"

#include <berth/graph.h>
#include <berth/referee.h>
#include <berth/schedule.h>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/operators.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

namespace berth::python {
namespace {

namespace nb = nanobind;
using graph::Graph;
using graph::Schedule;
using graph::ScheduleStep;

// The steps of a schedule as a table of plain numbers.
struct Steps {
  struct Row {
    Bytes offset = 0;
    std::uint32_t kind = 0, target = 0, alternative = 0, unused = 0;
  };
  std::vector<Row> rows;
};
constexpr auto kRows = &Steps::rows;

Steps steps_of(const Schedule& schedule) {
  Steps steps;
  steps.rows.reserve(schedule.steps.size());
  for (const ScheduleStep& step : schedule.steps) {
    const bool runs = step.kind == ScheduleStep::Kind::kRun;
    steps.rows.push_back({.offset = runs ? step.workspace_offset : step.host_offset,
                          .kind = static_cast<std::uint32_t>(step.kind),
                          .target = runs ? step.op : step.buffer,
                          .alternative = step.alternative});
  }
  return steps;
}

struct Scheduled : schedule::StepResult {
  bool cancelled = false;
};

std::string describe(const Graph& graph) {
  return fmt::format("<berth.Graph: {} operators, {} storages>", graph.operators.size(),
                     graph.storages.size());
}
std::string describe(const Schedule& schedule) {
  return fmt::format("<berth.Schedule of {} steps: peak {}, {:.3f} ms>", schedule.steps.size(),
                     format_bytes(schedule.peak), static_cast<double>(schedule.ns) / 1e6);
}
std::string describe(const Scheduled& found) {
  if (!found.schedule) return fmt::format("<berth.Scheduled: nothing, {}>", found.why_not);
  return fmt::format("<berth.Scheduled: peak {}, {:.3f} ms, gap {:.2f} %{}>",
                     format_bytes(found.verdict.peak), static_cast<double>(found.verdict.ns) / 1e6,
                     100 * found.gap(), found.proven_optimal ? ", proven optimal" : "");
}

void bind_graph(nb::module_& module) {
  nb::class_<Graph>(module, "Graph",
                    "A step as operators that read and make values. Immutable; arrays copy nothing "
                    "and are read-only.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            return graph::read_graph(path.string());
          },
          nb::arg("path"), nb::sig("def load(path: str | os.PathLike[str]) -> Graph"),
          "Reads a graph of berth's, a trace with operators, or a graph of dnn-partitioning, DTR, "
          "MONeT, Moccasin or PipeDream. Raises InputError that names what is wrong.")
      .def_static(
          "from_json",
          [](const std::string& text) {
            const nb::gil_scoped_release unlock;
            return graph::parse_graph(text, "text");
          },
          nb::arg("text"),
          "Reads the text of a graph file, in any form that load() reads. Raises InputError.")
      .def_static(
          "from_trace",
          [](const Trace& trace) {
            const nb::gil_scoped_release unlock;
            return graph::graph_from_trace(trace).graph;
          },
          nb::arg("trace"),
          "The step that repeats in a trace with operators. Raises InputError where none does.")
      .def(
          "save",
          [](const Graph& graph, const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            graph::write_graph(path.string(), graph);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the graph atomically: as JSON if the name ends in .json.")
      .def("to_json", &graph::to_json, "The graph in berth's own JSON form, as text.")
      .def_prop_ro(
          "storage_bytes",
          [](nb::handle self) {
            return column(nb::cast<Graph&>(self).storages, &graph::Storage::bytes, self);
          },
          "Bytes of each storage: an array of uint64.")
      .def_prop_ro(
          "operators",
          [](const Graph& graph) {
            std::vector<std::string> names;
            for (const graph::Operator& op : graph.operators) names.push_back(op.name);
            return names;
          },
          "Names of the operators, by number.")
      .def_prop_ro(
          "order", [](nb::handle self) { return view(nb::cast<Graph&>(self).order, self); },
          "The recorded order of operators: an array of uint32. Empty: the order by number.")
      .def("__len__", [](const Graph& graph) { return graph.operators.size(); })
      .def(
          "__eq__", [](const Graph& graph, const Graph& other) { return graph == other; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__", [](const Graph& graph) { return describe(graph); });
}

void bind_steps(nb::module_& module) {
  nb::class_<Steps>(module, "Steps",
                    "The steps of a schedule. Arrays have one element a step, in order, copy "
                    "nothing and are read-only.")
      .def_prop_ro("kinds", column_of<kRows>(&Steps::Row::kind),
                   "0 runs an operator, 1 drops a buffer, 2 copies it to the host, 3 copies it "
                   "back.")
      .def_prop_ro("targets", column_of<kRows>(&Steps::Row::target),
                   "The operator for kind 0, the buffer for other kinds.")
      .def_prop_ro("alternatives", column_of<kRows>(&Steps::Row::alternative),
                   "Index of the operator's alternative.")
      .def_prop_ro("offsets", column_of<kRows>(&Steps::Row::offset),
                   "Bytes. Kind 0: the workspace's offset in the arena. Kind 2: the offset on the "
                   "host. 2**64 - 1: none.")
      .def("__len__", [](const Steps& steps) { return steps.rows.size(); })
      .def("__repr__",
           [](const Steps& steps) { return fmt::format("<berth.Steps: {}>", steps.rows.size()); });
}

void bind_schedule_file(nb::module_& module) {
  nb::class_<Schedule>(module, "Schedule",
                       "When each operator of a step runs, by which alternative, and where its "
                       "bytes are. berth.schedule() makes one.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            return graph::read_schedule(path.string());
          },
          nb::arg("path"), nb::sig("def load(path: str | os.PathLike[str]) -> Schedule"),
          "Reads a schedule's file. Raises InputError that names what is wrong.")
      .def(
          "save",
          [](const Schedule& schedule, const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            graph::write_schedule(path.string(), schedule);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the schedule file atomically.")
      .def(
          "verify",
          [](const Schedule& schedule, const Graph& graph, Bytes rate_out,
             Bytes rate_in) -> std::optional<std::string> {
            const nb::gil_scoped_release unlock;
            std::string violation = graph::replay(graph, schedule, {rate_out, rate_in}).violation;
            return violation.empty() ? std::nullopt : std::optional(std::move(violation));
          },
          nb::arg("graph"), nb::arg("rate_out") = graph::CopyRates{}.out,
          nb::arg("rate_in") = graph::CopyRates{}.in,
          "Replays the schedule with code that the planners do not share. Returns None for a legal "
          "schedule of the graph within its budget, else the first violation in words. Rates are "
          "bytes a second.")
      .def_prop_ro("steps", &steps_of,
                   "The steps, as a table. Each call makes a new one: O(steps).")
      .def_prop_ro(
          "storages",
          [](nb::handle self) {
            return column(nb::cast<Schedule&>(self).buffers, &graph::Buffer::storage, self);
          },
          "The graph's storage of each buffer: an array of uint32.")
      .def(
          "offsets",
          [](nb::handle self, std::size_t buffer) {
            const Schedule& schedule = nb::cast<Schedule&>(self);
            if (buffer >= schedule.buffers.size()) throw nb::index_error("there is no such buffer");
            return view(schedule.buffers[buffer].offsets, self);
          },
          nb::arg("buffer"),
          "Offsets of a buffer in the arena, in bytes, one for each of its births: an array of "
          "uint64.")
      .def_ro("arena_bytes", &Schedule::arena_bytes,
              "Bytes of the device's arena; 0: nothing was placed.")
      .def_ro("host_bytes", &Schedule::host_bytes, "Bytes of the host's arena.")
      .def_ro("budget", &Schedule::budget,
              "Bytes that the step may take on the device; 0: no budget.")
      .def_ro("peak", &Schedule::peak, "The planner's peak: the most bytes alive at one time.")
      .def_ro("peak_bound", &Schedule::peak_bound, "Bytes: no schedule has a lower peak.")
      .def_ro("time_ns", &Schedule::ns, "The planner's time of the step.")
      .def_ro("time_bound_ns", &Schedule::ns_bound, "No schedule is faster.")
      .def_ro("engine", &Schedule::engine, "The engine that found the schedule.")
      .def_ro("seed", &Schedule::seed, "Seed of the search.")
      .def("__len__", [](const Schedule& schedule) { return schedule.steps.size(); })
      .def(
          "__eq__", [](const Schedule& one, const Schedule& other) { return one == other; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__", [](const Schedule& schedule) { return describe(schedule); });
}

void bind_scheduled(nb::module_& module) {
  const auto of_verdict = [](auto graph::Verdict::*member) {
    return [member](const Scheduled& found) { return found.verdict.*member; };
  };
  nb::class_<schedule::StepProgress>(module, "ScheduleProgress",
                                     "Progress of a search for a schedule.")
      .def_ro("seconds", &schedule::StepProgress::seconds, "Time since the search began.")
      .def_ro("time_ns", &schedule::StepProgress::ns,
              "Time of the best schedule so far that fits; 0: none fits yet.")
      .def_ro("time_bound_ns", &schedule::StepProgress::ns_bound, "No schedule is faster.")
      .def_ro("peak", &schedule::StepProgress::peak, "Peak of that schedule, in bytes.")
      .def_ro("engine", &schedule::StepProgress::engine, "The engine that found that schedule.")
      .def("__repr__", [](const schedule::StepProgress& progress) {
        return fmt::format(
            "<berth.ScheduleProgress: best {:.3f} ms, bound {:.3f} ms, {}, {:.1f} s>",
            static_cast<double>(progress.ns) / 1e6, static_cast<double>(progress.ns_bound) / 1e6,
            progress.engine, progress.seconds);
      });
  nb::class_<Scheduled>(module, "Scheduled",
                        "The result of a search: the fastest schedule that fits the budget, or why "
                        "there is none. The referee has replayed that schedule. Sizes are bytes, "
                        "times nanoseconds.")
      .def_ro("schedule", &Scheduled::schedule, nb::rv_policy::reference_internal,
              "The fastest schedule that fits, or None.")
      .def_ro("why_not", &Scheduled::why_not, "Why there is no schedule, in words; else empty.")
      .def_ro("missing_bytes", &Scheduled::missing_bytes,
              "Bytes by which the budget is below least_budget, else 0.")
      .def_prop_ro("peak", of_verdict(&graph::Verdict::peak), "The most bytes alive at one time.")
      .def_prop_ro("time_ns", of_verdict(&graph::Verdict::ns), "Time of the step.")
      .def_ro("base_peak", &Scheduled::base_peak, "Peak of the step as recorded.")
      .def_ro("base_time_ns", &Scheduled::base_ns,
              "Time of the step as recorded, each operator by its fastest alternative.")
      .def_ro("order_peak", &Scheduled::order_peak,
              "Peak of the best order without recomputation; None if no order was searched for.")
      .def_ro("least_budget", &Scheduled::least_budget, "Bytes: no schedule fits less.")
      .def_ro("largest", &Scheduled::largest, "The operator that needs least_budget.")
      .def_ro("time_bound_ns", &Scheduled::ns_bound, "No schedule is faster.")
      .def_prop_ro(
          "gap", [](const Scheduled& found) { return found.gap(); }, "time_ns / time_bound_ns - 1.")
      .def_ro("proven_optimal", &Scheduled::proven_optimal,
              "True if it is proven that no schedule that fits is faster.")
      .def_prop_ro("recomputed", of_verdict(&graph::Verdict::recomputed),
                   "Number of recomputed operators.")
      .def_prop_ro("recomputed_ns", of_verdict(&graph::Verdict::recomputed_ns),
                   "Time of these runs.")
      .def_prop_ro("offloaded_bytes", of_verdict(&graph::Verdict::offloaded_bytes),
                   "Bytes copied to the host.")
      .def_prop_ro("reloaded_bytes", of_verdict(&graph::Verdict::reloaded_bytes),
                   "Bytes copied back.")
      .def_prop_ro("host_peak", of_verdict(&graph::Verdict::host_peak),
                   "The most bytes on the host at one time.")
      .def_ro("seconds", &Scheduled::seconds, "Time of the search.")
      .def_ro("cancelled", &Scheduled::cancelled, "True if Ctrl-C ended the search.")
      .def("__repr__", [](const Scheduled& found) { return describe(found); });
}

}  // namespace

void bind_schedule(nb::module_& module) {
  bind_graph(module);
  bind_steps(module);
  bind_schedule_file(module);
  bind_scheduled(module);
  module.def(
      "schedule",
      [](const Graph& graph, std::optional<Bytes> budget, std::optional<Bytes> rate_out,
         std::optional<Bytes> rate_in, bool addresses, const std::vector<Schedule>& given,
         double time_limit, std::uint64_t iterations, std::uint64_t seed, const std::string& engine,
         const nb::object& progress) {
        schedule::StepOptions options;
        options.budget = budget.value_or(0);
        if (rate_out && rate_in) options.rates = graph::CopyRates{*rate_out, *rate_in};
        options.addresses = addresses;
        options.given = given;
        options.engine = engine;
        options.time_limit_seconds = time_limit;
        options.iteration_budget = iterations;
        options.seed = seed;
        Watch watch(progress);
        watch.follow(options);
        Scheduled found;
        watch.run([&] {
          schedule::StepResult& result = found;
          if (budget) {
            result = schedule::plan_step(graph, options);
            return;
          }
          schedule::LeastMemory least(graph, options);
          if (const schedule::StepResult* const any = least.find())
            result = *any;
          else
            result.why_not = "no schedule was found in the time limit";
        });
        watch.raise_if_failed();
        found.cancelled = watch.cancelled();
        return found;
      },
      nb::arg("graph"), nb::arg("budget").none(), nb::arg("rate_out").none(),
      nb::arg("rate_in").none(), nb::arg("addresses"), nb::arg("given"), nb::arg("time_limit"),
      nb::arg("iterations"), nb::arg("seed"), nb::arg("engine"), nb::arg("progress").none(),
      "berth.schedule() without its checks of arguments.");
  module.def(
      "schedule_engines", [] { return schedule::step_engines(); },
      "Names for `engine`, \"auto\" first.");
}

}  // namespace berth::python
