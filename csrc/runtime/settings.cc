#include "csrc/runtime/settings.h"

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"

#include <berth/warnings.h>

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

extern char** environ;

namespace berth {
namespace {

constexpr std::array<Setting, 14> kSettings = {{
    {"BERTH_MODE", "Config::mode", "", "learn, record, serve, off", "learn",
     "what berth does. learn: serve from the pool, plan a step that repeats, and switch to the "
     "plan; a step has at most 518,144 requests and frees. record: write a trace. serve: follow "
     "the plan. off: leave the allocator alone"},
    {"BERTH_TRACE", "Config::trace", "berth record -o",
     "a file name, may hold {rank} {device} {pid}", "berth.trace",
     "the trace that mode record writes"},
    {"BERTH_PLAN", "Config::plan", "berth plan -o",
     "the name of a file or folder, may hold {rank} {device} {pid}", "",
     "the plan that mode serve follows. Mode learn starts from it where it exists, and keeps it up "
     "to date. A folder (an existing one, or a name that ends in /) holds the plans of many "
     "programs, ranks and jobs. A run finds its plan there by its first requests. Mode learn adds "
     "what it learns, up to 256 plans and 1 GiB"},
    {"BERTH_RECORD", "Config::record", "berth record --operators", "requests, operators",
     "requests",
     "what a trace holds. requests: requests alone. operators: operators with operands and times "
     "as well"},
    {"BERTH_CHECK", "Config::check", "", "normal, full", "normal",
     "what a block is checked against when it is handed out. normal: the blocks that are off "
     "schedule. full: every live byte; for tests and debugging"},
    {"BERTH_STATS", "Config::stats", "", "a file name, may hold {rank} {device} {pid}", "",
     "the file that receives the counters at exit, as JSON"},
    {"BERTH_VERBOSE", "Config::verbose", "", "0, 1", "0",
     "1: print one line at exit: steps, hits, misses, arena and its bound, memory"},
    {"BERTH_TAG", "Config::tag", "", "any text", "",
     "part of the program's identity in traces and plans"},
    {"BERTH_PLAN_TIME_LIMIT", "Config::plan_time_limit_seconds", "berth plan --time-limit",
     "seconds, 0.001 to 86400", "2",
     "how long mode learn may improve a plan in the background, and the limit of a search of step "
     "programs. The first plan comes sooner"},
    {"BERTH_MEMORY_LIMIT", "Config::memory_limit", "", "a size such as 6GiB; 0: the device's own",
     "0", "the most memory that arena and pool hold together"},
    {"BERTH_MEMORY", "Config::memory", "", "auto, virtual, plain", "auto",
     "how berth allocates a GPU's memory. virtual: it maps pages into ranges of addresses, so that "
     "memory moves between blocks of any size. plain: it calls cudaMalloc, for libraries that "
     "register memory by allocations. auto: virtual, or plain where the driver's virtual memory "
     "fails when berth tries it"},
    {"BERTH_HANDLE", "Config::handle", "", "a size such as 32MiB", "0",
     "the largest handle of a GPU's virtual memory. Larger handles need fewer driver calls, and "
     "fewer file descriptors where memory is shared, but hold more memory. 0: a page, or a 4,096th "
     "of the held memory"},
    {"BERTH_SCHEDULE", "Config::schedule", "berth schedule -o",
     "a file name, may hold {rank} {device} {pid}", "",
     "the schedule that a step program follows from the start. It must be a schedule of the same "
     "step, planned from save_graph() or from a trace with operators"},
    {"BERTH_ALGORITHMS", "Config::algorithms", "", "a file name, may hold {rank} {device} {pid}",
     "",
     "a file of measured algorithms: for example cuDNN's for convolutions, by device, version and "
     "shape. Step programs read it, so that they measure each only once. It holds at most 4096, "
     "and processes may share it"},
}};

constexpr std::string_view kWords = "{rank}, {device} and {pid}";

// The part of a file name that a brace opens and that is no word: up to its end, or all that
// follows. Empty where there is none.
std::string wrong_word(std::string_view name) {
  for (std::size_t open = name.find('{'); open != std::string_view::npos;) {
    const std::size_t close = std::min(name.find('}', open), name.size() - 1);
    const std::string_view word = name.substr(open, close - open + 1);
    if (word != "{rank}" && word != "{device}" && word != "{pid}") return std::string(word);
    open = name.find('{', close);
  }
  return {};
}

std::string_view field_name(const Setting& setting) {
  return setting.field.substr(std::string_view("Config::").size());
}

const Setting& setting(std::string_view variable) {
  for (const Setting& candidate : kSettings) {
    if (candidate.variable == variable) return candidate;
  }
  throw Error(ErrorKind::kUsage, fmt::format("no setting {}", variable));
}

// Where values come from: what was given by name, then the environment.
class Source {
 public:
  Source(std::span<const GivenSetting> given, bool environment)
      : given_(given), environment_(environment) {
    for (const auto& [name, value] : given) {
      std::string names;
      bool known = false;
      for (const Setting& candidate : kSettings) {
        known |= field_name(candidate) == name;
        names += (names.empty() ? "" : ", ") + std::string(field_name(candidate));
      }
      BERTH_CHECK(known, kUsage, "'{}' is no setting of berth, there are: {}", name, names);
    }
  }

