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

}  // namespace berth::cli
