#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace berth {

// Receives every warning and report of berth: a stable name ("plan-mismatch") and one line of text.
// Called outside berth's locks, from the thread that noticed; may allocate.
using WarningSink = std::function<void(std::string_view name, const std::string& text)>;

// Replaces the sink; an empty one restores the default, which prints `berth: warning: TEXT [NAME]`
// on standard error. Thread-safe.
void set_warning_sink(WarningSink sink);

// Reports a warning. Never throws; a sink that throws is ignored.
void warn(std::string_view name, const std::string& text) noexcept;

// Reports a text that is no warning ("summary", under BERTH_VERBOSE=1) to the same sink. The
// default sink prints `berth: TEXT`. Never throws.
void report(std::string_view name, const std::string& text) noexcept;

}  // namespace berth
