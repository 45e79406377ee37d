#include "csrc/replay/torch_settings.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>

namespace berth::replay {
namespace {

constexpr Bytes kSettingsUnit = Bytes{1} << 20;
constexpr Bytes kLeastMaxSplit = 20;  // MiB

std::optional<std::uint64_t> setting_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The next "name:value"; commas in brackets do not end it.
std::string_view take_setting(std::string_view& rest) {
  int depth = 0;
  std::size_t end = 0;
  for (; end < rest.size() && (depth > 0 || rest[end] != ','); ++end)
    depth += rest[end] == '[' ? 1 : rest[end] == ']' ? -1 : 0;
  const std::string_view setting = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return setting;
}

}  // namespace

TorchSettings read_torch_settings(std::string_view text) {
  std::string plain;
  for (const char c : text)
    if (c != ' ' && c != '\t') plain += c;
  TorchSettings settings;
  for (std::string_view rest = plain; !rest.empty();) {
    const std::string_view setting = take_setting(rest);
    const std::string_view name = setting.substr(0, setting.find(':'));
    const std::string_view value = setting.substr(std::min(name.size() + 1, setting.size()));
    // These hold no memory of the device, or are what the caller of the model decides.
    if (name.empty() || name == "expandable_segments" || name.starts_with("pinned_")) continue;
    const auto count = setting_number(value);
    if (name == "max_split_size_mb" && count && *count > kLeastMaxSplit &&
        *count < kMaxBytes / kSettingsUnit) {
      settings.model.max_split = *count * kSettingsUnit;
    } else if (name == "roundup_power2_divisions" && count && is_power_of_two(*count) &&
               *count <= 64) {
      settings.model.roundup_divisions = static_cast<std::uint32_t>(*count);
    } else if (!(name == "backend" && value == "native")) {
      settings.unknown.emplace_back(setting);
    }
  }
  return settings;
}

TorchSettings torch_settings_of_environment() {
  for (const char* const name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    if (const char* const text = std::getenv(name); text != nullptr && *text != '\0')
      return read_torch_settings(text);
  return {};
}

}  // namespace berth::replay
