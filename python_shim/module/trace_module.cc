#include "csrc/core/bytes.h"
#include "csrc/trace/file.h"
#include "csrc/trace/write.h"
#include "python_shim/module/arrays.h"
#include "python_shim/module/bindings.h"
#include "python_shim/module/program.h"
#include "python_shim/module/step.h"

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <variant>

namespace berth::python {
namespace {

namespace nb = nanobind;

// The requests of a trace as a table.
struct Requests {
  static constexpr trace::Tick kNever = std::numeric_limits<trace::Tick>::max();
  struct Row {
    std::uint64_t id = 0;
    Bytes bytes = 0;
    trace::Tick tick = 0;
    trace::Tick freed = kNever;
    std::uint64_t time_ns = 0;
    std::uint32_t lane = 0, tag = 0;
  };
  std::vector<Row> rows;
};

Requests requests_of(const Trace& trace) {
  Requests requests;
  std::unordered_map<trace::BlockId, std::size_t> row_of;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      row_of[request->id] = requests.rows.size();
      requests.rows.push_back({request->id, request->bytes, entry.tick, Requests::kNever,
                               entry.time_ns, request->lane, request->tag});
    } else if (const auto* freed = std::get_if<trace::Free>(&entry.event)) {
      const auto found = row_of.find(freed->id);
      if (found != row_of.end()) requests.rows[found->second].freed = entry.tick;
    }
  }
  return requests;
}

std::size_t count_requests(const Trace& trace) {
  return static_cast<std::size_t>(
      std::count_if(trace.entries.begin(), trace.entries.end(), [](const trace::Entry& entry) {
        return std::holds_alternative<trace::Request>(entry.event);
      }));
}

std::uint64_t count_marks(const Trace& trace) {
  return static_cast<std::uint64_t>(
      std::count_if(trace.entries.begin(), trace.entries.end(), [](const trace::Entry& entry) {
        return std::holds_alternative<trace::StepMark>(entry.event);
      }));
}

std::string describe(const Trace& trace) {
  return fmt::format("<berth.Trace of {} requests, {} marked steps, {} entries{}>",
                     count_requests(trace), count_marks(trace), trace.entries.size(),
                     trace.closed ? "" : ", torn");
}

std::string describe(const LaneStep& step) {
  Bytes bytes = 0;
  for (const LaneStep::Request& request : step.requests) bytes += request.bytes;
  return fmt::format("<berth.Step of lane {}: {} requests of {}{}{}>", step.lane,
                     step.requests.size(), format_bytes(bytes),
                     step.bucket ? ", of many lengths" : "",
                     step.placed ? ", placed" : fmt::format(", seen {} times", step.seen));
}

constexpr auto kRows = &Requests::rows;
constexpr auto kRequests = &LaneStep::requests;

void bind_step(nb::module_& module) {
  nb::class_<LaneStep>(
      module, "Step",
      "The requests of one lane in one kind of step, in order. A lane is a stream, or on the CPU a "
      "thread. Arrays have one element a request, copy nothing and are read-only.")
      .def_ro("lane", &LaneStep::lane, "Key of the stream or thread.")
      .def_ro("seen", &LaneStep::seen, "In a trace, how often the step came; 0 in a plan.")
      .def_ro("placed", &LaneStep::placed, "True in a plan: the step has offsets.")
      .def_ro("bucket", &LaneStep::bucket, "True if it is the bucket of steps of many lengths.")
      .def_prop_ro("bytes", column_of<kRequests>(&LaneStep::Request::bytes),
                   "Requested bytes; of a bucket the most.")
      .def_prop_ro("least_bytes", column_of<kRequests>(&LaneStep::Request::least),
                   "Of a bucket the least requested bytes, else equal to bytes.")
      .def_prop_ro("offsets", column_of<kRequests>(&LaneStep::Request::offset),
                   "Offsets of a plan in bytes; 2**64 - 1: the pool serves the request.")
      .def_prop_ro("lengths", column_of<kRequests>(&LaneStep::Request::length),
                   "Number of requests of the lane until the free; 0: not known.")
      .def_prop_ro("planned", column_of<kRequests>(&LaneStep::Request::planned),
                   "1: the request has a slot in a plan. 0: the pool serves it.")
      .def("__len__", [](const LaneStep& step) { return step.requests.size(); })
      .def("__repr__", [](const LaneStep& step) { return describe(step); });
}

}  // namespace

void bind_trace(nb::module_& module) {
  bind_step(module);
  nb::class_<Requests>(module, "Requests",
                       "The requests of a trace. Arrays have one element a request, in the order "
                       "of the run, copy nothing and are read-only.")
      .def_prop_ro("ids", column_of<kRows>(&Requests::Row::id), "Ids of the blocks.")
      .def_prop_ro("bytes", column_of<kRows>(&Requests::Row::bytes),
                   "Requested bytes, before rounding.")
      .def_prop_ro("ticks", column_of<kRows>(&Requests::Row::tick),
                   "Number of entries of the trace before each request.")
      .def_prop_ro("freed", column_of<kRows>(&Requests::Row::freed),
                   "Tick of the free; 2**64 - 1: alive at the end of the trace.")
      .def_prop_ro("times_ns", column_of<kRows>(&Requests::Row::time_ns),
                   "Nanoseconds since the recording began; 0 where not known.")
      .def_prop_ro("lanes", column_of<kRows>(&Requests::Row::lane), "Indices into Trace.lanes.")
      .def_prop_ro("tags", column_of<kRows>(&Requests::Row::tag), "Tags of berth.scope(); 0: none.")
      .def("__len__", [](const Requests& requests) { return requests.rows.size(); })
      .def("__repr__", [](const Requests& requests) {
        return fmt::format("<berth.Requests: {}>", requests.rows.size());
      });
  nb::class_<Trace>(
      module, "Trace",
      "The recorded requests and frees of a run, in order. berth.record() writes one.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            return read_trace(path.string());
          },
          nb::arg("path"), nb::sig("def load(path: str | os.PathLike[str]) -> Trace"),
          "Reads a trace of berth's, or a CSV with the header `action,id,bytes,stream` or "
          "`id,lower,upper,size`, plain or gzip. Raises InputError that names what is wrong.")
      .def(
          "save",
          [](const Trace& trace, const std::filesystem::path& path) {
            const nb::gil_scoped_release unlock;
            write_trace(path.string(), trace);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the trace in berth's own format, atomically.")
      .def_prop_ro(
          "program", [](const Trace& trace) { return describe_program(trace.program); },
          "The recorded program: torch_version, device_name, device_bytes, world_size, rank, "
          "tag.")
      .def_ro("alignment", &Trace::alignment, "Alignment of every block, in bytes.")
      .def_prop_ro("lanes", column_of<&Trace::lanes>(&trace::Lane::key),
                   "Keys of the streams or threads.")
      .def_ro("cut_bytes", &Trace::cut_bytes, "Bytes of the torn end that the reader cut off.")
      .def_ro("closed", &Trace::closed, "True if the recording was closed; false after a crash.")
      .def_prop_ro("marks", &count_marks, "Number of marked steps.")
      .def_prop_ro("requests", &requests_of,
                   "All requests, as a table. Each call makes a new one: O(entries).")
      .def(
          "steps",
          [](const Trace& trace) {
            const nb::gil_scoped_release unlock;
            return steps_of(find_repeats(trace));
          },
          "The steps that repeat, one Step for each lane and kind; empty if none does.")
      .def("__len__", [](const Trace& trace) { return trace.entries.size(); })
      .def("__repr__", [](const Trace& trace) { return describe(trace); });
}

}  // namespace berth::python
