#include "csrc/cli/core/lifetimes.h"

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/core/interval_map.h"
#include "csrc/trace/lifetime_ends.h"

#include <fmt/format.h>

namespace berth::cli {

Problem make_problem(std::span<const Lifetime> rows, Bytes alignment) {
  Problem problem;
  problem.alignment = alignment;
  problem.buffers.reserve(rows.size());
  Bytes total = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Lifetime& row = rows[i];
    const auto sum = checked_add(total, align_up(row.size, alignment));
    BERTH_CHECK(sum, kUsage,
                "line {}: {} bytes aligned to {} and the {} before them exceed 2^62 bytes",
                line_of(i), row.size, alignment, total);
    total = *sum;
    Buffer& buffer = problem.buffers.emplace_back();
    buffer.size = row.size;
    buffer.birth = row.lower;
    buffer.length = row.upper - row.lower;
  }
  return problem;
}

std::optional<std::string> find_overlap(std::span<const Lifetime> rows,
                                        std::span<const Bytes> offsets) {
  IntervalMap<std::size_t> live;
  for (const LifetimeEnd& end : sorted_ends(rows)) {
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

std::optional<std::string> find_overload(std::span<const Lifetime> rows, Bytes alignment,
                                         Bytes capacity) {
  Bytes load = 0;
  for (const LifetimeEnd& end : sorted_ends(rows)) {
    const Bytes size = align_up(rows[end.row].size, alignment);
    load = end.birth ? load + size : load - size;
    if (load > capacity)
      return fmt::format("line {} ('{}', {} bytes) brings what is alive at time {} to {} bytes",
                         line_of(end.row), rows[end.row].id, size, end.time, load);
  }
  return std::nullopt;
}

}  // namespace berth::cli
