#pragma once

#include "csrc/trace/trace.h"

#include <nanobind/nanobind.h>

namespace berth::python {

// A dictionary with the names of trace::Program's members.
[[nodiscard]] inline nanobind::typed<nanobind::dict, nanobind::str, nanobind::object>
describe_program(const trace::Program& program) {
  nanobind::typed<nanobind::dict, nanobind::str, nanobind::object> made;
  made["torch_version"] = program.torch_version.c_str();
  made["device_name"] = program.device_name.c_str();
  made["device_bytes"] = program.device_bytes;
  made["world_size"] = program.world_size;
  made["rank"] = program.rank;
  made["tag"] = program.tag.c_str();
  return made;
}

}  // namespace berth::python
