// PipeDream's graph.txt as the object that import_pipedream() reads. A line a layer, then a line an
// edge, which begins with a tab:
//
//   node7 -- LSTM(2048, 1024) -- forward_compute_time=3.190, backward_compute_time=5.348,
//       activation_size=[6291456.0; 131072.0], parameter_size=50364416.000
//   <tab>node6 -- node7
//
// Of a partitioned profile each layer ends in " -- stage_id=0", which is left out.
#include "csrc/core/check.h"
#include "csrc/graph/json.h"
#include "csrc/papers/importers/importers.h"

#include <charconv>

namespace berth::graph {
namespace {

constexpr std::string_view kDashes = " -- ";
constexpr std::string_view kFirstFigure = " -- forward_compute_time=";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// What comes before `separator`; the rest of the text goes on behind it.
std::string_view take(std::string_view& text, std::string_view separator) {
  const std::size_t end = text.find(separator);
  const std::string_view taken = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + separator.size());
  return taken;
}

double figure_of(std::string_view text, const std::string& whose) {
  text = trimmed(text);
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  BERTH_CHECK(!text.empty() && error == std::errc{} && stop == text.data() + text.size(), kInput,
              "{} has '{}': a number is wanted", whose, text.substr(0, 40));
  return number;
}

// "[6291456.0; 131072.0]", of a layer with several results, or one number.
Json sizes_from(std::string_view text, const std::string& whose) {
  if (!text.starts_with('[')) return figure_of(text, whose);
  BERTH_CHECK(text.ends_with(']'), kInput, "{} has '{}': a list ends in ']'", whose,
              text.substr(0, 40));
  text = text.substr(1, text.size() - 2);
  Json sizes = Json::array();
  while (!text.empty()) sizes.push_back(figure_of(take(text, ";"), whose));
  return sizes;
}

Json layer_of_line(std::string_view line, std::size_t number) {
  const std::string whose = fmt::format("line {}", number);
  const std::size_t at = line.rfind(kFirstFigure);
  BERTH_CHECK(at != std::string_view::npos, kInput,
              "{} is no layer: 'NAME -- OPERATOR -- forward_compute_time=..' is wanted", whose);
  std::string_view head = line.substr(0, at), figures = line.substr(at + kDashes.size());
  Json layer;
  layer["id"] = std::string(trimmed(take(head, kDashes)));
  layer["op"] = std::string(trimmed(head));
  figures = take(figures, kDashes);
  while (!figures.empty()) {
    std::string_view value = take(figures, ", ");
    const std::string_view name = trimmed(take(value, "="));
    const std::string what = fmt::format("{} of {}", name.substr(0, 40), whose);
    value = trimmed(value);
    if (name == "forward_compute_time") layer["fwd_ms"] = figure_of(value, what);
    if (name == "backward_compute_time") layer["bwd_ms"] = figure_of(value, what);
    if (name == "activation_size") layer["activation_bytes"] = sizes_from(value, what);
    if (name == "parameter_size") layer["param_bytes"] = figure_of(value, what);
  }
  return layer;
}

}  // namespace

bool is_pipedream_text(std::string_view text) {
  const std::string_view first = trimmed(text.substr(0, text.find('\n', 1)));
  return first.find(kFirstFigure) != std::string_view::npos;
}

Json pipedream_from_text(std::string_view text) {
  Json root = {{"nodes", Json::array()}, {"edges", Json::array()}};
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take(text, "\n");
    if (trimmed(line).empty()) continue;
    if (line.find(kFirstFigure) != std::string_view::npos || !line.starts_with('\t')) {
      root["nodes"].push_back(layer_of_line(line, number));
      continue;
    }
    std::string_view ends = trimmed(line);
    const std::string from(trimmed(take(ends, kDashes)));
    root["edges"].push_back(Json::array({from, std::string(trimmed(ends))}));
  }
  return root;
}

}  // namespace berth::graph
