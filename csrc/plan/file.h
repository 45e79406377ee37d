#pragma once

#include "csrc/plan/head.h"
#include "csrc/plan/plan.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace berth {

// Reads and verifies a plan file (format in `plans/README.md`): typed sections, an unknown required
// one is refused, an unknown optional one ignored. Trusts nothing: throws Error(kInput), naming
// path and reason, for damage, another format, other rules of alignment or rounding, impossible
// counts, and every violation that verify() finds. The file is copied once, before anything in it
// is looked at. 1,000,000 slots take under a second.
[[nodiscard]] Plan read_plan(const std::string& path);

// The same where a file is at `path`, and nothing where none is.
[[nodiscard]] std::optional<Plan> read_plan_if_there(const std::string& path);

// What parse_plan() refuses.
enum class PlanCheck {
  kAll,   // damage, and plans that are not legal
  kFile,  // damage alone: for those who ask verify() themselves, and serve nothing of it before
};

// The same for the bytes of a file, called `name` in messages.
[[nodiscard]] Plan parse_plan(std::span<const std::byte> data, const std::string& name,
                              PlanCheck check = PlanCheck::kAll);

// Writes atomically (temporary file, fsync, rename). Refuses, with Error(kUsage), a plan that
// verify() refuses.
void write_plan(const std::string& path, const Plan& plan);

// The bytes of a plan's file: equal ones for equal plans. Refuses, with Error(kUsage), a malformed
// plan (structure.h), of which a file could not hold all; whether slots overlap it does not ask.
// `head` is that of the plan, where the file is for a folder of plans.
[[nodiscard]] std::vector<std::byte> serialize_plan(const Plan& plan,
                                                    const PlanHead* head = nullptr);

// The head of a plan file that has one, from its first kPlanHeadBytes; nothing where it has none.
// Throws Error(kInput) for what is no plan file and where the head cannot be read. The rest of the
// file may be damaged.
inline constexpr Bytes kPlanHeadBytes = Bytes{16} << 10;
[[nodiscard]] std::optional<PlanHead> read_plan_head(const std::string& path);

}  // namespace berth
