#include "csrc/core/check.h"
#include "csrc/trace/csv.h"
#include "csrc/trace/csv_forms.h"
#include "csrc/trace/lifetime_ends.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>

namespace berth::csv {
namespace {

constexpr std::size_t kIdColumn = 0, kLower = 1, kUpper = 2, kSize = 3, kColumns = 4;
constexpr std::string_view kWithOffset = "id,lower,upper,size,offset";
constexpr std::uint64_t kMaxTime = ~std::uint64_t{0} >> 1;

}  // namespace

std::vector<Lifetime> parse_lifetimes(std::string_view text, const std::string& name) {
  Rows rows(text, name);
  if (!rows.next()) rows.fail("is missing: the file is empty");
  if (rows.whole() != kLifetimesHeader && rows.whole() != kWithOffset)
    rows.fail(fmt::format("is '{}', not '{}'", printable(rows.whole()), kLifetimesHeader));
  const std::size_t fields = rows.size();

  std::vector<Lifetime> lifetimes;
  std::unordered_map<std::string_view, std::size_t> line_of;  // views of `text`
  Bytes sum = 0;
  while (rows.next()) {
    if (rows.size() != fields) rows.fail(fmt::format("has {} fields, not {}", rows.size(), fields));
    if (rows[kIdColumn].empty()) rows.fail("has no id");
    const auto [it, unknown] = line_of.emplace(rows[kIdColumn], rows.line());
    if (!unknown)
      rows.fail(fmt::format("has the id '{}' again, line {} has it", printable(rows[kIdColumn]),
                            it->second));
    Lifetime row{.id = std::string(rows[kIdColumn]),
                 .lower = rows.number(kLower, "lower", kMaxTime),
                 .upper = rows.number(kUpper, "upper", kMaxTime),
                 .size = rows.number(kSize, "size", kMaxBytes)};
    if (row.size == 0) rows.fail("has size 0");
    if (row.lower >= row.upper)
      rows.fail(fmt::format("has the lifetime [{}, {}), which is {}", row.lower, row.upper,
                            row.lower == row.upper ? "empty" : "reversed"));
    const auto next = checked_add(sum, row.size);
    if (!next) rows.fail(fmt::format("brings the sum of sizes above the limit of {}", kMaxBytes));
    sum = *next;
    lifetimes.push_back(std::move(row));
  }
  return lifetimes;
}

std::string format_lifetimes(std::span<const Lifetime> rows, std::span<const Bytes> offsets) {
  BERTH_CHECK(rows.size() == offsets.size(), kUsage, "{} lifetimes have {} offsets", rows.size(),
              offsets.size());
  std::string text = fmt::format("{}\n", kWithOffset);
  const auto out = std::back_inserter(text);
  for (std::size_t i = 0; i < rows.size(); ++i)
    fmt::format_to(out, "{},{},{},{},{}\n", rows[i].id, rows[i].lower, rows[i].upper, rows[i].size,
                   offsets[i]);
  return text;
}

Trace make_trace(std::span<const Lifetime> rows) {
  const std::vector<LifetimeEnd> ends = sorted_ends(rows);
  Trace trace;
  trace.alignment = 1;
  trace.lanes.push_back({0});
  trace.entries.reserve(ends.size());
  for (const LifetimeEnd& end : ends) {
    const trace::BlockId block = end.row + 1;
    const trace::Tick tick = trace.entries.size();
    if (end.birth) {
      trace.entries.push_back({tick, 0, 0, trace::Request{block, rows[end.row].size, 0, 0}});
    } else {
      trace.entries.push_back({tick, 0, 0, trace::Free{block}});
    }
  }
  return trace;
}

}  // namespace berth::csv
