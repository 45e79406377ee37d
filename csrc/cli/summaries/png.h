#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace berth::cli {

// An SVG of ours as a PNG, `scale` pixels a point, by librsvg and cairo. They are looked for when
// this is called and are nothing that berth is built with: throws Error(kSystem) that names the
// package where they are not there, and where they cannot draw it.
[[nodiscard]] std::vector<std::byte> to_png(std::string_view svg, double scale = 2);

}  // namespace berth::cli
