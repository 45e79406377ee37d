#include "csrc/torch/program.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace berth::torch {
namespace {

// A number that a launcher (torchrun) put into the environment, or `otherwise`.
std::uint32_t launcher_number(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const std::string_view digits(text);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : otherwise;
}

}  // namespace

trace::Program this_program(const Config& config, const DeviceProperties& device) {
  return {.torch_version = fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR,
                                       TORCH_VERSION_PATCH),
          .device_name = device.name,
          .device_bytes = device.total_bytes,
          .world_size = launcher_number("WORLD_SIZE", 1),
          .rank = launcher_number("RANK", 0),
          .tag = config.tag};
}

}  // namespace berth::torch
