#include "bench/roofline.h"

#include "csrc/graph/units.h"
#include "tests/catch.h"
#include "tests/support/recording.h"

#include <map>

namespace berth::bench {
namespace {

using test::Recording;
using trace::BlockId;

// One flop and one byte a nanosecond, and no launch.
constexpr Roofline kSlow{.flops_per_second = 1e9, .bytes_per_second = 1e9, .least_ns = 0};

// An argument or result of a shape, in floats.
void operand(Recording& run, std::uint64_t op, BlockId block, std::vector<std::int64_t> shape,
             std::uint16_t position, bool output = false) {
  Bytes bytes = 4;
  for (const std::int64_t one : shape) bytes *= static_cast<Bytes>(one);
  auto& shapes = run.builder.trace().shapes;
  shapes.push_back(std::move(shape));
  run.add(trace::Operand{.op = op,
                         .block = block,
                         .bytes = bytes,
                         .shape = static_cast<std::uint32_t>(shapes.size() - 1),
                         .element_type = 6,
                         .access = output ? trace::Access::kWrite : trace::Access::kRead,
                         .output = output,
                         .position = position});
}

std::map<std::uint64_t, std::uint64_t> times(Recording& run, const Roofline& device = kSlow) {
  time_by_roofline(run.builder.trace(), device);
  std::map<std::uint64_t, std::uint64_t> found;
  for (const trace::Entry& entry : run.builder.trace().entries)
    if (const auto* time = std::get_if<trace::DeviceTime>(&entry.event))
      found[time->op] = time->duration_ns;
  return found;
}

}  // namespace

TEST_CASE("A product takes two flops for each element of the result and each of a row",
          "[bench][roofline]") {
  Recording run;
  const BlockId a = run.request(4 * 100 * 200), b = run.request(4 * 200 * 50), c = run.request(1);
  const std::uint64_t mm = run.begin("aten::mm");
  operand(run, mm, a, {100, 200}, 0);
  operand(run, mm, b, {200, 50}, 1);
  operand(run, mm, c, {100, 50}, 0, true);
  run.end(mm);
  CHECK(times(run) == std::map<std::uint64_t, std::uint64_t>{{mm, 2 * 100 * 200 * 50}});
}

TEST_CASE("A convolution's gradient takes twice the flops of the convolution",
          "[bench][roofline]") {
  Recording run;
  const BlockId x = run.request(1), w = run.request(1), y = run.request(1), dx = run.request(1);
  const std::uint64_t forward = run.begin("aten::cudnn_convolution");
  operand(run, forward, x, {2, 3, 8, 8}, 0);
  operand(run, forward, w, {16, 3, 3, 3}, 1);
  operand(run, forward, y, {2, 16, 8, 8}, 0, true);
  run.end(forward);
  const std::uint64_t backward = run.begin("aten::convolution_backward");
  operand(run, backward, y, {2, 16, 8, 8}, 0);
  operand(run, backward, x, {2, 3, 8, 8}, 1);
  operand(run, backward, w, {16, 3, 3, 3}, 2);
  operand(run, backward, dx, {2, 3, 8, 8}, 0, true);
  run.end(backward);
  const auto found = times(run);
  CHECK(found.at(forward) == 2 * (2 * 16 * 8 * 8) * (3 * 3 * 3));
  CHECK(found.at(backward) == 2 * found.at(forward));
}

TEST_CASE("What does no products moves its operands, and takes a launch at least",
          "[bench][roofline]") {
  Recording run;
  const BlockId a = run.request(1000);
  const BlockId b = run.make("aten::relu", {a}, 1000);
  run.change("aten::add_", b, {a});
  CHECK(times(run) == std::map<std::uint64_t, std::uint64_t>{{1, 2000}, {2, 3000}});
  Recording again;
  (void)again.make("aten::relu", {again.request(1000)}, 1000);
  CHECK(times(again, {.bytes_per_second = 1e12, .least_ns = 500}).at(1) == 500);
}

TEST_CASE("Views, room and whoever calls a kernel take no time of their own", "[bench][roofline]") {
  Recording run;
  const BlockId a = run.request(1000);
  run.view("aten::view", a, a);
  (void)run.make("aten::empty", {}, 1000);
  const std::uint64_t outer = run.begin("aten::softmax");
  run.takes(outer, a);
  const BlockId result = run.make("aten::_softmax", {a}, 1000);
  run.gives(outer, result);
  run.end(outer);
  const auto found = times(run);
  CHECK(found == std::map<std::uint64_t, std::uint64_t>{{outer + 1, 2000}});
  const graph::Units units = graph::find_units(run.builder.trace(), TracedRun(run.builder.trace()));
  CHECK(units.units.back().ns == 2000);  // the caller's is its kernel's
}

}  // namespace berth::bench
