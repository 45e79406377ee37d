// Logs of DTR (Kirisame et al. 2021): the tensor operations of a PyTorch step, a JSON object a
// line.
#include "csrc/core/check.h"
#include "csrc/graph/json.h"
#include "csrc/papers/importers/importers.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace berth::graph {
namespace {

constexpr std::uint64_t kMaxOperatorNs = std::uint64_t{1} << 62;
constexpr std::size_t kMaxTensors = std::size_t{1} << 16;  // that one operator is given or makes

// The lines of a text that hold anything, one by one.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  // The next; empty at the end.
  std::string_view next() {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      const std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) return line;
    }
    ++number_;
    return {};
  }
  [[nodiscard]] std::size_t number() const noexcept { return number_; }

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

bool is_random(std::string_view name) {
  constexpr std::array<std::string_view, 6> kRandom = {"dropout",     "droupout", "bernoulli",
                                                       "multinomial", "normal_",  "uniform_"};
  return name.find("backward") == std::string_view::npos &&
         (name.find("rand") != std::string_view::npos ||
          std::any_of(kRandom.begin(), kRandom.end(), [name](std::string_view word) {
            return name.find(word) != std::string_view::npos;
          }));
}

// Follows handles: names of tensors that the program holds, each of one storage.
class DtrImporter {
 public:
  explicit DtrImporter(std::string_view text) : lines_(text) {}

