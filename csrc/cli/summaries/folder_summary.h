#pragma once

#include "csrc/cli/core/output.h"

#include <string>

namespace berth::cli {

// What `show` says of a folder of plans (BERTH_PLAN): each plan's kinds of steps, arena and
// program, and what there cannot be read.
struct FolderSummary {
  Json json;
  std::string text;
};

// Looks at the heads of the first 16,384 files NAME.plan; reads those whole that have none. Throws
// Error(kInput) where the folder cannot be read.
[[nodiscard]] FolderSummary summarize_folder(const std::string& path);

}  // namespace berth::cli
