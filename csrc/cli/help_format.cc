#include "csrc/cli/help_format.h"

#include "csrc/cli/output.h"

#include <algorithm>

namespace berth::cli {
namespace {

constexpr std::size_t kMeaningColumn = 28;
constexpr std::size_t kHelpWidth = 100;

// CLI11's name of a type goes on with what its check wants, "TEXT:{a,b}" or "N:NONNEGATIVE": of
// that, only choices are worth their room.
std::string type_of(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  if (type.compare(colon, 2, ":{") != 0) return type.substr(0, colon);
  type = type.substr(colon + 2, type.size() - colon - 3);
  std::replace(type.begin(), type.end(), ',', '|');
  return type;
}

}  // namespace

std::string HelpFormat::make_usage(const CLI::App* app, std::string name) const {
  if (usage_.empty()) return CLI::Formatter::make_usage(app, std::move(name));
  return "Usage: " + usage_ + "\n";
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  std::string line = "  " + command->get_name();
  line.append(kMeaningColumn - std::min(kMeaningColumn, line.size()), ' ');
  return line + command->get_description() + "\n";
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = is_positional ? option->get_name(true) : option->get_name(false, true);
  // "-o,--output" reads better with a space, and long options alone stand below each other.
  if (const std::size_t comma = name.find(','); comma != std::string::npos)
    name.insert(comma + 1, 1, ' ');
  if (!is_positional && option->get_type_size() != 0) name += " " + type_of(*option);
  std::string meaning = option->get_description();
  if (!option->get_default_str().empty()) meaning += " [" + option->get_default_str() + "]";
  std::string line = "  " + name;
  if (line.size() + 2 > kMeaningColumn) {
    line += '\n';
    line.append(kMeaningColumn, ' ');
  } else {
    line.append(kMeaningColumn - line.size(), ' ');
  }
  return line + wrap(meaning, kMeaningColumn, kHelpWidth - kMeaningColumn);
}

}  // namespace berth::cli
