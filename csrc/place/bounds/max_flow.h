#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace berth::place {

// A maximum flow by blocking flows along shortest paths (Dinic 1970).
class MaxFlow {
 public:
  using Value = std::int64_t;
  static constexpr Value kInfinite = std::int64_t{1} << 62;

  explicit MaxFlow(std::uint32_t nodes) : heads_(nodes, kNone) {}

  void add_edge(std::uint32_t from, std::uint32_t to, Value capacity);
  // Nothing where it took more than `work` looks at edges.
  [[nodiscard]] std::optional<Value> run(std::uint32_t source, std::uint32_t sink,
                                         std::uint64_t work);

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Edge {
    std::uint32_t to, next;
    Value left;
  };
  [[nodiscard]] bool set_levels(std::uint32_t source, std::uint32_t sink);
  [[nodiscard]] Value push_one_path(std::uint32_t source, std::uint32_t sink);

  std::vector<std::uint32_t> heads_;
  std::vector<Edge> edges_;  // each beside its reverse
  std::vector<std::uint32_t> levels_, current_, queue_, path_;
  std::uint64_t looks_ = 0;
};

}  // namespace berth::place
