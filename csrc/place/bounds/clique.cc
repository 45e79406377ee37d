#include "csrc/place/bounds/clique.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace berth::place {
namespace {

class CliqueSearch {
 public:
  CliqueSearch(const Conflicts& conflicts, const ConflictGraph& graph, std::vector<Index> members,
               Bytes known, std::uint64_t nodes)
      : best_(known), nodes_(nodes) {
    // The heaviest first.
    std::sort(members.begin(), members.end(), [&](Index i, Index j) {
      return conflicts.bytes(i) != conflicts.bytes(j) ? conflicts.bytes(i) > conflicts.bytes(j)
                                                      : i < j;
    });
    words_ = (members.size() + 63) / 64;
    std::vector<std::uint32_t> numbers(conflicts.size(), ~std::uint32_t{0});
    for (std::uint32_t k = 0; k < members.size(); ++k) {
      numbers[members[k]] = k;
      weights_.push_back(conflicts.bytes(members[k]));
    }
    rows_.assign(members.size() * words_, 0);
    for (std::uint32_t k = 0; k < members.size(); ++k) {
      for (const Index j : graph.of(members[k])) {
        if (numbers[j] != ~std::uint32_t{0}) rows_[k * words_ + numbers[j] / 64] |= bit(numbers[j]);
      }
    }
  }

  Bytes run() {
    std::vector<std::uint64_t> all(words_, 0);
    for (std::size_t k = 0; k < weights_.size(); ++k) all[k / 64] |= bit(k);
    extend(all, 0);
    return best_;
  }

 private:
  static std::uint64_t bit(std::size_t k) { return std::uint64_t{1} << k % 64; }

  // What the candidates may add at most: they fall into sets of which each pair is apart, and of
  // each set one can be taken. `bounds`: up to and with each candidate, in the order of `order`.
  void colour(const std::vector<std::uint64_t>& candidates, std::vector<std::uint32_t>& order,
              std::vector<Bytes>& bounds) const {
    std::vector<std::uint64_t> left = candidates, open(words_);
    Bytes sum = 0;
    for (;;) {
      open = left;
      Bytes most = 0;
      for (std::size_t w = 0; w < words_;) {
        if (open[w] == 0) {
          ++w;
          continue;
        }
        const std::size_t k = w * 64 + static_cast<std::size_t>(std::countr_zero(open[w]));
        most = std::max(most, weights_[k]);
        left[w] &= ~bit(k);
        open[w] &= ~bit(k);
        for (std::size_t v = w; v < words_; ++v) open[v] &= ~rows_[k * words_ + v];
        order.push_back(static_cast<std::uint32_t>(k));
        bounds.push_back(sum + most);
      }
      if (most == 0) return;
      sum += most;
    }
  }

  void extend(std::vector<std::uint64_t>& candidates, Bytes weight) {
    best_ = std::max(best_, weight);
    if (nodes_ == 0) return;
    --nodes_;
    std::vector<std::uint32_t> order;
    std::vector<Bytes> bounds;
    colour(candidates, order, bounds);
    std::vector<std::uint64_t> next(words_);
    for (std::size_t p = order.size(); p-- > 0;) {
      if (weight + bounds[p] <= best_ || nodes_ == 0) return;
      const std::uint32_t k = order[p];
      for (std::size_t w = 0; w < words_; ++w) next[w] = candidates[w] & rows_[k * words_ + w];
      extend(next, weight + weights_[k]);
      candidates[k / 64] &= ~bit(k);
    }
  }

  Bytes best_;
  std::uint64_t nodes_;
  std::size_t words_;
  std::vector<Bytes> weights_;
  std::vector<std::uint64_t> rows_;
};

}  // namespace

Bytes heavy_clique(const Conflicts& conflicts, const ConflictGraph& graph, Bytes known,
                   std::uint64_t nodes) {
  // Sums with all neighbours; what falls out takes from its neighbours' sums.
  std::vector<Bytes> sums(conflicts.size());
  std::vector<Index> out;
  std::vector<bool> is_out(conflicts.size(), false);
  for (Index i = 0; i < conflicts.size(); ++i) {
    sums[i] = conflicts.bytes(i);
    for (const Index j : graph.of(i)) sums[i] += conflicts.bytes(j);
    is_out[i] = sums[i] <= known;
    if (is_out[i]) out.push_back(i);
  }
  for (std::size_t k = 0; k < out.size(); ++k) {
    for (const Index j : graph.of(out[k])) {
      sums[j] -= conflicts.bytes(out[k]);
      if (is_out[j] || sums[j] > known) continue;
      is_out[j] = true;
      out.push_back(j);
    }
  }
  std::vector<Index> members;
  for (Index i = 0; i < conflicts.size(); ++i) {
    if (!is_out[i]) members.push_back(i);
  }
  if (members.empty() || members.size() > kMaxCliqueBuffers) return known;
  return CliqueSearch(conflicts, graph, std::move(members), known, nodes).run();
}

}  // namespace berth::place
