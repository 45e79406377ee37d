#include "csrc/standin/options.h"

#include "csrc/standin/gpu_model.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace berth::standin {
namespace {

[[noreturn]] void refuse(const char* name, const char* value, const char* wanted) {
  std::fprintf(stderr, "berth stand-in: %s is '%s', wanted %s\n", name, value, wanted);
  std::_Exit(2);
}

void read_number(const char* name, std::uint64_t low, std::uint64_t high, auto& number) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || value < low || value > high)
    refuse(name, text, "a whole number in range");
  number = static_cast<std::remove_reference_t<decltype(number)>>(value);
}

// The value of the row whose name the variable holds.
template <typename T, std::size_t N>
void read_choice(const char* name, const std::pair<std::string_view, T> (&choices)[N],
                 const char* wanted, T& value) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  for (const auto& [choice, meaning] : choices) {
    if (choice == text) {
      value = meaning;
      return;
    }
  }
  refuse(name, text, wanted);
}

}  // namespace

Options Options::from_environment() {
  Options options;
  if (const char* gpu = std::getenv("BERTH_STANDIN_GPU")) {
    const auto fitting = gpus_named(gpu);
    if (fitting.size() != 1)
      refuse("BERTH_STANDIN_GPU", gpu,
             (fitting.empty() ? gpu_names() : gpu_names(fitting)).c_str());
    options.gpu = gpu;
  }
  read_number("BERTH_STANDIN_DEVICES", 0, 64, options.devices);
  read_number("BERTH_STANDIN_MEMORY", 1, std::uint64_t{1} << 44, options.memory);
  read_number("BERTH_STANDIN_SEED", 0, UINT64_MAX, options.seed);
  read_number("BERTH_STANDIN_COPY_LIMIT", 0, SIZE_MAX, options.copy_limit);
  read_number("BERTH_STANDIN_PATIENCE", 1, 86400, options.patience_seconds);
  read_choice("BERTH_STANDIN_PACE",
              {{"random", Pace::kRandom}, {"lazy", Pace::kLazy}, {"eager", Pace::kEager}},
              "random, lazy or eager", options.pace);
  read_choice("BERTH_STANDIN_DRIVER",
              {{"full", Driver::kFull},
               {"wsl", Driver::kWsl},
               {"no-descriptors", Driver::kNoDescriptors},
               {"no-virtual", Driver::kNoVirtual}},
              "full, wsl, no-descriptors or no-virtual", options.driver);
  read_choice("BERTH_STANDIN_REFUSE",
              {{"none", 0U},
               {"context", unsigned{kWithoutContext}},
               {"capture", unsigned{kBesideCapture}},
               {"context,capture", kWithoutContext | kBesideCapture}},
              "none, context, capture or context,capture", options.refusals);
  read_number("BERTH_STANDIN_OVERCOMMIT", 0, 1, options.overcommit);
  if (const char* values = std::getenv("BERTH_STANDIN_VALUES")) {
    options.feeds_values = std::strcmp(values, "memory") != 0;
    if (options.feeds_values && std::strcmp(values, "zeros") != 0) {
      char* end = nullptr;
      options.value = std::strtod(values, &end);
      if (end == values || *end != '\0')
        refuse("BERTH_STANDIN_VALUES", values, "memory, zeros or a number");
    }
  }
  if (const char* report = std::getenv("BERTH_STANDIN_REPORT")) options.report = report;
  read_choice("BERTH_STANDIN_CHECK",
              {{"off", Check::kOff}, {"report", Check::kReport}, {"abort", Check::kAbort}},
              "off, report or abort", options.check);
  return options;
}

}  // namespace berth::standin
