#include "csrc/torch/shared/program.h"

#include "csrc/core/check.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>

// Of libtorch_cpu: its version, major and minor in the two highest bytes (torch/csrc/inductor/
// aoti_torch/c/shim.h).
extern "C" std::uint64_t aoti_torch_abi_version();

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

void check_libtorch() {
  const std::uint64_t loaded = aoti_torch_abi_version() >> 48;
  constexpr std::uint64_t built = (std::uint64_t{TORCH_VERSION_MAJOR} << 8) | TORCH_VERSION_MINOR;
  BERTH_CHECK(loaded == built, kUsage,
              "berth was built for libtorch {}.{}, {}.{} is loaded: build it with that one",
              TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, loaded >> 8, loaded & 0xff);
}

}  // namespace berth::torch
