#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace berth::cli {

// Help of kLineWidth columns: options in one column, what they mean in another. Paragraphs of the
// footer are broken anew; lines that begin with a space stay as they are where they fit.
class HelpFormat : public CLI::Formatter {
 public:
  // `usage` replaces the line that CLI11 would write.
  explicit HelpFormat(std::string usage = "") : usage_(std::move(usage)) {}

  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string usage_;
};

// A text of paragraphs, of lines "what   meaning", whose meanings go on in lines that are indented
// as far, and of lines that begin with a space, in lines of at most `width` columns.
[[nodiscard]] std::string reflow(std::string_view text, std::size_t width);

}  // namespace berth::cli
