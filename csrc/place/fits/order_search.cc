#include "csrc/place/fits/order_search.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

namespace berth::place {
namespace {

// Where the target lies between the bound and the mark.
constexpr double kLowest = 0.25, kHighest = 0.75;
// How far an item moves up at most, as a share of all; halved up to so many times.
constexpr double kFurthest = 0.3;
constexpr unsigned kHalvings = 7;

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

}  // namespace

std::vector<std::uint32_t> order_of(std::span<const Bytes> offsets) {
  std::vector<std::uint32_t> order(offsets.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return offsets[a] < offsets[b]; });
  return order;
}

OrderSearch::OrderSearch(const Strip& strip) : base_(strip.base) {
  sizes_.reserve(strip.items.size());
  for (const Strip::Item& item : strip.items) sizes_.push_back(item.size);
  first_fit_ = [fit = std::make_shared<StripFit>(strip)](std::span<const std::uint32_t> order,
                                                         Bytes below, const Budget* budget) {
    return fit->run(order, Fit::kFirst, below, budget);
  };
}

OrderSearch::Chain OrderSearch::run(std::span<const std::uint32_t> order,
                                    std::span<const Bytes> offsets, Bytes bound, std::uint64_t seed,
                                    std::uint64_t runs, const Budget* budget) {
  std::mt19937_64 random(seed);
  Chain chain;
  chain.order.assign(order.begin(), order.end());
  std::vector<Bytes> current(offsets.begin(), offsets.end());
  const auto end_of = [&](std::uint32_t i) { return current[i] + sizes_[i]; };
  for (std::uint32_t i = 0; i < current.size(); ++i) chain.mark = std::max(chain.mark, end_of(i));
  std::vector<std::pair<double, std::uint32_t>> keys(order.size());
  std::vector<std::uint32_t> next(order.size());
  while (chain.runs < runs && chain.mark > bound) {
    const double share = kLowest + (kHighest - kLowest) * uniform(random);
    const Bytes target =
        bound + static_cast<Bytes>(static_cast<double>(chain.mark - bound) * share);
    const double way = kFurthest * static_cast<double>(order.size()) /
                       static_cast<double>(1u << random() % kHalvings);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      keys[k] = {static_cast<double>(k), chain.order[k]};
      if (end_of(chain.order[k]) <= target || random() % 4 == 0) continue;
      const double u = uniform(random);
      keys[k].first -= 1 + way * u * u;
    }
    std::stable_sort(keys.begin(), keys.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t k = 0; k < keys.size(); ++k) next[k] = keys[k].second;
    ++chain.runs;
    auto found = first_fit_(next, chain.mark + 1, budget);
    if (!found) {
      if (budget != nullptr && budget->expired()) break;
      continue;
    }
    current = std::move(*found);
    chain.order = next;
    chain.offsets = current;
    chain.mark = 0;
    for (std::uint32_t i = 0; i < current.size(); ++i) chain.mark = std::max(chain.mark, end_of(i));
    chain.mark = std::max(chain.mark, base_);
  }
  return chain;
}

}  // namespace berth::place
