#pragma once

#include "csrc/place/fits/order_search.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/conflict_graph.h"
#include "csrc/place/problem/conflicts.h"
#include "csrc/place/stages/lane_packer.h"
#include "csrc/place/stages/search.h"
#include "csrc/place/stages/strip_search.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace berth::place {

struct StagedSettings {
  bool exact = true;
  std::uint64_t seed = 1;
  unsigned threads = 1;
  Bytes bound = 0;  // no mark is lower
};

// Searches where one strip cannot say what conflicts: forks, lanes that edges join, pins in one of
// several lanes. Lane after lane is placed by dives (LanePacker) around the bytes that the lanes
// before it take: in the ticks in which those may be alive, so that what edges prove is used.
//
// Waves in turn: attempts in other orders of lanes and paths, with noise; search in the strip that
// ends highest (StripSearch), all else staying; better orders for first fit on the conflicts
// themselves, where those can be written out.
class StagedSearch final : public Search {
 public:
  // Nothing where lanes or paths are too many.
  [[nodiscard]] static std::unique_ptr<StagedSearch> make(const Conflicts& conflicts,
                                                          const StagedSettings& settings);

  // One attempt, and what is known where that is better.
  void start(const Packing* known, const std::string& engine) override;
  void next_wave(std::uint64_t iterations, const Budget& budget,
                 const std::function<void()>& idle) override;
  // The first attempts.
  [[nodiscard]] std::uint32_t early_waves() const noexcept override { return 1; }
  // There is always another order of lanes and paths.
  [[nodiscard]] bool exhausted() const override { return false; }

  void offer(const Packing& packing, std::span<const Index> order,
             const std::string& engine) override;
  [[nodiscard]] bool improves_orders() const noexcept override { return false; }
  // Nothing: lanes are placed around each other as it is.
  [[nodiscard]] std::vector<Bytes> keys_to_interleave() const override { return {}; }

  // Looks for a heavy clique of the conflicts.
  void raise_bound() override;
  [[nodiscard]] Bytes bound() const override { return settings_.bound; }

  [[nodiscard]] Packing packing() const override { return best_; }
  [[nodiscard]] const std::string& engine() const noexcept override { return engine_; }
  [[nodiscard]] std::uint64_t iterations() const noexcept override { return iterations_; }

 private:
  StagedSearch(const Conflicts& conflicts, const StagedSettings& settings);
  [[nodiscard]] std::optional<std::vector<Bytes>> attempt(std::uint32_t number,
                                                          const Budget* budget) const;
  [[nodiscard]] std::vector<Arc> taken_from(std::size_t lane, const std::vector<bool>& placed,
                                            const std::vector<Bytes>& offsets) const;
  [[nodiscard]] Bytes mark_of(const std::vector<Bytes>& offsets) const;
  void attempts(std::uint64_t iterations, const Budget& budget, const std::function<void()>& idle);
  void refine(std::uint64_t iterations, const Budget& budget, const std::function<void()>& idle);
  void orders(std::uint64_t iterations, const Budget& budget, const std::function<void()>& idle);
  void set_part();
  [[nodiscard]] const ConflictGraph* graph();
  void take(std::vector<Bytes> offsets, Bytes mark, const std::string& engine);

  struct Lane {
    std::uint32_t lane;
    LanePacker packer;
  };
  // A strip of the incumbent that ends at its mark, all else staying.
  struct Part {
    std::unique_ptr<StripSearch> search;
    std::vector<Index> buffers;
    std::uint32_t waves = 0;
  };
  const Conflicts& conflicts_;
  StagedSettings settings_;
  std::vector<Lane> lanes_;  // heaviest first
  std::optional<ConflictGraph> graph_;
  bool graph_known_ = false;
  std::optional<Part> part_;
  bool part_known_ = false;
  std::vector<Index> chain_order_;  // of the incumbent, and what chains made of it
  std::vector<Bytes> chain_offsets_;
  Packing best_;
  std::string engine_;
  std::uint32_t wave_ = 0;
  std::uint32_t attempt_ = 0;
  std::uint64_t iterations_ = 0;
};

}  // namespace berth::place
