#include "csrc/cli/summaries/live_picture.h"

#include "csrc/cli/core/output.h"
#include "csrc/cli/summaries/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace berth::cli {
namespace {

constexpr double kWidth = 1200, kHeight = 560;
constexpr double kLeft = 92, kRight = 176, kTop = 76, kBottom = 58;
constexpr std::array<const char*, 3> kColours = {"#9a9a9a", "#31688e", "#d1322d"};

// The same line in at most `columns` points: the largest of those that fall on one.
std::vector<Bytes> thinned(const std::vector<Bytes>& live, std::size_t columns) {
  if (live.size() <= columns) return live;
  std::vector<Bytes> most(columns, 0);
  for (std::size_t k = 0; k < live.size(); ++k) {
    Bytes& point = most[k * columns / live.size()];
    point = std::max(point, live[k]);
  }
  return most;
}

}  // namespace

std::string to_svg(const LivePicture& picture) {
  std::size_t operators = 1;
  Bytes top = std::max<Bytes>(picture.bound, 1);
  for (const LivePicture::Line& line : picture.lines) {
    operators = std::max(operators, line.live.size());
    for (const Bytes live : line.live) top = std::max(top, live);
  }
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  const auto x_of = [&](double run) {
    return kLeft + run / static_cast<double>(operators) * (right - kLeft);
  };
  const auto y_of = [&](double bytes) {
    return bottom - bytes / static_cast<double>(top) * (bottom - kTop);
  };
  std::string svg;
  const auto add = [&svg]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg), format, std::forward<Args>(args)...);
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" "
      "font-size=\"13\" fill=\"#333\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"28\" font-size=\"17\" font-weight=\"600\" fill=\"#111\">{3}</text>\n"
      "<text x=\"{2}\" y=\"49\" fill=\"#666\">{4}</text>\n",
      kWidth, kHeight, kLeft, escape(picture.title), escape(picture.subtitle));
  const Unit unit = unit_of(top);
  const double most = static_cast<double>(top) / unit.bytes;
  const double step = nice_step(most, 8);
  for (double value = 0; value <= most * 1.0001; value += step) {
    const double y = y_of(value * unit.bytes);
    add("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e6e6e6\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        kLeft, y, right, kLeft - 8, y + 4.5, std::round(value * 1000) / 1000);
  }
  add("<text transform=\"translate(26 {:.1f}) rotate(-90)\" text-anchor=\"middle\">live, "
      "{}</text>\n"
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">operators run</text>\n",
      (kTop + bottom) / 2, unit.name, (kLeft + right) / 2, kHeight - 14);
  const double x_step = std::max(1.0, nice_step(static_cast<double>(operators), 8));
  for (double run = 0; run <= static_cast<double>(operators); run += x_step)
    add("<path d=\"M{0:.1f} {1:.1f}v5\" stroke=\"#444\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{2:.1f}\" text-anchor=\"middle\">{3}</text>\n",
        x_of(run), bottom, bottom + 19, format_count(static_cast<std::uint64_t>(run)));
  add("<path d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\" fill=\"none\" stroke=\"#444\"/>\n", kLeft, kTop,
      bottom, right);
  double label = kTop + 52;
  for (std::size_t k = 0; k < picture.lines.size(); ++k, label += 22) {
    const LivePicture::Line& line = picture.lines[k];
    const char* colour = kColours[kColours.size() - picture.lines.size() + k];
    const std::vector<Bytes> points = thinned(line.live, static_cast<std::size_t>(right - kLeft));
    const double width = static_cast<double>(line.live.size()) /
                         static_cast<double>(std::max<std::size_t>(points.size(), 1));
    std::string path;
    for (std::size_t p = 0; p < points.size(); ++p)
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}H{:.1f}", p == 0 ? "M" : "L",
                     x_of(static_cast<double>(p) * width), y_of(static_cast<double>(points[p])),
                     x_of(static_cast<double>(p + 1) * width));
    // Lines below are wider and paler, so that they are seen where they coincide.
    const double below = static_cast<double>(picture.lines.size() - 1 - k);
    add("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
        "stroke-opacity=\"{:.1f}\"/>\n",
        path, colour, 1.4 + 1.4 * below, 1 - 0.3 * below);
    add("<path d=\"M{0:.1f} {1:.1f}h16\" stroke=\"{2}\" stroke-width=\"2\"/>\n"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text>\n",
        right + 16, label - 4, colour, right + 40, label, escape(line.label));
  }
  if (picture.bound != 0) {
    const double y = y_of(static_cast<double>(picture.bound));
    add("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#111\" stroke-dasharray=\"6 4\"/>\n", kLeft, y,
        right);
    svg += bound_legend(right + 16, label);
  }
  svg += "</svg>\n";
  return svg;
}

}  // namespace berth::cli
