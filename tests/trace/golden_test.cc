#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/support/trace_builder.h"
#include "tests/trace/equal_traces.h"

#include <string>

using namespace berth;

namespace {

// What data/format1.trace holds: one entry of every kind, no field at its default.
Trace golden() {
  test::TraceBuilder t;
  t.trace().program = {.torch_version = "2.11.0",
                       .device_name = "cpu",
                       .device_bytes = Bytes{8} << 30,
                       .world_size = 4,
                       .rank = 3,
                       .tag = "golden"};
  t.trace().alignment = 128;
  t.trace().shapes.push_back({2, -1, 768});
  const trace::BlockId block = t.allocate(1234, 9, 5);
  t.use(block, 4);
  t.record(77, 9);
  t.wait(77, 4);
  t.synchronize(77);
  t.synchronize_all();
  t.mark(9);
  t.add(trace::RangeBegin{3, t.name("model.layers.0"), trace::RangeKind::kModule}, 1);
  t.add(trace::RangeEnd{3}, 1);
  t.add(trace::OperatorBegin{.op = 8,
                             .name = t.name("aten::mm"),
                             .sequence = 41,
                             .forward_thread = 1,
                             .backward = true,
                             .random = true,
                             .changes_state = true},
        2);
  t.add(trace::Operand{.op = 8,
                       .block = block,
                       .byte_offset = 64,
                       .bytes = 512,
                       .shape = 1,
                       .element_type = 6,
                       .access = trace::Access::kReadWrite,
                       .output = true,
                       .position = 2},
        2);
  t.add(trace::OperatorEnd{8}, 2);
  t.add(trace::Role{block, trace::RoleKind::kGradient});
  t.add(trace::Copy{trace::CopyDirection::kDeviceToHost, 4096, 555, 1});
  t.add(trace::Alternative{8, 99, 2, 1 << 20, 333, true});
  t.add(trace::Segment{0x7F0000000000, 2 << 20, false});
  t.add(trace::DeviceTime{8, 1, 1000, 250});
  t.free(block);
  for (trace::Entry& entry : t.trace().entries) entry.time_ns = 10 * entry.tick + 1;
  return t.trace();
}

}  // namespace

TEST_CASE("A trace of format 1 that was written once stays readable", "[trace][file][golden]") {
  const Trace trace = read_trace(BERTH_TEST_DATA "/format1.trace");
  REQUIRE(trace.closed);
  REQUIRE(trace.entries.size() == 18);
  REQUIRE(test::equal(trace, golden()));
}