  [[nodiscard]] std::optional<std::string> read(std::string_view variable) const {
    if (const std::string* value = find_given(variable)) return *value;
    const char* const value = environment_ ? std::getenv(std::string(variable).c_str()) : nullptr;
    if (value == nullptr) return std::nullopt;
    return value;
  }

  // What the user calls it.
  [[nodiscard]] std::string_view name(std::string_view variable) const {
    return find_given(variable) != nullptr ? field_name(setting(variable)) : variable;
  }

  [[noreturn]] void refuse(std::string_view variable, std::string_view value) const {
    throw Error(ErrorKind::kUsage, fmt::format("{} is '{}', legal are: {}", name(variable), value,
                                               setting(variable).legal_values));
  }

  // A name that could not be expanded would be found wrong only where the file is to be written.
  void read_file_name(std::string_view variable, std::string& target) const {
    std::optional<std::string> text = read(variable);
    if (!text) return;
    if (const std::string word = wrong_word(*text); !word.empty())
      throw Error(ErrorKind::kUsage, fmt::format("{} is '{}' and holds {}, legal are {}",
                                                 name(variable), *text, word, kWords));
    target = std::move(*text);
  }

  template <class Value, std::size_t N>
  void choose(std::string_view variable,
              const std::array<std::pair<std::string_view, Value>, N>& choices,
              Value& target) const {
    const std::optional<std::string> text = read(variable);
    if (!text) return;
    for (const auto& [choice, value] : choices) {
      if (*text == choice) {
        target = value;
        return;
      }
    }
    refuse(variable, *text);
  }

 private:
  [[nodiscard]] const std::string* find_given(std::string_view variable) const {
    const std::string* found = nullptr;
    for (const auto& [name, value] : given_)
      if (field_name(setting(variable)) == name) found = &value;
    return found;
  }

  std::span<const GivenSetting> given_;
  bool environment_;
};

constexpr std::array<std::string_view, 3> kOfPython{"BERTH_BUDGET", "BERTH_TIME_BUDGET",
                                                    "BERTH_HOST_MEMORY"};

// A misspelt name would be a setting silently lost.
void warn_of_unknown_variables() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("BERTH_") || name.starts_with("BERTH_STANDIN_")) continue;
    bool known = std::find(kOfPython.begin(), kOfPython.end(), name) != kOfPython.end();
    std::string names;
    for (const Setting& candidate : kSettings) {
      known |= candidate.variable == name;
      names += (names.empty() ? "" : ", ") + std::string(candidate.variable);
    }
    if (!known)
      warn("unknown-setting", fmt::format("{} is no setting of berth, there are: {}", name, names));
  }
}

}  // namespace

std::span<const Setting> settings() noexcept { return kSettings; }

