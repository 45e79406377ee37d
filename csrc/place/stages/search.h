#pragma once

#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/packing.h"
#include "csrc/place/problem/problem.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace berth::place {

// A search for ever better placements of one problem, which Portfolio drives without knowing which
// one it is: start() once, then wave after wave until the mark is at the bound, the budget has
// ended or nothing is left to try.
//
// A wave is a fixed list of tasks that all see the incumbent from before it, and its best is the
// least (mark, task number): so threads decide nothing but the time. One thread calls it; what
// threads it has of its own run inside a call.
class Search {
 public:
  virtual ~Search() = default;

  // Makes something legal, whatever the budget: what packing() gives from then on. `known`, of that
  // engine, is legal too and was there before; may be null.
  virtual void start(const Packing* known, const std::string& engine) = 0;
  // Runs the next wave within `iterations`, which are dives, first fits and search nodes. `idle` is
  // called between tasks, by this thread. An expired budget leaves the best so far.
  virtual void next_wave(std::uint64_t iterations, const Budget& budget,
                         const std::function<void()>& idle) = 0;
  // Waves that are worth more than first fits, and come before those.
  [[nodiscard]] virtual std::uint32_t early_waves() const noexcept = 0;
  // Nothing is left to try, whatever the budget.
  [[nodiscard]] virtual bool exhausted() const = 0;

  // Takes over what others made, where it is better. `order`: first fit in it gives this packing;
  // empty where none is known to.
  virtual void offer(const Packing& packing, std::span<const Index> order,
                     const std::string& engine) = 0;
  // Whether offer() has use for every order, however high its first fit ends.
  [[nodiscard]] virtual bool improves_orders() const noexcept = 0;
  // By which first fit, least first, moves together what this search kept apart; empty: by nothing.
  [[nodiscard]] virtual std::vector<Bytes> keys_to_interleave() const = 0;

  // Looks for a higher bound, at some cost.
  virtual void raise_bound() = 0;
  // No placement of the problem has a lower mark, or one that is as low is not asked for.
  [[nodiscard]] virtual Bytes bound() const = 0;

  [[nodiscard]] virtual Packing packing() const = 0;  // the best
  [[nodiscard]] virtual const std::string& engine() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t iterations() const noexcept = 0;  // so far
};

}  // namespace berth::place
