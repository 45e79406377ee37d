#include "csrc/core/range_tree.h"

#include "tests/catch.h"

#include <memory>
#include <random>
#include <set>
#include <vector>

using namespace berth;

namespace {

std::set<const RangeNode*> touching(const RangeTree& tree, ByteRange bytes) {
  std::set<const RangeNode*> found;
  Bytes before = 0;
  (void)tree.visit_touching(bytes, [&](const RangeNode& node) {
    CHECK(node.bytes.first >= before);
    before = node.bytes.first;
    found.insert(&node);
    return true;
  });
  return found;
}

}  // namespace

TEST_CASE("A tree of ranges finds those that touch, as a look at each does", "[range_tree]") {
  std::mt19937 random(7);
  RangeTree tree;
  std::vector<std::unique_ptr<RangeNode>> nodes;
  const auto any = [&] {
    const Bytes first = random() % 1000;
    return ByteRange{first, first + 1 + random() % (random() % 10 == 0 ? 500 : 20)};
  };
  for (int i = 0; i < 20000; ++i) {
    if (nodes.size() < 100 || random() % 2 == 0) {
      nodes.push_back(std::make_unique<RangeNode>(any()));
      tree.insert(*nodes.back());
    } else {
      std::swap(nodes[random() % nodes.size()], nodes.back());
      tree.erase(*nodes.back());
      nodes.pop_back();
    }
    REQUIRE(tree.size() == nodes.size());
    const ByteRange bytes = any();
    std::set<const RangeNode*> expected;
    for (const auto& node : nodes)
      if (node->bytes.touches(bytes)) expected.insert(node.get());
    REQUIRE(touching(tree, bytes) == expected);
  }
  for (const auto& node : nodes) tree.erase(*node);
  CHECK(tree.empty());
}

TEST_CASE("Equal ranges are kept apart", "[range_tree]") {
  RangeTree tree;
  RangeNode a({0, 64}), b({0, 64}), c({0, 64});
  tree.insert(a);
  tree.insert(b);
  tree.insert(c);
  tree.erase(b);
  CHECK(touching(tree, {63, 64}) == std::set<const RangeNode*>{&a, &c});
  CHECK(touching(tree, {64, 65}).empty());
  bool first = true;
  CHECK_FALSE(
      tree.visit_touching({0, 1}, [&](const RangeNode&) { return !std::exchange(first, true); }));
}
