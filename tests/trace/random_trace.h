#pragma once

#include "csrc/trace/trace.h"
#include "tests/support/trace_builder.h"

#include <cstdint>
#include <random>

namespace berth::test {

// A legal trace with entries of every kind, of several threads and lanes.
inline Trace random_trace(std::uint64_t seed, std::size_t entries) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  TraceBuilder builder;
  Trace& t = builder.trace();
  t.program = {.torch_version = "2.11.0",
               .device_name = "cpu",
               .device_bytes = Bytes{8} << 30,
               .world_size = 4,
               .rank = 3,
               .tag = "a tag"};
  t.alignment = Bytes{1} << below(12);
  std::vector<trace::BlockId> live;
  std::uint64_t operators = 0;
  for (std::size_t i = 0; i < entries; ++i) {
    const auto thread = static_cast<trace::ThreadId>(below(3));
    const trace::LaneId lane = builder.lane(below(4) * 7);
    const auto add = [&](const trace::Event& event) { builder.add(event, thread); };
    const trace::BlockId some = live.empty() ? 0 : live[below(live.size())];
    switch (below(17)) {
      case 0:
        if (!live.empty()) {
          add(trace::Free{live.back()});
          live.pop_back();
        }
        break;
      case 1:
        add(trace::Use{some, lane});
        break;
      case 2:
        add(trace::EventRecord{below(5) + 1, lane});
        break;
      case 3:
        add(trace::EventWait{below(5) + 1, lane});
        break;
      case 4:
        add(trace::Synchronize{below(3), below(2) == 0 ? lane : trace::kAllLanes});
        break;
      case 5:
        add(trace::StepMark{lane});
        break;
      case 6: {
        const auto kind = static_cast<trace::RangeKind>(below(3));
        add(trace::RangeBegin{i, builder.name("layer." + std::to_string(below(9))), kind});
        break;
      }
      case 7:
        add(trace::RangeEnd{i});
        break;
      case 8:
        add(trace::OperatorBegin{.op = ++operators,
                                 .name = builder.name("aten::mm"),
                                 .sequence = static_cast<std::int64_t>(below(10)) - 1,
                                 .forward_thread = thread,
                                 .backward = below(2) == 0,
                                 .random = below(2) == 0,
                                 .changes_state = below(2) == 0});
        if (below(2) == 0) add(trace::OperatorEnd{operators});
        break;
      case 9: {
        t.shapes.push_back({static_cast<std::int64_t>(below(9)), -1, 4});
        add(trace::Operand{.op = operators,
                           .block = some,
                           .byte_offset = below(100),
                           .bytes = below(1000),
                           .shape = static_cast<std::uint32_t>(below(t.shapes.size())),
                           .element_type = static_cast<std::int8_t>(below(20)),
                           .access = static_cast<trace::Access>(below(3)),
                           .output = below(2) == 0,
                           .position = static_cast<std::uint16_t>(below(65536))});
        break;
      }
      case 10:
        add(trace::Role{some, static_cast<trace::RoleKind>(below(7))});
        break;
      case 11:
        add(trace::Copy{static_cast<trace::CopyDirection>(below(4)), below(1 << 30), below(1000),
                        lane});
        break;
      case 12:
        add(trace::Alternative{operators, random(), static_cast<std::uint32_t>(below(9)),
                               below(1000), below(1000), below(2) == 0});
        break;
      case 13:
        add(trace::Segment{random(), below(1 << 30), below(2) == 0});
        break;
      case 14:
        add(trace::DeviceTime{operators, lane, random(), below(1000)});
        break;
      default:
        live.push_back(builder.allocate(below(1 << 20), builder.trace().lanes[lane].key,
                                        static_cast<trace::Tag>(below(3))));
    }
    if (!t.entries.empty()) t.entries.back().time_ns = i * 100;
  }
  return t;
}

}  // namespace berth::test
