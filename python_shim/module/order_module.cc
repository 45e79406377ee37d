#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "python_shim/module/arrays.h"
#include "python_shim/module/bindings.h"
#include "python_shim/module/search.h"

#include <berth/schedule.h>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace berth::python {
namespace {

namespace nb = nanobind;
template <class Number>
using Column = nb::ndarray<const Number, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Sizes = Column<std::uint64_t>;
using Operators = Column<std::uint32_t>;

struct FoundOrder : OrderResult {
  bool cancelled = false;
};

// Readers of value v are readers[first[v], first[v + 1]); operators i and i + 1 of `control` are a
// pair, for even i.
StepOperators operators_from(const Sizes& workspaces, const Sizes& sizes, const Operators& makers,
                             const Sizes& first, const Operators& readers, const Operators& control,
                             Bytes resident) {
  StepOperators operators;
  operators.resident = resident;
  operators.workspaces.assign(workspaces.data(), workspaces.data() + workspaces.shape(0));
  operators.values.resize(sizes.shape(0));
  for (std::size_t v = 0; v < operators.values.size(); ++v) {
    OrderValue& value = operators.values[v];
    value.bytes = sizes(v);
    value.maker = makers(v);
    value.readers.assign(readers.data() + first(v), readers.data() + first(v + 1));
  }
  for (std::size_t i = 0; i + 1 < control.shape(0); i += 2)
    operators.control.emplace_back(control(i), control(i + 1));
  return operators;
}

std::string describe(const FoundOrder& found) {
  return fmt::format("<berth.Order of {} operators: peak {}, bound {}, gap {:.2f} %{}>",
                     found.order.size(), format_bytes(found.peak), format_bytes(found.bound),
                     100 * found.gap(), found.proven_optimal ? ", proven optimal" : "");
}

}  // namespace

void bind_order(nb::module_& module) {
  nb::class_<OrderProgress>(module, "OrderProgress", "How far a search for an order has come.")
      .def_ro("seconds", &OrderProgress::seconds, "Time since the search began.")
      .def_ro("peak", &OrderProgress::peak, "Peak of the best order so far, in bytes.")
      .def_ro("bound", &OrderProgress::bound, "Bytes: no order has a lower peak.")
      .def_ro("engine", &OrderProgress::engine, "The engine that found the best order so far.")
      .def("__repr__", [](const OrderProgress& progress) {
        return fmt::format("<berth.OrderProgress: best {}, bound {}, {}, {:.1f} s>",
                           format_bytes(progress.peak), format_bytes(progress.bound),
                           progress.engine, progress.seconds);
      });
  nb::class_<FoundOrder>(module, "Order",
                         "An order of operators that needs little memory, with a proven bound.")
      .def_prop_ro(
          "order", [](nb::handle self) { return view(nb::cast<FoundOrder&>(self).order, self); },
          "The operators, first to last: a read-only array of uint32.")
      .def_ro("peak", &OrderResult::peak, "The most bytes alive while one operator runs.")
      .def_ro("bound", &OrderResult::bound, "Bytes: no order has a lower peak.")
      .def_ro("given_peak", &OrderResult::given_peak,
              "Peak of the given order in bytes; without one, of the order by number.")
      .def_prop_ro(
          "gap", [](const FoundOrder& found) { return found.gap(); }, "peak / bound - 1.")
      .def_ro("proven_optimal", &OrderResult::proven_optimal,
              "True if it is proven that no order has a lower peak.")
      .def_ro("engine", &OrderResult::engine, "The engine that found the order.")
      .def_ro("seconds", &OrderResult::seconds, "Time of the search.")
      .def_ro("cancelled", &FoundOrder::cancelled, "True if Ctrl-C ended the search.")
      .def("__len__", [](const FoundOrder& found) { return found.order.size(); })
      .def("__repr__", &describe);
  module.def(
      "order",
      [](const Sizes& workspaces, const Sizes& sizes, const Operators& makers, const Sizes& first,
         const Operators& readers, const Operators& control, Bytes resident, const Operators& given,
         double time_limit, std::uint64_t iterations, std::uint64_t seed, const std::string& engine,
         const nb::object& progress) {
        const StepOperators operators =
            operators_from(workspaces, sizes, makers, first, readers, control, resident);
        OrderOptions options;
        options.engine = engine;
        options.time_limit_seconds = time_limit;
        options.iteration_budget = iterations;
        options.seed = seed;
        options.given.assign(given.data(), given.data() + given.shape(0));
        Watch watch(progress);
        watch.follow(options);
        FoundOrder found;
        {
          const nb::gil_scoped_release unlock;
          static_cast<OrderResult&>(found) = order_operators(operators, options);
        }
        watch.raise_if_failed();
        found.cancelled = watch.cancelled();
        return found;
      },
      nb::arg("workspaces"), nb::arg("sizes"), nb::arg("makers"), nb::arg("first"),
      nb::arg("readers"), nb::arg("control"), nb::arg("resident"), nb::arg("given"),
      nb::arg("time_limit"), nb::arg("iterations"), nb::arg("seed"), nb::arg("engine"),
      nb::arg("progress").none(), "berth.order() without its checks of arguments.");
  module.attr("most_ordered") = kMostOrdered;
  module.def(
      "order_engines", [] { return order_engines(); }, "Names for `engine`, \"auto\" first.");
}

}  // namespace berth::python
