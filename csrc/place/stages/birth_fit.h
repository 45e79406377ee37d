#pragma once

#include "csrc/place/fits/first_fit.h"
#include "csrc/place/stages/search.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace berth::place {

// Where nothing searches, by the caller's choice or because lanes and paths are too many: one first
// fit in the order of birth, unless something legal is known. Refers to what it is given.
class BirthFit final : public Search {
 public:
  BirthFit(const Problem& problem, FirstFit& first_fit)
      : problem_(problem), first_fit_(first_fit) {}

  void start(const Packing* known, const std::string& engine) override;
  void next_wave(std::uint64_t, const Budget&, const std::function<void()>&) override {}
  [[nodiscard]] std::uint32_t early_waves() const noexcept override { return 0; }
  [[nodiscard]] bool exhausted() const override { return true; }
  void offer(const Packing&, std::span<const Index>, const std::string&) override {}
  [[nodiscard]] bool improves_orders() const noexcept override { return false; }
  [[nodiscard]] std::vector<Bytes> keys_to_interleave() const override { return {}; }
  void raise_bound() override {}
  [[nodiscard]] Bytes bound() const override { return 0; }
  [[nodiscard]] Packing packing() const override { return best_; }
  [[nodiscard]] const std::string& engine() const noexcept override { return engine_; }
  [[nodiscard]] std::uint64_t iterations() const noexcept override { return iterations_; }

 private:
  const Problem& problem_;
  FirstFit& first_fit_;
  Packing best_;
  std::string engine_;
  std::uint64_t iterations_ = 0;
};

}  // namespace berth::place
