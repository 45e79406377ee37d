#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "python_shim/module/arrays.h"
#include "python_shim/module/bindings.h"
#include "python_shim/module/search.h"

#include <berth/place.h>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace berth::python {
namespace {

namespace nb = nanobind;
using Numbers = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// Offsets that are given; negative: not given.
using Pins = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct PlacedBuffers : Placement {
  bool cancelled = false;
};

PlacedBuffers place(const Numbers& sizes, const Numbers& births, const Numbers& ends,
                    const std::optional<Pins>& pinned, std::uint64_t period, Bytes alignment,
                    const SearchArguments& arguments) {
  Problem problem;
  problem.alignment = alignment;
  problem.lanes[0].period = period;
  problem.buffers.resize(sizes.shape(0));
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    Buffer& buffer = problem.buffers[i];
    buffer.size = sizes(i);
    buffer.birth = births(i);
    buffer.length = ends(i) - births(i);
    if (pinned && (*pinned)(i) >= 0) buffer.pinned = static_cast<Bytes>((*pinned)(i));
  }
  Search search(arguments);
  PlacedBuffers placed;
  {
    const nb::gil_scoped_release unlock;
    static_cast<Placement&>(placed) = place_buffers(problem, search.options());
  }
  search.raise_if_failed();
  placed.cancelled = search.cancelled();
  return placed;
}

std::string describe(const PlacedBuffers& placed) {
  return fmt::format("<berth.Placement of {} buffers: {}, bound {}, gap {:.2f} %{}>",
                     placed.offsets.size(), format_bytes(placed.high_water_mark),
                     format_bytes(placed.lower_bound), 100 * placed.gap(),
                     placed.proven_optimal ? ", proven optimal" : "");
}

}  // namespace

void bind_search(nb::module_& module) {
  nb::class_<PlaceProgress>(module, "Progress", "How far a search has come.")
      .def_ro("seconds", &PlaceProgress::seconds, "Time since the search began.")
      .def_ro("high_water_mark", &PlaceProgress::high_water_mark,
              "High-water mark of the best placement so far, in bytes.")
      .def_ro("lower_bound", &PlaceProgress::lower_bound, "Bytes: no placement needs less.")
      .def_ro("engine", &PlaceProgress::engine, "The engine that found the best placement so far.")
      .def_ro("iterations", &PlaceProgress::iterations, "Number of tries so far.")
      .def("__repr__", [](const PlaceProgress& progress) {
        return fmt::format("<berth.Progress: best {}, bound {}, {}, {:.1f} s>",
                           format_bytes(progress.high_water_mark),
                           format_bytes(progress.lower_bound), progress.engine, progress.seconds);
      });
  nb::class_<PlacedBuffers>(
      module, "Placement",
      "Offsets for buffers, with a proven bound. Buffers that are alive at one time share no byte.")
      .def_prop_ro(
          "offsets",
          [](nb::handle self) { return view(nb::cast<PlacedBuffers&>(self).offsets, self); },
          "One offset a buffer, in bytes: a read-only array of uint64.")
      .def_ro("high_water_mark", &Placement::high_water_mark, "Bytes: the largest offset + size.")
      .def_ro("lower_bound", &Placement::lower_bound, "Bytes: no placement needs less.")
      .def_prop_ro(
          "gap", [](const PlacedBuffers& placed) { return placed.gap(); },
          "high_water_mark / lower_bound - 1.")
      .def_ro("proven_optimal", &Placement::proven_optimal,
              "True if it is proven that no placement has a lower high_water_mark.")
      .def_ro("proven_infeasible", &Placement::proven_infeasible,
              "True if it is proven that no placement fits the capacity.")
      .def_ro("engine", &Placement::engine, "The engine that found the placement.")
      .def_ro("iterations", &Placement::iterations, "Number of tries.")
      .def_ro("seconds", &Placement::seconds, "Time of the search.")
      .def_ro("cancelled", &PlacedBuffers::cancelled, "True if Ctrl-C ended the search.")
      .def("__len__", [](const PlacedBuffers& placed) { return placed.offsets.size(); })
      .def("__repr__", &describe);
  module.def(
      "place",
      [](const Numbers& sizes, const Numbers& births, const Numbers& ends,
         const std::optional<Pins>& pinned, std::uint64_t period, Bytes alignment,
         double time_limit, std::uint64_t iterations, std::uint64_t seed, unsigned threads,
         const std::string& engine, std::optional<Bytes> capacity, const nb::object& progress) {
        return place(sizes, births, ends, pinned, period, alignment,
                     {time_limit, iterations, seed, threads, engine, capacity, progress});
      },
      nb::arg("sizes"), nb::arg("births"), nb::arg("ends"), nb::arg("pinned").none(),
      nb::arg("period"), nb::arg("alignment"), nb::arg("time_limit"), nb::arg("iterations"),
      nb::arg("seed"), nb::arg("threads"), nb::arg("engine"), nb::arg("capacity").none(),
      nb::arg("progress").none(), "berth.place() without its checks of arguments.");
  module.def(
      "engines", [] { return place_engines(); }, "Names for `engine`, \"auto\" first.");
}

}  // namespace berth::python
