#include "csrc/place/exact/exact_search.h"

#include "csrc/core/checksum.h"

#include <algorithm>

namespace berth::place {
namespace {

constexpr Rank kRankOrders[] = {Rank::kWAT, Rank::kTAW, Rank::kTWA};
constexpr double kExactNoise[] = {0, 0, 0, 0.1};  // of every third round

}  // namespace

ExactSearch::ExactSearch(const Strip& strip, Bytes capacity, std::uint64_t seed,
                         const ExactRules& rules)
    : strip_(strip),
      capacity_(capacity),
      seed_(seed),
      parts_(make_exact_parts(strip, capacity, rules)) {
  if (!within_reach()) return;
  for (const ExactPart& part : parts_.parts) {
    Search search;
    search.tree = std::make_unique<ExactTree>(part, rules);
    searches_.push_back(std::move(search));
  }
}

void ExactSearch::start_round(Search& search, std::size_t items) {
  const std::uint32_t turn = search.round / std::size(kRankOrders);
  search.left = std::uint64_t{2 * items} << std::min<std::uint32_t>(turn, 40);
  search.tree->start(kRankOrders[search.round % std::size(kRankOrders)],
                     kExactNoise[turn % std::size(kExactNoise)], hash_combine(seed_, search.round));
  ++search.round;
}

Answer ExactSearch::run(std::uint64_t& nodes, const Budget* budget) {
  if (!within_reach()) return Answer::kOpen;
  // Parts in turn, a round each.
  while (
      !std::all_of(searches_.begin(), searches_.end(), [](const Search& s) { return s.solved; })) {
    if (nodes == 0 || (budget != nullptr && budget->expired())) return Answer::kOpen;
    Search& search = searches_[current_];
    if (!search.solved) {
      if (search.left == 0) start_round(search, parts_.parts[current_].items.size());
      const std::uint64_t given = std::min(nodes, search.left);
      std::uint64_t left = given;
      const Answer answer = search.tree->run(left, budget);
      nodes -= given - left;
      search.left -= given - left;
      if (answer == Answer::kRefuted) return answer;
      search.solved = answer == Answer::kFits;
      if (!search.solved && search.left > 0) continue;
    }
    current_ = (current_ + 1) % searches_.size();
  }
  return Answer::kFits;
}

std::vector<Bytes> ExactSearch::offsets() const {
  std::vector<Bytes> offsets(strip_.items.size());
  for (std::size_t p = 0; p < searches_.size(); ++p) {
    const ExactPart& part = parts_.parts[p];
    for (std::size_t i = 0; i < part.items.size(); ++i) {
      offsets[part.items[i].item] =
          parts_.origin + static_cast<Bytes>(searches_[p].tree->offsets()[i]) * parts_.unit;
    }
  }
  put_back_peeled(strip_, parts_, offsets);
  return offsets;
}

}  // namespace berth::place
