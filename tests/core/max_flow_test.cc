#include "csrc/core/max_flow.h"

#include "tests/catch.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

using namespace berth;

namespace {

struct Arc {
  MaxFlow::Vertex from, to;
  Bytes capacity;
};

void fill(MaxFlow& flow, MaxFlow::Vertex vertices, const std::vector<Arc>& arcs) {
  flow.clear();
  for (MaxFlow::Vertex v = 2; v < vertices; ++v) (void)flow.add_vertex();
  for (const Arc& arc : arcs) flow.add_arc(arc.from, arc.to, arc.capacity);
}

// Of the arcs that leave a side; `side` has a bit a vertex.
Bytes cut_of(const std::vector<Arc>& arcs, unsigned side) {
  Bytes cut = 0;
  for (const Arc& arc : arcs)
    if ((side >> arc.from & 1) != 0 && (side >> arc.to & 1) == 0) cut += arc.capacity;
  return cut;
}

}  // namespace

TEST_CASE("A maximum flow is found whatever the order of arcs", "[flow]") {
  // Two paths that share nothing but a bridge which the first shortest path had better not take.
  const std::vector<Arc> arcs = {{0, 2, 10}, {0, 3, 10}, {2, 3, 2},  {2, 4, 4}, {2, 5, 8},
                                 {3, 5, 9},  {5, 4, 6},  {4, 1, 10}, {5, 1, 10}};
  MaxFlow flow;
  fill(flow, 6, arcs);
  REQUIRE(flow.run() == 19);
  fill(flow, 6, {arcs.rbegin(), arcs.rend()});
  REQUIRE(flow.run() == 19);
}

TEST_CASE("A maximum flow that takes more work than it may is none", "[flow]") {
  MaxFlow flow;
  fill(flow, 2, {{0, 1, 1}});
  REQUIRE_FALSE(flow.run(0));
  fill(flow, 2, {{0, 1, 1}});
  REQUIRE(flow.run(1000) == Bytes{1});
}

TEST_CASE("The least and the largest side of a minimum cut are those of all cuts",
          "[flow][property]") {
  constexpr unsigned kSeed = 7;
  CAPTURE(kSeed);
  std::mt19937 random(kSeed);
  MaxFlow flow;
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const auto vertices = static_cast<MaxFlow::Vertex>(2 + random() % 6);
    const auto any = [&] { return static_cast<MaxFlow::Vertex>(random() % vertices); };
    std::vector<Arc> arcs;
    for (unsigned k = random() % 20; k != 0; --k) {
      const Arc arc{any(), any(), 1 + random() % 9};
      if (arc.from != arc.to && arc.to != MaxFlow::kSource && arc.from != MaxFlow::kSink)
        arcs.push_back(arc);
    }
    // Sides hold the source, bit 0, and not the sink, bit 1.
    Bytes least = std::numeric_limits<Bytes>::max();
    for (unsigned side = 1; side < 1u << vertices; side += 4)
      least = std::min(least, cut_of(arcs, side));
    unsigned inner = ~0u, outer = 0;
    for (unsigned side = 1; side < 1u << vertices; side += 4) {
      if (cut_of(arcs, side) != least) continue;
      inner &= side;
      outer |= side;
    }
    fill(flow, vertices, arcs);
    REQUIRE(flow.run() == least);
    const std::vector<bool> reach_sink = flow.reach_sink();
    for (MaxFlow::Vertex v = 0; v < vertices; ++v) {
      REQUIRE(flow.reached(v) == ((inner >> v & 1) != 0));
      REQUIRE(reach_sink[v] == ((outer >> v & 1) == 0));
    }
  }
}
