#include "csrc/plan/end_tree.h"
#include "csrc/plan/structure.h"
#include "csrc/plan/sweep.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

namespace berth {
namespace {

using Violation = std::optional<std::string>;

// The tick of the next step at which a slot ends that wraps around into it, else 0.
std::uint64_t wrapped_end(const Sequence& sequence, const Slot& slot) noexcept {
  const std::uint64_t end = std::uint64_t{slot.birth} + slot.length;
  return end > sequence.period ? end - sequence.period : 0;
}

EndTree tree_of(const Sequence& sequence, Bytes alignment) {
  std::vector<Bytes> boundaries;
  boundaries.reserve(2 * sequence.slots.size());
  for (const Slot& slot : sequence.slots) {
    if (!slot.planned()) continue;
    boundaries.push_back(slot.offset);
    boundaries.push_back(slot.offset + slot.size);
  }
  return EndTree(boundaries, alignment);
}

// A walk over all paths of all lanes, births in order. Each sequence on the present path has a tree
// of its own slots, so that to go back to a fork is to drop trees. What wraps around is in the
// trees from the start: the root's in its own, that of branches, which any path may follow, in one
// more.
class LaneSweep {
 public:
  explicit LaneSweep(const Plan& plan) : plan_(plan), branches_(plan.sequences.size()) {
    std::uint32_t first = 0;
    for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
      first_slots_.push_back(first);
      first += static_cast<std::uint32_t>(plan.sequences[s].slots.size());
      if (plan.sequences[s].parent >= 0) {
        branches_[static_cast<std::size_t>(plan.sequences[s].parent)].push_back(s);
      }
    }
    for (std::vector<std::uint32_t>& branches : branches_) {
      std::stable_sort(branches.begin(), branches.end(), [&](std::uint32_t a, std::uint32_t b) {
        return plan.sequences[a].fork < plan.sequences[b].fork;
      });
    }
  }

  Violation run() {
    for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
      if (plan_.sequences[s].parent >= 0) continue;
      if (!branches_[s].empty()) trees_.push_back(wrapped_branches(plan_.sequences[s].lane));
      if (Violation bad = sweep(s)) return bad;
      trees_.clear();
    }
    return std::nullopt;
  }

 private:
  EndTree wrapped_branches(std::uint32_t lane) const {
    std::vector<std::pair<ByteRange, EndTree::Value>> wrapped;
    std::vector<Bytes> boundaries;
    for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
      const Sequence& sequence = plan_.sequences[s];
      if (sequence.lane != lane || sequence.parent < 0) continue;
      for (std::uint32_t k = 0; k < sequence.slots.size(); ++k) {
        const Slot& slot = sequence.slots[k];
        const std::uint64_t end = wrapped_end(sequence, slot);
        if (!slot.planned() || end == 0) continue;
        wrapped.emplace_back(bytes_of(slot), EndTree::value(end, first_slots_[s] + k));
        boundaries.push_back(slot.offset);
        boundaries.push_back(slot.offset + slot.size);
      }
    }
    EndTree tree(boundaries, plan_.alignment);
    for (const auto& [range, end] : wrapped) tree.raise(tree.own_span(range), end);
    return tree;
  }

  // Recursion is as deep as the trie, whose depth is capped.
  Violation sweep(std::uint32_t s) {
    const Sequence& sequence = plan_.sequences[s];
    const std::size_t level = trees_.size();
    trees_.push_back(tree_of(sequence, plan_.alignment));
    if (sequence.parent < 0) {
      for (std::uint32_t k = 0; k < sequence.slots.size(); ++k) {
        const Slot& slot = sequence.slots[k];
        const std::uint64_t end = wrapped_end(sequence, slot);
        if (!slot.planned() || end == 0) continue;
        trees_[level].raise(trees_[level].own_span(bytes_of(slot)),
                            EndTree::value(end, first_slots_[s] + k));
      }
    }
    auto branch = branches_[s].begin();
    for (std::uint32_t k = 0; k < sequence.slots.size(); ++k) {
      for (; branch != branches_[s].end() && plan_.sequences[*branch].fork == sequence.fork + k;
           ++branch) {
        if (Violation bad = sweep(*branch)) return bad;
      }
      const Slot& slot = sequence.slots[k];
      if (!slot.planned()) continue;
      const ByteRange bytes = bytes_of(slot);
      for (std::size_t above = 0; above < level; ++above) {
        const EndTree::Value latest = trees_[above].max(trees_[above].span(bytes));
        if (EndTree::end_of(latest) > slot.birth) return overlap(s, k, latest);
      }
      EndTree& own = trees_[level];
      const EndTree::Span span = own.own_span(bytes);
      const EndTree::Value latest = own.max(span);
      if (EndTree::end_of(latest) > slot.birth) return overlap(s, k, latest);
      own.raise(span, EndTree::value(std::uint64_t{slot.birth} + slot.length, first_slots_[s] + k));
    }
    for (; branch != branches_[s].end(); ++branch) {
      if (Violation bad = sweep(*branch)) return bad;
    }
    trees_.pop_back();
    return std::nullopt;
  }

  std::string overlap(std::uint32_t sequence, std::uint32_t slot, EndTree::Value other) const {
    const std::uint32_t index = EndTree::slot_of(other);
    const auto above = std::upper_bound(first_slots_.begin(), first_slots_.end(), index);
    const auto owner = static_cast<std::uint32_t>(above - first_slots_.begin()) - 1;
    return fmt::format("{} and {} share bytes and live together",
                       slot_text(plan_, owner, index - first_slots_[owner]),
                       slot_text(plan_, sequence, slot));
  }

  const Plan& plan_;
  std::vector<std::uint32_t> first_slots_;
  std::vector<std::vector<std::uint32_t>> branches_;  // of each sequence, by fork
  std::vector<EndTree> trees_;
};

}  // namespace

std::optional<std::string> lane_violation(const Plan& plan) { return LaneSweep(plan).run(); }

std::string slot_text(const Plan& plan, std::uint32_t sequence, std::size_t slot) {
  const Slot& of = plan.sequences[sequence].slots[slot];
  return fmt::format("{}, {} bytes at {} over [{}, {}),", slot_name(sequence, slot), of.size,
                     of.offset, of.birth, std::uint64_t{of.birth} + of.length);
}

}  // namespace berth
