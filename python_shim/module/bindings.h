#pragma once

#include <nanobind/nanobind.h>

namespace berth::python {

// Each adds its classes and functions to berth._core.
void bind_search(nanobind::module_& module);  // Progress, Placement, place(), engines()
void bind_order(nanobind::module_& module);   // OrderProgress, Order, order(), order_engines()
void bind_trace(nanobind::module_& module);   // Step, Requests, Trace
void bind_plan(nanobind::module_& module);    // Sequence, Plan, plan()
// ScheduleProgress, Graph, Steps, Schedule, Scheduled, schedule(), schedule_engines()
void bind_schedule(nanobind::module_& module);

}  // namespace berth::python
