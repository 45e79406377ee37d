#include "csrc/cli/lifetimes.h"

#include "csrc/core/interval_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace berth::cli {

Problem make_problem(std::span<const Lifetime> rows, Bytes alignment) {
  Problem problem;
  problem.alignment = alignment;
  problem.buffers.reserve(rows.size());
  for (const Lifetime& row : rows) {
    Buffer& buffer = problem.buffers.emplace_back();
    buffer.size = row.size;
    buffer.birth = row.lower;
    buffer.length = row.upper - row.lower;
  }
  return problem;
}

std::optional<std::string> find_overlap(std::span<const Lifetime> rows,
                                        std::span<const Bytes> offsets) {
  struct End {
    std::uint64_t time;
    bool birth;  // at one time deaths come first
    std::size_t row;
  };
  std::vector<End> ends;
  ends.reserve(2 * rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ends.push_back({rows[i].lower, true, i});
    ends.push_back({rows[i].upper, false, i});
  }
  std::sort(ends.begin(), ends.end(), [](const End& a, const End& b) {
    return std::tie(a.time, a.birth, a.row) < std::tie(b.time, b.birth, b.row);
  });
  IntervalMap<std::size_t> live;
  for (const End& end : ends) {
    const ByteRange bytes{offsets[end.row], offsets[end.row] + rows[end.row].size};
    if (!end.birth) {
      live.erase(bytes.first);
    } else if (const auto other = live.find_touching(bytes)) {
      return fmt::format(
          "rows '{}' and '{}' are alive together and share bytes: [{}, {}) and [{}, {})",
          rows[*live.find(other->first)].id, rows[end.row].id, other->first, other->last,
          bytes.first, bytes.last);
    } else {
      live.insert(bytes, end.row);
    }
  }
  return std::nullopt;
}

}  // namespace berth::cli
