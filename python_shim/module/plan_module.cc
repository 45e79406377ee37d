#include "csrc/cli/summaries/picture.h"
#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/place/plan_trace.h"
#include "csrc/plan/file.h"
#include "csrc/plan/verify.h"
#include "python_shim/module/arrays.h"
#include "python_shim/module/bindings.h"
#include "python_shim/module/program.h"
#include "python_shim/module/search.h"
#include "python_shim/module/step.h"

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>

namespace berth::python {
namespace {

namespace nb = nanobind;

double gap_of(const Plan& plan) {
  return plan.lower_bound == 0
             ? 0.0
             : static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) - 1;
}

std::string describe(const Plan& plan) {
  return fmt::format("<berth.Plan of {} requests: arena {}, bound {}, gap {:.2f} %>",
                     plan.slot_count(), format_bytes(plan.arena_bytes),
                     format_bytes(plan.lower_bound), 100 * gap_of(plan));
}

std::string picture(const Plan& plan, const std::string& title) {
  return cli::to_svg(cli::picture_of(plan, title));
}

Plan make_plan(const Trace& trace, std::optional<Bytes> alignment,
               const SearchArguments& arguments) {
  Search search(arguments);
  Plan plan;
  {
    const nb::gil_scoped_release unlock;
    const Repeats repeats = find_repeats(trace);
    BERTH_CHECK(repeats.any(), kInput, "the trace has no step to plan: {}", repeats.why_not);
    plan = plan_repeats(repeats, trace, alignment.value_or(trace.alignment), search.options());
  }
  search.raise_if_failed();
  return plan;
}

constexpr auto kSlots = &Sequence::slots;

void bind_sequence(nb::module_& module) {
  nb::class_<Sequence>(module, "Sequence",
                       "The slots of one lane on one path of the step. A root (parent -1) holds a "
                       "whole path; a branch leaves its parent before tick `fork`. Arrays have one "
                       "element a slot, copy nothing and are read-only.")
      .def_ro("lane", &Sequence::lane, "Index into Plan.lanes.")
      .def_ro("parent", &Sequence::parent, "Index into Plan.sequences, or -1.")
      .def_ro("fork", &Sequence::fork, "Number of requests of the path before the first slot.")
      .def_ro("period", &Sequence::period, "Number of requests of the whole path.")
      .def_prop_ro("offsets", column_of<kSlots>(&Slot::offset),
                   "Offsets in bytes; 2**64 - 1: the pool serves the request.")
      .def_prop_ro("requested", column_of<kSlots>(&Slot::requested), "Requested bytes.")
      .def_prop_ro("sizes", column_of<kSlots>(&Slot::size),
                   "Reserved bytes: requested, rounded up to the alignment.")
      .def_prop_ro("births", column_of<kSlots>(&Slot::birth),
                   "Number of requests of the path before each slot's.")
      .def_prop_ro("lengths", column_of<kSlots>(&Slot::length),
                   "Number of requests of the lane during the slot's lifetime.")
      .def("__len__", [](const Sequence& sequence) { return sequence.slots.size(); })
      .def("__repr__", [](const Sequence& sequence) {
        return fmt::format("<berth.Sequence of lane {}: {} slots>", sequence.lane,
                           sequence.slots.size());
      });
}

}  // namespace

void bind_plan(nb::module_& module) {
  bind_sequence(module);
  nb::class_<Plan>(module, "Plan",
                   "An offset in one arena for every request of a step, with a proven bound. "
                   "berth.plan() makes one.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            return read_plan(path.string());
          },
          nb::arg("path"), nb::sig("def load(path: str | os.PathLike[str]) -> Plan"),
          "Reads and verifies a plan file. Raises InputError that names what is wrong.")
      .def(
          "save",
          [](const Plan& plan, const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            write_plan(path.string(), plan);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the plan file atomically. Raises UsageError for a plan that is not legal.")
      .def(
          "verify",
          [](const Plan& plan) {
            const nb::gil_scoped_release unlock;
            return verify(plan);
          },
          "Checks the plan with code that the planner does not share. Returns None for a legal "
          "plan, else the first violation in words. In a legal plan slots that can be alive at one "
          "time share no byte.")
      .def_prop_ro(
          "program", [](const Plan& plan) { return describe_program(plan.program); },
          "The program of the plan, with the keys of Trace.program.")
      .def_ro("alignment", &Plan::alignment, "Alignment of every offset, in bytes.")
      .def_prop_ro(
          "lanes", [](nb::handle self) { return view(nb::cast<Plan&>(self).lane_keys, self); },
          "Keys of the streams or threads.")
      .def_ro("sequences", &Plan::sequences, nb::rv_policy::reference_internal,
              "The slots, lane by lane and path by path.")
      .def_ro("arena_bytes", &Plan::arena_bytes, "Bytes of the arena.")
      .def_ro("lower_bound", &Plan::lower_bound, "Bytes: no plan of these requests needs less.")
      .def_prop_ro("gap", &gap_of, "arena_bytes / lower_bound - 1.")
      .def_ro("engine", &Plan::engine, "The engine of the planner that found the plan.")
      .def_ro("seed", &Plan::seed, "Seed of the search.")
      .def_ro("plan_seconds", &Plan::plan_seconds, "Time of planning.")
      .def(
          "steps", [](const Plan& plan) { return steps_of(plan); },
          "The steps of the plan, one Step for each lane and path.")
      .def("svg", &picture, nb::arg("title") = "plan",
           "A picture of addresses over time, as the text of an SVG file.")
      .def("__len__", [](const Plan& plan) { return plan.slot_count(); })
      .def(
          "__eq__", [](const Plan& plan, const Plan& other) { return plan == other; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__", &describe)
      .def("_repr_html_", [](const Plan& plan) { return picture(plan, "plan"); });
  module.def(
      "plan",
      [](const Trace& trace, std::optional<Bytes> alignment, double time_limit,
         std::uint64_t iterations, std::uint64_t seed, unsigned threads, const std::string& engine,
         std::optional<Bytes> capacity, const nb::object& progress) {
        return make_plan(trace, alignment,
                         {time_limit, iterations, seed, threads, engine, capacity, progress});
      },
      nb::arg("trace"), nb::arg("alignment").none(), nb::arg("time_limit"), nb::arg("iterations"),
      nb::arg("seed"), nb::arg("threads"), nb::arg("engine"), nb::arg("capacity").none(),
      nb::arg("progress").none(), "berth.plan() without its checks of arguments.");
}

}  // namespace berth::python
