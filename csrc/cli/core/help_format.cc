#include "csrc/cli/core/help_format.h"

#include "csrc/cli/core/output.h"

#include <algorithm>

namespace berth::cli {
namespace {

constexpr std::size_t kMeaningColumn = 28;

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
  return line + wrap(command->get_description(), kMeaningColumn, kLineWidth - kMeaningColumn);
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
  return line + wrap(meaning, kMeaningColumn, kLineWidth - kMeaningColumn);
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  const std::string footer = app->get_footer();
  return footer.empty() ? "" : reflow(footer, kLineWidth);
}

std::string reflow(std::string_view text, std::size_t width) {
  constexpr std::size_t kMore = 4;  // that an example goes on behind its own indent
  std::string made, block;          // block: what is broken anew
  std::size_t hang = 0;             // column in which it goes on
  const auto flush = [&] {
    // The gap behind "what" is no place to break.
    if (!block.empty()) {
      const std::string start = block.substr(0, hang);
      made += start + wrap(std::string_view(block).substr(hang), hang, width - hang);
    }
    block.clear();
    hang = 0;
  };
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = line.find("  ");
    if (indent == 0 && !line.empty() && gap == std::string_view::npos) {  // of a paragraph
      if (hang != 0) flush();
      block += (block.empty() ? "" : " ") + std::string(line);
    } else if (indent == 0 && !line.empty()) {  // what   meaning
      flush();
      block = line;
      hang = line.find_first_not_of(' ', gap);
    } else if (hang != 0 && indent == hang) {
      block += " " + std::string(line.substr(indent));
    } else if (line.size() <= width) {
      flush();
      made += std::string(line) + "\n";
    } else {  // an example: the shell reads on behind a backslash
      flush();
      std::string rest(line);
      while (rest.size() > width) {
        const std::size_t space = rest.rfind(' ', width - 2);
        if (space == std::string::npos || space <= indent + kMore) break;
        made += rest.substr(0, space) + " \\\n";
        rest = std::string(indent + kMore, ' ') + rest.substr(space + 1);
      }
      made += rest + "\n";
    }
  }
  flush();
  return made;
}

}  // namespace berth::cli
