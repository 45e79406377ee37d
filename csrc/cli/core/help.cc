#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/help_format.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/spelling.h"
#include "csrc/runtime/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

namespace berth::cli {
namespace {

struct HelpOptions {
  std::string topic;
  bool json = false;
};

// "Config::memory_limit" -> "--memory-limit"
std::string option_of(const Setting& setting) {
  std::string_view field = setting.field;
  field.remove_prefix(std::min(field.rfind(':') + 1, field.size()));
  std::string name = "--" + std::string(field);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// The commands that take a setting as an option of its own name: "berth record --tag".
std::string option_text(const Setting& setting, const CLI::App& program) {
  const std::string option = option_of(setting);
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_option_no_throw(option) != nullptr)
      return fmt::format("berth {} {}", command->get_name(), option);
  }
  return std::string(setting.option);
}

void print_settings(const CLI::App& program, bool json) {
  if (json) {
    Json list = Json::array();
    for (const Setting& setting : settings()) {
      list.push_back({{"variable", setting.variable},
                      {"option", option_text(setting, program)},
                      {"field", setting.field},
                      {"legal_values", setting.legal_values},
                      {"default", setting.default_value},
                      {"meaning", setting.meaning}});
    }
    print_json(Json{{"settings", list}});
    return;
  }
  std::string text =
      "Each setting is an environment variable of the program that berth serves, a\n"
      "field of berth::Config, and an option where a command takes it.\n";
  for (const Setting& setting : settings()) {
    const std::string option = option_text(setting, program);
    text += "\n" + wrap(fmt::format("{}  ({}{}{})", setting.variable, setting.field,
                                    option.empty() ? "" : ", ", option),
                        4, kLineWidth - 4);
    text += "    " + wrap(setting.meaning, 4, kLineWidth - 4);
    text += "    " + wrap(fmt::format("legal: {}", setting.legal_values), 4, kLineWidth - 4);
    text +=
        "    " + wrap(fmt::format("default: {}",
                                  setting.default_value.empty() ? "(none)" : setting.default_value),
                      4, kLineWidth - 4);
  }
  text += "\n" + wrap(fmt::format("Programs in Python have more settings: {}. They are options of "
                                  "`python -m berth run`.",
                                  fmt::join(settings_of_python(), ", ")),
                      0, kLineWidth);
  print(text);
}

int help(const CLI::App& program, const HelpOptions& options) {
  if (options.topic.empty()) {
    // Not program.help(): it would explain the command that runs.
    print(program.get_formatter()->make_help(&program, program.get_name(),
                                             CLI::AppFormatMode::Normal));
    return kDone;
  }
  if (options.topic == "settings") {
    print_settings(program, options.json);
    return kDone;
  }
  std::vector<std::string> topics;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    topics.push_back(command->get_name());
  topics.push_back("settings");
  throw_if_unknown("topic", options.topic, topics);
  print(program.get_subcommand(options.topic)->help("berth"));
  return kDone;
}

}  // namespace

Command add_help(CLI::App& program) {
  CLI::App* app = program.add_subcommand("help", "Explain a command, or list every setting");
  const auto options = std::make_shared<HelpOptions>();
  app->add_option("topic", options->topic, "A command, or settings");
  app->add_flag("--json", options->json, "Print the settings as one JSON object");
  app->footer("Example:\n  berth help settings\n  berth help plan");
  return {app, [options, &program] { return help(program, *options); }};
}

}  // namespace berth::cli
