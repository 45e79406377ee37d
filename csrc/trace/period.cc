#include "csrc/trace/period.h"

#include "csrc/core/checksum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

namespace berth::trace {
namespace {

constexpr std::size_t kCandidatesAScale = 4;

// Hashes of all windows of a sequence, each in O(1) after O(n): polynomials modulo 2^61 - 1.
class WindowHashes {
 public:
  explicit WindowHashes(std::span<const Bytes> sizes)
      : prefix_(sizes.size() + 1, 0), power_(sizes.size() + 1, 1) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      prefix_[i + 1] = reduce(multiply(prefix_[i], kBase) + hash_combine(0, sizes[i]) % kModulus);
      power_[i + 1] = multiply(power_[i], kBase);
    }
  }
  // Of [first, first + length).
  [[nodiscard]] std::uint64_t at(std::size_t first, std::size_t length) const noexcept {
    return reduce(prefix_[first + length] + kModulus - multiply(prefix_[first], power_[length]));
  }

 private:
  static constexpr std::uint64_t kModulus = (std::uint64_t{1} << 61) - 1;
  static constexpr std::uint64_t kBase = 0x1E3779B97F4A7C15;  // any number below the modulus

  static std::uint64_t reduce(std::uint64_t x) noexcept {
    x = (x & kModulus) + (x >> 61);
    return x >= kModulus ? x - kModulus : x;
  }
  static std::uint64_t multiply(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{a} * b;
    return reduce(static_cast<std::uint64_t>(product & kModulus) +
                  static_cast<std::uint64_t>(product >> 61));
  }

  std::vector<std::uint64_t> prefix_, power_;
};

