#pragma once

#include "csrc/trace/trace.h"

#include <berth/config.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace berth {

// One setting, for help and for error messages. All texts are for people.
struct Setting {
  std::string_view variable;      // BERTH_MODE
  std::string_view field;         // Config::mode
  std::string_view option;        // of the command line, empty where there is none
  std::string_view legal_values;  // "learn, record, serve, off"
  std::string_view default_value;
  std::string_view meaning;
};

// Every setting, in the order of Config.
[[nodiscard]] std::span<const Setting> settings() noexcept;

// Variables that the Python package alone reads.
[[nodiscard]] std::span<const std::string_view> settings_of_python() noexcept;

// A setting by the name of its field ("plan_time_limit_seconds") and its value as text.
using GivenSetting = std::pair<std::string, std::string>;

// Config::from_environment() with some settings given otherwise, which come before the environment;
// the last of equal names counts. An error then names the field. Throws Error(kUsage) for a name
// that is none, too.
[[nodiscard]] Config config_with(std::span<const GivenSetting> given);

// Replaces {rank}, {device} (a GPU's index, "cpu" where it is negative) and {pid} in a file name.
// Throws Error(kUsage) naming any other {word}.
[[nodiscard]] std::string expand_file_name(std::string_view name, const trace::Program& program,
                                           int device_index);

}  // namespace berth
