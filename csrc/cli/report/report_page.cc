#include "csrc/cli/report/report_page.h"

#include "csrc/cli/report/page_files.h"
#include "csrc/cli/summaries/svg.h"
#include "csrc/core/check.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace berth::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian columns");

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

std::string base64(std::span<const std::byte> data) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((data.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < data.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, data.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < count ? std::to_integer<std::uint32_t>(data[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

template <class Number>
Json packed(const char* type, std::uint64_t unit, std::span<const std::uint64_t> values) {
  std::vector<Number> numbers;
  numbers.reserve(values.size());
  for (const std::uint64_t value : values) {
    if constexpr (std::is_floating_point_v<Number>) {
      numbers.push_back(value == kNone ? std::numeric_limits<Number>::quiet_NaN()
                                       : static_cast<Number>(value));
    } else {
      numbers.push_back(value == kNone ? std::numeric_limits<Number>::max()
                                       : static_cast<Number>(value / unit));
    }
  }
  return {{"type", type}, {"unit", unit}, {"data", base64(std::as_bytes(std::span(numbers)))}};
}

// Numbers in the narrowest type that holds them, in units of what divides them all. The largest
// number of an integer type says that there is none, NaN in f64. Beyond 2^53 bytes f64 rounds.
Json column(std::span<const std::uint64_t> values) {
  std::uint64_t unit = 0, most = 0;
  for (const std::uint64_t value : values) {
    if (value == kNone) continue;
    unit = std::gcd(unit, value);
    most = std::max(most, value);
  }
  unit = std::max<std::uint64_t>(unit, 1);
  most /= unit;
  if (most < std::numeric_limits<std::uint8_t>::max())
    return packed<std::uint8_t>("u8", unit, values);
  if (most < std::numeric_limits<std::uint16_t>::max())
    return packed<std::uint16_t>("u16", unit, values);
  if (most < std::numeric_limits<std::uint32_t>::max())
    return packed<std::uint32_t>("u32", unit, values);
  return packed<double>("f64", 1, values);
}

template <class Rows, class Of>
Json column(const Rows& rows, Of of) {
  std::vector<std::uint64_t> values;
  values.reserve(rows.size());
  for (const auto& row : rows) values.push_back(static_cast<std::uint64_t>(of(row)));
  return column(values);
}

Json to_json(const Report::Layout& layout) {
  Json json = {{"label", layout.label}, {"note", layout.note}, {"missing", layout.missing}};
  json["reserved"] = layout.reserved.empty() ? Json(nullptr) : column(layout.reserved);
  if (!layout.missing.empty()) return json;
  json["addresses"] = column(layout.addresses);
  json["breaks"] = column(layout.breaks);
  json["span"] = layout.span;
  json["arena"] = layout.arena;
  json["outcomes"] = layout.outcomes.empty()
                         ? Json(nullptr)
                         : column(layout.outcomes, [](replay::Outcome outcome) { return outcome; });
  return json;
}

Json to_json(const Report::View& view) {
  using Block = Report::Block;
  Json json = {
      {"label", view.label},    {"time", view.time},           {"unit", view.unit},
      {"opWord", view.op_word}, {"first", view.first},         {"period", view.period},
      {"bound", view.bound},    {"count", view.blocks.size()}, {"marks", column(view.marks)}};
  const auto add = [&](const char* name, auto of) { json[name] = column(view.blocks, of); };
  add("birth", [](const Block& block) { return block.birth; });
  add("length", [](const Block& block) { return block.end - block.birth; });
  add("bytes", [](const Block& block) { return block.bytes; });
  add("requested", [](const Block& block) { return block.requested; });
  add("module", [](const Block& block) { return block.module; });
  add("op", [](const Block& block) { return block.op; });
  add("phase", [](const Block& block) { return block.phase; });
  add("role", [](const Block& block) { return block.role; });
  add("lane", [](const Block& block) { return block.lane; });
  Json layouts = Json::array();
  for (const Report::Layout& layout : view.layouts) layouts.push_back(to_json(layout));
  json["layouts"] = std::move(layouts);
  json["recorded"] = view.recorded.empty() ? Json(nullptr) : column(view.recorded);
  return json;
}

// Within a script element of type JSON: no text may end it, or begin a comment in it.
std::string script_text(const Json& json) {
  const std::string plain =
      json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  std::string text;
  text.reserve(plain.size());
  for (const char c : plain) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string to_html(const Report& report) {
  Json facts = Json::array();
  for (const Report::Fact& fact : report.facts)
    facts.push_back({{"what", fact.what}, {"value", fact.value}, {"more", fact.more}});
  Json views = Json::array();
  for (const Report::View& view : report.views) views.push_back(to_json(view));
  const Json data = {{"title", report.title},
                     {"about", report.about},
                     {"facts", std::move(facts)},
                     {"names", report.names},
                     {"views", std::move(views)},
                     {"statistics", report.statistics ? *report.statistics : Json(nullptr)}};
  std::string html;
  std::string_view rest = page_html();
  const auto put = [&](std::string_view place, std::string_view text) {
    const std::size_t at = rest.find(place);
    BERTH_ASSERT(at != std::string_view::npos, "the page has no {}", place);
    html += rest.substr(0, at);
    html += text;
    rest.remove_prefix(at + place.size());
  };
  put("{{title}}", escape(report.title));
  put("{{style}}", page_style());
  put("{{data}}", script_text(data));
  put("{{script}}", page_script());
  html += rest;
  return html;
}

}  // namespace berth::cli
