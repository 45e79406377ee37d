#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace berth::cli {

// Help of 100 columns: options in one column, what they mean in another.
class HelpFormat : public CLI::Formatter {
 public:
  // `usage` replaces the line that CLI11 would write.
  explicit HelpFormat(std::string usage = "") : usage_(std::move(usage)) {}

  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;

 private:
  std::string usage_;
};

// A text in lines of at most `width` bytes, broken at spaces; the first line follows on what is
// there, the others are indented.
[[nodiscard]] std::string wrap(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace berth::cli