  Graph run() {
    try {
      for (Json line = next(); !line.is_null(); line = next()) take(line);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("line {}: {}", lines_.number(), error.what()));
    }
    keep_what_is_held();
    return std::move(graph_);
  }

 private:
  struct Followed {
    std::uint32_t version = 0;  // the last
    std::size_t handles = 0;
    OperatorId reader = kNobody, writer = kNobody;  // the last, of operators
  };
  static constexpr OperatorId kNobody = ~OperatorId{0};

  // Null at the end.
  Json next() {
    const std::string_view line = lines_.next();
    if (line.empty()) return nullptr;
    check_depth(line);
    Json json = Json::parse(line, nullptr, false);
    BERTH_CHECK(!json.is_discarded(), kInput, "it is no JSON");
    return json;
  }

  void take(const Json& line) {
    const std::string kind = text(line, "INSTRUCTION", "a line's");
    if (kind == "CONSTANT") {
      const std::string name = text(line, "NAME", kind);
      hold(name, add_storage(size_of(name), StorageClass::kResident));
    } else if (kind == "CALL") {
      call(line);
    } else if (kind == "MUTATE") {
      mutate(line);
    } else if (kind == "COPY") {
      hold(text(line, "DST", kind), held(text(line, "SRC", kind), kind));
    } else if (kind == "COPY_FROM") {
      (void)held(text(line, "DST", kind), kind);
      hold(text(line, "DST", kind), held(text(line, "SRC", kind), kind));
    } else if (kind == "RELEASE") {
      release(text(line, "NAME", kind));
    } else if (kind == "ANNOTATE") {
      annotate(text(line, "ANNOTATION", kind));
    } else {
      throw Error(ErrorKind::kInput,
                  fmt::format("'{}' is no instruction that belongs here", kind.substr(0, 40)));
    }
  }

  void annotate(const std::string& what) {
    if (what == "BACKWARD") phase_ = Phase::kBackward;
    BERTH_CHECK(what != "START" || graph_.storages.empty(), kInput,
                "a second step begins, a file with one is wanted");
  }

  // An operator that only makes views is none: who reads them reads what they show.
  void call(const Json& line) {
    const std::string name = "CALL " + text(line, "NAME", "CALL").substr(0, 40);
    const std::vector<StorageId> arguments = arguments_of(line, name);
    const Json& results = tensors(line, "RESULT", name);
    const std::uint64_t ns = number(line, "TIME", kMaxOperatorNs, name);
    std::vector<std::pair<std::string, StorageId>> made;
    std::vector<StorageId> fresh;
    for (const Json& json : results) {
      const std::string result = name_from(json, name);
      const Bytes bytes = size_of(result);
      const StorageId shown = argument_shown(result, arguments);
      if (shown == kNoStorage) fresh.push_back(add_storage(bytes, StorageClass::kStep));
      made.emplace_back(result, shown == kNoStorage ? fresh.back() : shown);
    }
    if (results.empty() || !fresh.empty()) {
      const OperatorId op = add_operator(text(line, "NAME", name), ns);
      for (const StorageId storage : arguments) read(op, storage);
      for (const StorageId storage : fresh) write(op, storage);
    }
    for (const auto& [result, storage] : made) hold(result, storage);
  }

  void mutate(const Json& line) {
    const std::string name = "MUTATE " + text(line, "NAME", "MUTATE").substr(0, 40);
    const std::vector<StorageId> arguments = arguments_of(line, name);
    const OperatorId op =
        add_operator(text(line, "NAME", name), number(line, "TIME", kMaxOperatorNs, name));
    for (const StorageId storage : arguments) read(op, storage);
    for (const Json& json : tensors(line, "MUTATE", name)) {
      const std::uint64_t index = whole(json, kMaxTensors, name);
      BERTH_CHECK(index < arguments.size(), kInput, "{} writes argument {}, there are {}", name,
                  index, arguments.size());
      write(op, arguments[index]);
    }
  }

  // What the program still holds is needed: the last operator reads it.
  void keep_what_is_held() {
    std::vector<StorageId> held;
    for (StorageId s = 0; s < storages_.size(); ++s)
      if (storages_[s].handles != 0 && graph_.storages[s].kind == StorageClass::kStep)
        held.push_back(s);
    if (held.empty()) return;
    phase_ = Phase::kOptimizer;
    const OperatorId last = add_operator("held at the end", 0);
    graph_.operators[last].traits.changes_state = true;
    for (const StorageId storage : held) read(last, storage);
    for (OperatorId op = 0; op < last; ++op)
      if (!is_read_[op]) graph_.control.emplace_back(op, last);
  }

  // -- Members of a line.

  static std::string name_from(const Json& json, const std::string& whose) {
    BERTH_CHECK(json.is_string(), kInput, "{} has {}: a name is wanted", whose,
                json.dump().substr(0, 40));
    return json.get<std::string>();
  }
  static std::string text(const Json& line, const char* what, const std::string& whose) {
    return name_from(member(line, what, whose), whose + " " + what);
  }
  // Of digits, as these logs have it, or a number.
  static std::uint64_t number(const Json& line, const char* what, std::uint64_t limit,
                              const std::string& whose) {
    const Json& json = member(line, what, whose);
    if (!json.is_string()) return whole(json, limit, whose);
    const std::string digits = json.get<std::string>();
    const bool legal = !digits.empty() && digits.size() <= 19 &&
                       digits.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoull(digits) <= limit;
    BERTH_CHECK(legal, kInput, "{} has {} '{}': a whole number from 0 to {} is wanted", whose, what,
                digits.substr(0, 40), limit);
    return std::stoull(digits);
  }
  static const Json& tensors(const Json& line, const char* what, const std::string& whose) {
    const Json& list = member(line, what, whose);
    BERTH_CHECK(list.is_array() && list.size() <= kMaxTensors, kInput,
                "{} has {} that are no list, or more than {}", whose, what, kMaxTensors);
    return list;
  }
  std::vector<StorageId> arguments_of(const Json& line, const std::string& whose) const {
    std::vector<StorageId> storages;
    for (const Json& name : tensors(line, "ARGS", whose))
      storages.push_back(held(name_from(name, whose), whose));
    return storages;
  }

  // The next line, which must be this instruction, of this tensor.
  Json detail(const char* kind, const std::string& name) {
    Json line = next();
    BERTH_CHECK(line.is_object() && line.contains("INSTRUCTION") && line["INSTRUCTION"] == kind &&
                    line.contains("NAME") && line["NAME"] == name,
                kInput, "a {} of {} is wanted here", kind, name.substr(0, 40));
    return line;
  }
  Bytes size_of(const std::string& name) {
    return number(detail("MEMORY", name), "MEMORY", kMaxBytes, "MEMORY of " + name.substr(0, 40));
  }
  // kNoStorage: a result has a storage of its own.
  StorageId argument_shown(const std::string& name, const std::vector<StorageId>& arguments) {
    const Json line = detail("ALIAS", name);
    const std::string whose = "ALIAS of " + name.substr(0, 40);
    const Json& alias = member(line, "ALIAS", whose);
    if (alias == "-1" || alias == -1) return kNoStorage;
    const std::uint64_t index = number(line, "ALIAS", kMaxTensors, whose);
    BERTH_CHECK(index < arguments.size(), kInput, "{} is argument {}, there are {}", whose, index,
                arguments.size());
    return arguments[index];
  }

  // -- Handles, storages and operators.

  static constexpr StorageId kNoStorage = ~StorageId{0};

  [[nodiscard]] StorageId held(const std::string& name, const std::string& whose) const {
    const auto found = handles_.find(name);
    BERTH_CHECK(found != handles_.end(), kInput, "{} names {}, which is not held", whose,
                name.substr(0, 40));
    return found->second;
  }
  // A name that is held already holds another thing from now on.
  void hold(const std::string& name, StorageId storage) {
    ++storages_[storage].handles;
    const auto [there, added] = handles_.emplace(name, storage);
    if (added) return;
    --storages_[there->second].handles;
    there->second = storage;
  }
  void release(const std::string& name) {
    --storages_[held(name, "RELEASE")].handles;
    handles_.erase(name);
  }

  StorageId add_storage(Bytes bytes, StorageClass kind) {
    BERTH_CHECK(graph_.storages.size() < Graph::kMaxStorages, kInput,
                "there are more than {} storages", Graph::kMaxStorages);
    graph_.storages.push_back({bytes, kind, trace::RoleKind::kUnknown});
    storages_.emplace_back();
    return static_cast<StorageId>(graph_.storages.size() - 1);
  }
  OperatorId add_operator(std::string name, std::uint64_t ns) {
    BERTH_CHECK(graph_.operators.size() < Graph::kMaxOperators, kInput,
                "there are more than {} operators", Graph::kMaxOperators);
    Operator& op = graph_.operators.emplace_back();
    op.traits.random = is_random(name);
    op.name = std::move(name);
    op.phase = phase_;
    op.alternatives.emplace_back().ns = ns;
    is_read_.push_back(false);
    return static_cast<OperatorId>(graph_.operators.size() - 1);
  }
  void read(OperatorId op, StorageId storage) {
    Followed& now = storages_[storage];
    if (std::exchange(now.reader, op) == op) return;
    graph_.operators[op].alternatives[0].reads.push_back(
        {{storage, now.version}, 0, graph_.storages[storage].bytes});
    if (now.writer != kNobody) is_read_[now.writer] = true;
  }
  void write(OperatorId op, StorageId storage) {
    Followed& now = storages_[storage];
    if (std::exchange(now.writer, op) == op) return;
    graph_.operators[op].alternatives[0].writes.push_back({storage, ++now.version});
  }

  Lines lines_;
  Graph graph_;
  Phase phase_ = Phase::kForward;
  std::vector<Followed> storages_;
  std::vector<bool> is_read_;  // by operator: what it made last of some storage
  std::unordered_map<std::string, StorageId> handles_;
};

}  // namespace

bool is_dtr_log(std::string_view text) {
  const std::string_view line = Lines(text).next();
  if (line.find("\"INSTRUCTION\"") == std::string_view::npos) return false;
  check_depth(line);
  const Json json = Json::parse(line, nullptr, false);
  return json.is_object() && json.contains("INSTRUCTION");
}

Graph import_dtr(std::string_view text) { return DtrImporter(text).run(); }

}  // namespace berth::graph