std::span<const std::string_view> settings_of_python() noexcept { return kOfPython; }

Config Config::from_environment() { return config_with({}); }

Config config_with(std::span<const GivenSetting> given) {
  Config config;
  const bool trusted = ::getauxval(AT_SECURE) == 0;
  if (trusted) warn_of_unknown_variables();
  const Source source(given, trusted);
  source.choose("BERTH_MODE",
                std::array<std::pair<std::string_view, Mode>, 4>{{{"learn", Mode::kLearn},
                                                                  {"record", Mode::kRecord},
                                                                  {"serve", Mode::kServe},
                                                                  {"off", Mode::kOff}}},
                config.mode);
  source.choose(
      "BERTH_RECORD",
      std::array<std::pair<std::string_view, RecordDetail>, 2>{
          {{"requests", RecordDetail::kRequests}, {"operators", RecordDetail::kOperators}}},
      config.record);
  source.choose("BERTH_CHECK",
                std::array<std::pair<std::string_view, CheckLevel>, 2>{
                    {{"normal", CheckLevel::kNormal}, {"full", CheckLevel::kFull}}},
                config.check);
  source.choose(
      "BERTH_MEMORY",
      std::array<std::pair<std::string_view, MemoryKind>, 3>{{{"auto", MemoryKind::kAuto},
                                                              {"virtual", MemoryKind::kVirtual},
                                                              {"plain", MemoryKind::kPlain}}},
      config.memory);
  source.choose("BERTH_VERBOSE",
                std::array<std::pair<std::string_view, bool>, 2>{{{"0", false}, {"1", true}}},
                config.verbose);
  source.read_file_name("BERTH_TRACE", config.trace);
  source.read_file_name("BERTH_PLAN", config.plan);
  source.read_file_name("BERTH_STATS", config.stats);
  config.tag = source.read("BERTH_TAG").value_or(config.tag);
  source.read_file_name("BERTH_SCHEDULE", config.schedule);
  source.read_file_name("BERTH_ALGORITHMS", config.algorithms);
  if (const auto text = source.read("BERTH_PLAN_TIME_LIMIT")) {
    double value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() ||
        !(value >= 0.001 && value <= 86400)) {
      source.refuse("BERTH_PLAN_TIME_LIMIT", *text);
    }
    config.plan_time_limit_seconds = value;
  }
  for (const auto& [name, size] : {std::pair{"BERTH_MEMORY_LIMIT", &config.memory_limit},
                                   std::pair{"BERTH_HANDLE", &config.handle}}) {
    if (const auto text = source.read(name)) {
      const std::optional<Bytes> value = parse_bytes(*text);
      if (!value) source.refuse(name, *text);
      *size = *value;
    }
  }
  BERTH_CHECK(config.mode != Mode::kServe || !config.plan.empty(), kUsage,
              "{} is 'serve' and {} names no plan: set it to a file that `berth plan` wrote",
              source.name("BERTH_MODE"), source.name("BERTH_PLAN"));
  BERTH_CHECK(config.mode != Mode::kRecord || !config.trace.empty(), kUsage,
              "{} is 'record' and {} is empty: set it to the file to write",
              source.name("BERTH_MODE"), source.name("BERTH_TRACE"));
  return config;
}

std::string expand_file_name(std::string_view name, const trace::Program& program,
                             int device_index) {
  if (const std::string word = wrong_word(name); !word.empty())
    throw Error(ErrorKind::kUsage,
                fmt::format("the file name '{}' holds {}, legal are {}", name, word, kWords));
  std::string expanded;
  while (!name.empty()) {
    const std::size_t open = name.find('{');
    expanded += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::string_view word = name.substr(open, name.find('}', open) - open + 1);
    if (word == "{rank}") {
      expanded += std::to_string(program.rank);
    } else if (word == "{device}") {
      expanded += device_index < 0 ? "cpu" : std::to_string(device_index);
    } else {
      expanded += std::to_string(::getpid());
    }
    name.remove_prefix(open + word.size());
  }
  return expanded;
}

}  // namespace berth
