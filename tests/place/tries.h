#pragma once

#include <berth/place.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace berth::test {

// How a step of branches is made from one line.
struct TryShape {
  std::uint32_t branches = 4;  // beside the line itself
  double fork = 0.3;           // where the first leaves, as a share of the line
  double spread = 0;           // each further one leaves so much later, from the one before it
  double least = 0.5;          // sizes of a branch over those of the line, evenly from here to 1.1
  double turn = 0;             // where the step begins, as a share: what lives there wraps around
};

// A line as a step that can go several ways, as programs with varying shapes do: each branch leaves
// at a fork and does what the line does from there on, with other sizes and a few buffers living
// longer or less. What is alive at the fork is shared.
inline Problem make_try(const Problem& line, const TryShape& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uint64_t end = 0;
  for (const Buffer& b : line.buffers) end = std::max(end, b.birth + b.length);
  const auto tick_at = [&](double share) {
    return static_cast<std::uint64_t>(share * static_cast<double>(end));
  };
  const std::uint64_t turn = tick_at(shape.turn);
  Problem problem{.lanes = {{.period = end}}, .alignment = 512};
  for (Buffer buffer : line.buffers) {
    if (buffer.length > end / 2 && shape.turn > 0) continue;
    buffer.birth = (buffer.birth + end - turn) % end;
    problem.buffers.push_back(buffer);
  }
  const std::size_t count = problem.buffers.size();
  for (std::uint32_t b = 1; b <= shape.branches; ++b) {
    const std::uint64_t fork = tick_at(std::min(0.95, shape.fork + shape.spread * (b - 1)));
    const std::uint32_t parent = shape.spread > 0 ? b - 1 : 0;
    problem.branches.push_back({.parent = parent, .fork = fork, .period = end});
    const double scale = shape.least + (1.1 - shape.least) * b / shape.branches;
    for (std::size_t i = 0; i < count; ++i) {
      Buffer buffer = problem.buffers[i];
      if (buffer.birth < fork) continue;
      buffer.branch = b;
      buffer.size =
          std::max<Bytes>(1, static_cast<Bytes>(scale * static_cast<double>(buffer.size)));
      const std::uint64_t room = end - buffer.birth;
      if (buffer.length < room && random() % 4 == 0)
        buffer.length = std::min(room, 1 + buffer.length * (50 + random() % 101) / 100);
      problem.buffers.push_back(buffer);
    }
  }
  return problem;
}

// A line as a step of two lanes that edges join both ways at so many points, and at its end.
// `share` percent of the buffers are the second lane's: of all mixed, or of the time between two
// points, so that the lanes take turns.
inline Problem make_joined(const Problem& line, std::uint64_t points, std::uint64_t share,
                           bool turns) {
  std::uint64_t end = 0;
  for (const Buffer& b : line.buffers) end = std::max(end, b.birth + b.length + 1);
  Problem problem{.buffers = line.buffers, .lanes = {{.period = end}, {.period = end}}};
  std::mt19937_64 random(1);
  for (Buffer& buffer : problem.buffers) {
    const std::uint64_t turn = buffer.birth * points / end;
    buffer.lane = (turns ? turn * 2654435761 : random()) % 100 < share ? 1 : 0;
  }
  for (const std::uint32_t lane : {0u, 1u}) {
    for (std::uint64_t k = 0; k < points; ++k)
      problem.edges.push_back({.from_lane = lane,
                               .from_tick = end * k / points,
                               .to_lane = 1 - lane,
                               .to_tick = end * k / points});
    problem.edges.push_back(
        {.from_lane = lane, .from_tick = end, .to_lane = 1 - lane, .to_tick = 0, .delta = 1});
  }
  return problem;
}

}  // namespace berth::test
