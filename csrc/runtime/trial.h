#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace berth {

// Whether the plan or the pool alone changes fewer mappings of memory, counted in the same run:
// each change is a call or two of the driver. Where steps differ for ever, a plan may move pages in
// each of them where the pool alone would not, and the other way round; hits do not tell.
//
// Of eight steps those two count for nothing that changed most: a change of steps or of the plan
// has its own. What the pool changes is known from the steps before the plan. A plan that changes
// much more is set aside. After that, and where too few steps came before the plan, whoever serves
// goes on until steps like the last ones would have changed as much as some trials; then the other
// one serves for some steps, and who made fewer goes on. So trials cost a part of what is changed
// anyway, as in renting or buying skis (Karlin et al., Competitive snoopy caching, Algorithmica
// 1988). A plan that is set aside is tried after 256, 512, .. steps in any case: its steps may
// repeat now.
//
// O(1) a step.
class Trial {
 public:
  enum class Turn : std::uint8_t { kGoOn, kToPool, kToPlan };
  struct Step {
    std::uint64_t changes = 0;   // made in all until its end
    const void* plan = nullptr;  // which one serves; null: none
    bool hit = false;            // the plan served a part of it
    std::uint64_t handles = 0;   // in the plan's arena
    bool may_turn = false;       // the plan may be set aside now
  };

  // So many changes were made before.
  explicit Trial(std::uint64_t changes = 0) noexcept : changes_(changes) {}

  // A step ends. What is returned has to be done.
  Turn step_ended(const Step& step) noexcept;
  // All that lay idle went back to the device: what comes again is nobody's change.
  void trimmed() noexcept;
  // Whether the plan is set aside.
  [[nodiscard]] bool away() const noexcept { return away_; }

  // Steps that are counted, and steps after a turn or a new plan that are not: it has its own
  // changes.
  static constexpr std::size_t kCounted = 8, kSettling = 4;
  // So many more changes a step than the pool makes are worth the hits of a plan.
  static constexpr std::uint64_t kWorth = 16;

 private:
  // The last steps of one of the two.
  class Window {
   public:
    void add(std::uint64_t changes, bool hit) noexcept;
    [[nodiscard]] bool full() const noexcept { return count_ >= kCounted; }
    [[nodiscard]] bool hit() const noexcept;  // in most of them
    // The changes of the calm steps: of all that are kept but two.
    [[nodiscard]] std::uint64_t changes() const noexcept;

   private:
    struct Counted {
      std::uint64_t changes = 0;
      bool hit = false;
    };
    std::array<Counted, kCounted> steps_{};
    std::size_t count_ = 0;
  };

  [[nodiscard]] static bool pool_is_better(const Window& pool, const Window& plan) noexcept;
  [[nodiscard]] bool wants_trial(const Step& step) const noexcept;
  Turn turn(std::uint64_t changes) noexcept;

  bool away_ = false, trying_ = false, had_plan_ = false;
  std::uint64_t steps_ = 0;   // since the last turn, or since there is a plan
  std::size_t settling_ = 0;  // steps that another plan has still to settle, and one that counts
  const void* served_ = nullptr;  // the plan of the step before
  std::uint64_t changes_ = 0;     // until the step before
  std::uint64_t turned_at_ = 0;   // changes that were made until the last turn
  std::uint64_t cost_ = 0;        // of the last trial; 0: there was none
  unsigned returns_ = 0;          // of the plan, in vain
  Window pool_, plan_;
};

}  // namespace berth
