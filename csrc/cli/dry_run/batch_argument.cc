#include "csrc/cli/dry_run/batch_argument.h"

#include "csrc/core/check.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace berth::cli {
namespace {

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number == 0) return std::nullopt;
  return number;
}

}  // namespace

BatchArgument::BatchArgument(const std::string& text, std::vector<std::string> program)
    : program_(std::move(program)), at_(program_.size()) {
  const std::size_t equals = text.find('=');
  label_ = equals == std::string::npos ? "batch" : text.substr(0, equals);
  name_ = equals == std::string::npos ? text : text.substr(equals + 1);
  BERTH_CHECK(!label_.empty() && !name_.empty(), kUsage,
              "--fit is '{}': a name and an argument of the program are wanted, as in "
              "batch=--batch-size, or its place, as in batch=2",
              text);
  std::string_view value;
  if (name_.starts_with('-')) {
    for (std::size_t i = 1; i < program_.size(); ++i) {
      const std::string_view word = program_[i];
      if (word == name_) {
        BERTH_CHECK(i + 1 < program_.size(), kUsage,
                    "--fit names '{}', after which the program has no argument", name_);
        at_ = i + 1;
        value = program_[at_];
      } else if (word.starts_with(name_ + "=")) {
        at_ = i;
        before_ = name_ + "=";
        value = word.substr(before_.size());
      }
    }
    if (at_ == program_.size()) return;
  } else {
    const auto place = whole_number(name_);
    BERTH_CHECK(
        place.has_value(), kUsage,
        "--fit names '{}': an option of the program is wanted, as in batch=--batch-size, or "
        "the place of an argument, as in batch=2",
        name_);
    BERTH_CHECK(*place < program_.size(), kUsage,
                "--fit names argument {} of the program, which has {}", *place,
                program_.size() - (program_.empty() ? 0 : 1));
    at_ = static_cast<std::size_t>(*place);
    value = program_[at_];
  }
  given_ = whole_number(value);
  BERTH_CHECK(given_.has_value(), kUsage,
              "--fit names '{}', whose value is '{}': a whole number above 0 is wanted", name_,
              value);
}

std::vector<std::string> BatchArgument::with(std::uint64_t batch) const {
  std::vector<std::string> changed = program_;
  if (at_ == changed.size()) {
    changed.push_back(name_);
    changed.push_back(std::to_string(batch));
  } else {
    changed[at_] = before_ + std::to_string(batch);
  }
  return changed;
}

std::string BatchArgument::described(std::uint64_t batch) const {
  return name_.starts_with('-') ? fmt::format("{} {}", name_, batch)
                                : fmt::format("{} as argument {}", batch, name_);
}

}  // namespace berth::cli
