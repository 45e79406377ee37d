#include "csrc/cli/summaries/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace berth::cli {

std::string escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F)
                       ? '?'
                       : c;
    }
  }
  return escaped;
}

double nice_step(double range, double most) {
  const double power = std::pow(10, std::floor(std::log10(std::max(range, 1e-9) / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (range / (power * factor) <= most) return power * factor;
  }
  return power * 10;
}

Unit unit_of(Bytes most) {
  constexpr std::array<Unit, 5> kUnits = {
      {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"bytes", 1}}};
  for (const Unit& unit : kUnits) {
    if (static_cast<double>(most) >= unit.bytes) return unit;
  }
  return kUnits.back();
}

std::string bound_legend(double x, double y) {
  return fmt::format(
      "<path d=\"M{:.1f} {:.1f}h17\" stroke=\"#111\" stroke-dasharray=\"6 4\"/>\n"
      "<text x=\"{:.1f}\" y=\"{:.1f}\">lower bound</text>\n",
      x, y - 4, x + 24, y);
}

}  // namespace berth::cli
