#pragma once

#include "csrc/cli/core/output.h"
#include "csrc/plan/plan.h"
#include "csrc/trace/file.h"

#include <span>
#include <string>

namespace berth::cli {

// What `show` says of a plan: arena, bound and gap, who made it, its slots by size class, lanes and
// branches.
[[nodiscard]] Json plan_to_json(const Plan& plan);
[[nodiscard]] std::string plan_to_text(const Plan& plan, const std::string& path);

// The same of a lifetimes CSV, as far as it goes.
[[nodiscard]] Json lifetimes_to_json(std::span<const Lifetime> rows);
[[nodiscard]] std::string lifetimes_to_text(std::span<const Lifetime> rows,
                                            const std::string& path);

}  // namespace berth::cli