bool is_set(const std::atomic<bool>* flag) noexcept {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

// Distances that windows of some length recur at, most frequent first for each length.
std::vector<std::uint32_t> candidate_periods(std::span<const Bytes> sizes,
                                             const std::atomic<bool>* cancel) {
  const std::size_t n = sizes.size();
  const WindowHashes hashes(sizes);
  struct Last {
    std::uint64_t hash = 0;
    std::uint32_t position = 0;  // + 1; 0 is empty
  };
  std::vector<Last> table(std::bit_ceil(2 * n));
  std::vector<std::uint32_t> frequency(n, 0);
  std::vector<std::uint32_t> seen, candidates;
  for (std::size_t length = 1; 2 * length <= n && !is_set(cancel); length *= 2) {
    std::fill(table.begin(), table.end(), Last{});
    for (std::size_t i = 0; i + length <= n; ++i) {
      const std::uint64_t hash = hashes.at(i, length);
      std::size_t cell = hash_combine(1, hash) & (table.size() - 1);
      while (table[cell].position != 0 && table[cell].hash != hash)
        cell = (cell + 1) & (table.size() - 1);
      if (table[cell].position != 0) {
        const auto distance = static_cast<std::uint32_t>(i + 1 - table[cell].position);
        if (frequency[distance]++ == 0) seen.push_back(distance);
      }
      table[cell] = {hash, static_cast<std::uint32_t>(i + 1)};
    }
    const std::size_t kept = std::min(kCandidatesAScale, seen.size());
    std::partial_sort(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(kept), seen.end(),
                      [&](std::uint32_t a, std::uint32_t b) {
                        return frequency[a] != frequency[b] ? frequency[a] > frequency[b] : a < b;
                      });
    candidates.insert(candidates.end(), seen.begin(),
                      seen.begin() + static_cast<std::ptrdiff_t>(kept));
    for (const std::uint32_t distance : seen) frequency[distance] = 0;
    seen.clear();
  }
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  return candidates;
}

struct Spread {
  Bytes low = ~Bytes{0}, high = 0;
  void add(Bytes x) noexcept {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  [[nodiscard]] Bytes width() const noexcept { return high < low ? 0 : high - low; }
};

Spread byte_spread(std::span<const LiveLoad> live) {
  Spread spread;
  for (const LiveLoad& load : live) spread.add(load.bytes);
  return spread;
}

// Whether what is alive returns with each period: it grows or shrinks by less than a part of its
// swing within one. Signed, so that late frees, which come and go, cancel.
bool is_steady(std::span<const LiveLoad> live, const PeriodicRun& run) {
  constexpr double kPart = 32, kLeakedBlocks = 2;
  const std::size_t periods = (run.last - run.first) / run.period;
  double swing_bytes = 0, swing_blocks = 0;
  for (std::size_t p = 0; p < periods; ++p) {
    Spread bytes, blocks;
    for (const LiveLoad& load : live.subspan(run.first + p * run.period, run.period)) {
      bytes.add(load.bytes);
      blocks.add(load.blocks);
    }
    swing_bytes += static_cast<double>(bytes.width());
    swing_blocks += static_cast<double>(blocks.width());
  }
  double growth_bytes = 0, growth_blocks = 0;  // summed over the phases of a period
  for (std::size_t i = run.first; i < run.first + run.period; ++i) {
    const LiveLoad& before = live[i];
    const LiveLoad& after = live[i + (periods - 1) * run.period];
    growth_bytes += static_cast<double>(after.bytes) - static_cast<double>(before.bytes);
    growth_blocks += static_cast<double>(after.blocks) - static_cast<double>(before.blocks);
  }
  const auto compared = static_cast<double>((periods - 1) * run.period);
  const auto swings = static_cast<double>(periods);
  return std::abs(growth_bytes) / compared <= swing_bytes / swings / kPart &&
         std::abs(growth_blocks) / compared <= kLeakedBlocks + swing_blocks / swings / kPart;
}

struct Candidate {
  std::uint32_t period = 0;
  std::vector<PeriodicRun> runs;
  std::size_t covered = 0;  // requests
  std::size_t longest = 0;  // run

  // Whether it explains the sequence clearly better than one with a smaller period: more of it, or
  // as much in one piece of what the other has in many.
  [[nodiscard]] bool beats(const Candidate& smaller) const noexcept {
    return 19 * covered > 20 * smaller.covered ||
           (20 * covered > 19 * smaller.covered && longest >= 2 * smaller.longest);
  }
};

Candidate evaluate(std::span<const Bytes> sizes, std::span<const LiveLoad> live,
                   std::uint32_t period, std::uint32_t min_repeats) {
  Candidate candidate{.period = period, .runs = {}, .covered = 0, .longest = 0};
  std::size_t first = 0;
  for (std::size_t i = period; i <= sizes.size(); ++i) {
    if (i < sizes.size() && sizes[i] == sizes[i - period]) continue;
    const PeriodicRun run{period, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(i)};
    first = i - period + 1;
    if (run.last - run.first < std::uint64_t{min_repeats} * period || !is_steady(live, run))
      continue;
    const std::size_t before = candidate.runs.empty() ? 0 : candidate.runs.back().last;
    candidate.covered += run.last - std::max<std::size_t>(run.first, before);
    candidate.longest = std::max<std::size_t>(candidate.longest, run.last - run.first);
    candidate.runs.push_back(run);
  }
  return candidate;
}

bool is_substantial(const Candidate& candidate, std::span<const LiveLoad> live, const Spread& all) {
  const std::size_t n = live.size() - 1;
  if (candidate.runs.empty()) return false;
  if (2 * candidate.covered >= n) return true;
  const PeriodicRun& first = candidate.runs.front();
  const Spread own = byte_spread(live.subspan(first.first, first.period));
  return 2 * candidate.covered >= n - first.first && 8 * candidate.covered >= n &&
         10 * static_cast<double>(own.width()) >= static_cast<double>(all.width());
}

}  // namespace

std::optional<PeriodicRun> find_period(std::span<const Bytes> sizes, std::span<const LiveLoad> live,
                                       std::uint32_t min_repeats, const std::atomic<bool>* cancel) {
  const Spread all = byte_spread(live);
  std::optional<Candidate> best;
  for (const std::uint32_t period : candidate_periods(sizes, cancel)) {
    if (is_set(cancel)) return std::nullopt;
    if (std::uint64_t{min_repeats} * period > sizes.size()) break;
    Candidate candidate = evaluate(sizes, live, period, min_repeats);
    if (!is_substantial(candidate, live, all)) continue;
    // Candidates ascend.
    if (!best || candidate.beats(*best)) best = std::move(candidate);
  }
  if (!best) return std::nullopt;
  // The latest that is not short beside the longest.
  return *std::find_if(best->runs.rbegin(), best->runs.rend(), [&](const PeriodicRun& run) {
    return 2 * std::uint64_t{run.last - run.first} >= best->longest;
  });
}

}  // namespace berth::trace
