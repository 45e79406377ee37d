#include "csrc/cli/core/spelling.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace berth::cli {
namespace {

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  // Half of the letters may be wrong, not more.
  std::size_t best = std::min<std::size_t>(typed.substr(0, 64).size() / 2 + 1, 4);
  std::string found;
  for (const std::string& name : names) {
    const std::size_t d = distance(typed.substr(0, 64), name);
    if (d < best) {
      best = d;
      found = name;
    }
  }
  return found;
}

void throw_if_unknown(std::string_view what, std::string_view typed,
                      const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), typed) != names.end()) return;
  const std::string near = nearest(typed, names);
  const std::string hint = near.empty() ? "" : fmt::format(": did you mean '{}'?", near);
  throw Error(ErrorKind::kUsage, fmt::format("'{}' is no {}{} (there is {})", typed, what, hint,
                                             fmt::join(names, ", ")));
}

}  // namespace berth::cli
