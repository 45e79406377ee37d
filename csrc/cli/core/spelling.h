#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth::cli {

// The name that is nearest to what was typed (Levenshtein distance), or nothing where all are far.
[[nodiscard]] std::string nearest(std::string_view typed, const std::vector<std::string>& names);

// Throws Error(kUsage) where `typed` is none of `names`: says what is near, and what there is.
void throw_if_unknown(std::string_view what, std::string_view typed,
                      const std::vector<std::string>& names);

}  // namespace berth::cli
