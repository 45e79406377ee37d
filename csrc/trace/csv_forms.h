#pragma once

#include "csrc/trace/file.h"

#include <string>
#include <string_view>

// The two CSV forms as text; `name` is the file's, for errors.
namespace berth::csv {

inline constexpr std::string_view kEventsHeader = "action,id,bytes,stream";
inline constexpr std::string_view kLifetimesHeader = "id,lower,upper,size";

[[nodiscard]] Trace parse_events(std::string_view text, const std::string& name);

[[nodiscard]] std::vector<Lifetime> parse_lifetimes(std::string_view text, const std::string& name);
[[nodiscard]] std::string format_lifetimes(std::span<const Lifetime> rows,
                                           std::span<const Bytes> offsets);
[[nodiscard]] Trace make_trace(std::span<const Lifetime> rows);

}  // namespace berth::csv
