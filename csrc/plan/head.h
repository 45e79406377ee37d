#pragma once

#include "csrc/plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace berth {

// What a plan in a folder is known by before all of it is read: who made it, and how each kind of
// its steps begins.
//
// A kind of step is what lies between two marks of the lane with the most slots, or a whole path
// where it has none; at most kMostKinds of them are told, each by its first kMostFirst requests.
// That is 8 KiB at most, beside the texts of the program. A head says nothing of where blocks go:
// whoever serves the plan reads and verifies the whole file.
struct PlanHead {
  static constexpr std::size_t kMostFirst = 128, kMostKinds = 8;
  static constexpr Bytes kAnySize = 0;

  struct Kind {
    std::uint64_t lane_key = 0;
    std::uint32_t requests = 0;  // of the whole step
    std::uint64_t hash = 0;      // of all of them, and of what other lanes do meanwhile
    std::vector<Bytes> first;    // sizes as asked; kAnySize where a bucket serves them
    Bytes planned_bytes = 0;     // of the whole step and of other lanes, rounded: not the pool's.
                                 // Of several steps of the kind, the one with the least of them

    friend bool operator==(const Kind&, const Kind&) = default;
  };

  trace::Program program;
  Bytes alignment = 0, arena_bytes = 0;
  Bytes planned_bytes = 0;  // of all kinds, told or not
  std::uint64_t fingerprint = 0;
  std::vector<Kind> kinds;       // all different
  std::uint32_t kind_count = 0;  // told or not
  bool cycle = false;            // they come in one order, again and again

  // Whether each kind of step of `other` is one of this plan's, in any turns that `other` has: who
  // has this one needs no `other`.
  [[nodiscard]] bool covers(const PlanHead& other) const noexcept;
  // Whether this plan serves at least as many bytes of each kind of `other` from its arena.
  // Requires covers(other).
  [[nodiscard]] bool plans_as_much_as(const PlanHead& other) const noexcept;
  // Whether a file whose plan has the head `actual` may have this one: it names the same kinds, and
  // no more planned bytes than there are. (Heads of files before these bytes were written say 0.)
  [[nodiscard]] bool agrees_with(const PlanHead& actual) const noexcept;

  friend bool operator==(const PlanHead&, const PlanHead&) = default;
};

[[nodiscard]] PlanHead head_of(const Plan& plan);

// Hash of what programs must have in common to try each other's plans: torch version, device, tag
// and alignment. Memory, world size and rank are not in it: ranks that do the same share a plan,
// and requests decide.
[[nodiscard]] std::uint64_t program_key(const trace::Program& program, Bytes alignment) noexcept;

}  // namespace berth
