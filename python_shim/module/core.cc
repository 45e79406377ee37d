// berth._core: traces, plans and the planner as Python objects. Links no libtorch.
#include "csrc/schedule/use_papers.h"
#include "python_shim/module/bindings.h"
#include "python_shim/module/errors.h"

#include <nanobind/nanobind.h>

NB_MODULE(_core, module) {
  module.doc() = "Traces, plans and planners of berth. The package berth has the public names.";
  berth::python::translate_errors();
  berth::use_papers_where_built();
  berth::python::bind_search(module);
  berth::python::bind_order(module);
  berth::python::bind_trace(module);
  berth::python::bind_plan(module);
  berth::python::bind_schedule(module);
}
