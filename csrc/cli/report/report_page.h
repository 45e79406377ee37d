#pragma once

#include "csrc/cli/report/report.h"

#include <string>

namespace berth::cli {

// The report as one HTML page that needs nothing else: no network, no file, no font. The page
// itself is in `page/`; here its data is put in, as a JSON object with columns of little-endian
// numbers in base64. No text of a report can end the element that it stands in.
[[nodiscard]] std::string to_html(const Report& report);

}  // namespace berth::cli
