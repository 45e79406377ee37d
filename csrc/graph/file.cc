#include "csrc/graph/file.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/graph/from_trace.h"
#include "csrc/graph/graph_file.h"
#include "csrc/graph/json.h"
#include "csrc/graph/other_forms.h"
#include "csrc/plan/section_file.h"
#include "csrc/trace/chunk_frame.h"
#include "csrc/trace/file.h"
#include "csrc/trace/role_names.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace berth::graph {
namespace {

constexpr Bytes kMaxFileBytes = Bytes{256} << 20;
constexpr int kMaxDepth = 16;  // of brackets: what is deeper is no graph
constexpr std::uint64_t kMaxNs = std::uint64_t{1} << 62;

template <std::size_t N>
std::uint8_t index_of(const std::array<std::string_view, N>& names, const Json& value,
                      const std::string& whose) {
  const auto found = value.is_string()
                         ? std::find(names.begin(), names.end(), value.get<std::string>())
                         : names.end();
  BERTH_CHECK(found != names.end(), kInput, "{} is {}, legal are: {}", whose, value.dump(),
              fmt::join(names, ", "));
  return static_cast<std::uint8_t>(found - names.begin());
}

const Json& elements(const Json& value, std::size_t least, std::size_t most,
                     const std::string& whose) {
  BERTH_CHECK(value.is_array() && value.size() >= least && value.size() <= most, kInput,
              "{} is no list of {} to {} elements", whose, least, most);
  return value;
}

ValueId value_from(const Json& pair, const std::string& whose) {
  elements(pair, 2, 4, whose);
  return {static_cast<StorageId>(whole(pair[0], Graph::kMaxStorages, whose)),
          static_cast<std::uint32_t>(whole(pair[1], ~std::uint32_t{0}, whose))};
}

Alternative alternative_from(const Json& json, const std::string& whose) {
  Alternative one;
  one.ns = whole(member(json, "ns", whose), kMaxNs, whose + " ns");
  one.workspace = whole(member(json, "workspace", whose), kMaxBytes, whose + " workspace");
  for (const Json& read : elements(member(json, "reads", whose), 0, 1 << 20, whose + " reads")) {
    const std::string what = whose + " reads";
    elements(read, 4, 4, what);
    one.reads.push_back(
        {value_from(read, what), whole(read[2], kMaxBytes, what), whole(read[3], kMaxBytes, what)});
  }
  for (const Json& write : elements(member(json, "writes", whose), 0, 1 << 20, whose + " writes"))
    one.writes.push_back(value_from(elements(write, 2, 2, whose + " writes"), whose + " writes"));
  if (json.contains("in_place"))
    for (const Json& pair : elements(json["in_place"], 0, 1 << 20, whose + " in_place")) {
      elements(pair, 2, 2, whose + " in_place");
      one.in_place.emplace_back(value_from(pair[0], whose), value_from(pair[1], whose));
    }
  if (json.contains("algorithm")) {
    BERTH_CHECK(json["algorithm"].is_string(), kInput, "the algorithm of {} is no text", whose);
    one.algorithm = json["algorithm"].get<std::string>();
  }
  return one;
}

Operator operator_from(const Json& json, const std::string& whose) {
  Operator op;
  const Json& name = member(json, "name", whose);
  BERTH_CHECK(name.is_string(), kInput, "the name of {} is no text", whose);
  op.name = name.get<std::string>();
  op.phase = static_cast<Phase>(index_of(kPhases, member(json, "phase", whose), whose + " phase"));
  if (json.contains("traits"))
    for (const Json& trait : elements(json["traits"], 0, 5, whose + " traits")) {
      constexpr std::array<std::string_view, 5> kTraits = {"random", "changes_state", "host_sync",
                                                           "collective", "draws_again"};
      const std::array<bool*, 5> flags = {&op.traits.random, &op.traits.changes_state,
                                          &op.traits.host_sync, &op.traits.collective,
                                          &op.traits.draws_again};
      *flags[index_of(kTraits, trait, whose + " traits")] = true;
    }
  if (json.contains("forward"))
    op.forward = static_cast<OperatorId>(whole(json["forward"], Graph::kMaxOperators, whose));
  for (const Json& one :
       elements(member(json, "alternatives", whose), 1, Graph::kMaxAlternatives, whose))
    op.alternatives.push_back(alternative_from(one, whose));
  return op;
}

Graph from_berth(const Json& root) {
  Graph graph;
  const std::string file = "the graph";
  for (const Json& json :
       elements(member(root, "storages", file), 0, Graph::kMaxStorages, "storages")) {
    const std::string whose = fmt::format("storage {}", graph.storages.size());
    Storage storage;
    storage.bytes = whole(member(json, "bytes", whose), kMaxBytes, whose);
    storage.kind =
        static_cast<StorageClass>(index_of(kClasses, member(json, "class", whose), whose));
    if (json.contains("role"))
      storage.role = static_cast<trace::RoleKind>(index_of(trace::kRoleNames, json["role"], whose));
    graph.storages.push_back(storage);
  }
  for (const Json& json :
       elements(member(root, "operators", file), 0, Graph::kMaxOperators, "operators"))
    graph.operators.push_back(
        operator_from(json, fmt::format("operator {}", graph.operators.size())));
  if (root.contains("control"))
    for (const Json& pair : elements(root["control"], 0, 1 << 24, "control")) {
      elements(pair, 2, 2, "a control edge");
      graph.control.emplace_back(whole(pair[0], Graph::kMaxOperators, "a control edge"),
                                 whole(pair[1], Graph::kMaxOperators, "a control edge"));
    }
  if (root.contains("order"))
    for (const Json& op : elements(root["order"], 0, Graph::kMaxOperators, "order"))
      graph.order.push_back(static_cast<OperatorId>(whole(op, Graph::kMaxOperators, "order")));
  return graph;
}

Graph graph_in(const Json& root) {
  BERTH_CHECK(root.is_object(), kInput, "it is no JSON object");
  if (root.contains("format")) {
    const Json& format = root["format"];
    BERTH_CHECK(format.is_string() && format.get<std::string>() == kFormat, kInput,
                "its format is {}, this berth reads '{}'", format.dump(), kFormat);
    return from_berth(root);
  }
  for (const OtherForm& form : other_forms())
    if (form.is_json != nullptr && form.is_json(root)) return form.from_json(root);
  throw Error(ErrorKind::kInput,
              fmt::format("it has neither a format, nor nodes with edges or links: it is no graph. "
                          "These are read: {}",
                          graph_forms()));
}

Graph parse(std::string_view text) {
  for (const OtherForm& form : other_forms())
    if (form.is_text != nullptr && form.is_text(text)) return form.from_text(text);
  check_depth(text);
  const Json root = Json::parse(text, nullptr, false);
  BERTH_CHECK(!root.is_discarded(), kInput,
              "it is neither JSON nor another form of a graph. These are read: {}", graph_forms());
  return graph_in(root);
}

Graph graph_of_trace(const std::string& path) {
  const Trace trace = read_trace(path);
  try {
    return graph_from_trace(trace).graph;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}': {}", path, error.what()));
  }
}

}  // namespace

std::string graph_forms() {
  std::string text = "berth's graph (binary or JSON)";
  for (const OtherForm& form : other_forms()) text += ", " + form.name;
  return text;
}

bool is_graph_text(std::string_view head) {
  return std::ranges::any_of(other_forms(), [&](const OtherForm& form) {
    return form.is_text != nullptr && form.is_text(head);
  });
}

void check_depth(std::string_view text) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
      continue;
    }
    in_text = c == '"';
    if (c == '[' || c == '{')
      BERTH_CHECK(++depth <= kMaxDepth, kInput, "brackets are nested more than {} deep", kMaxDepth);
    if (c == ']' || c == '}') --depth;
  }
}

const Json& member(const Json& object, const char* name, const std::string& whose) {
  BERTH_CHECK(object.is_object() && object.contains(name), kInput, "{} has no '{}'", whose, name);
  return object[name];
}

std::uint64_t whole(const Json& value, std::uint64_t limit, const std::string& whose) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= limit)
    return value.get<std::uint64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number >= 0 && number <= static_cast<double>(limit) && number == std::floor(number))
      return static_cast<std::uint64_t>(number);
  }
  throw Error(ErrorKind::kInput, fmt::format("{} has {}: a whole number from 0 to {} is wanted",
                                             whose, value.dump().substr(0, 40), limit));
}

Bytes size_from(const Json& value, const std::string& whose) {
  BERTH_CHECK(value.is_number(), kInput, "{} has {}: a number of bytes is wanted", whose,
              value.dump().substr(0, 40));
  const double number = value.get<double>();
  BERTH_CHECK(number >= 0 && number <= static_cast<double>(kMaxBytes), kInput,
              "{} has {} bytes, 0 to {} are legal", whose, number, kMaxBytes);
  return static_cast<Bytes>(std::ceil(number));
}

Graph parse_graph(std::string_view text, const std::string& name) {
  try {
    Graph graph = parse(text);
    const std::string wrong = violation(graph);
    BERTH_CHECK(wrong.empty(), kInput, "{}", wrong);
    return graph;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}': {}", name, error.what()));
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::kInput, fmt::format("'{}': {}", name, error.what()));
  }
}

Graph read_graph(const std::string& path) {
  const auto magic = std::as_bytes(std::span(trace_file::kFileMagic));
  if (std::ranges::equal(read_file_head(path, magic.size()), magic)) return graph_of_trace(path);
  const std::vector<std::byte> data = read_file(path, kMaxPlanFileBytes);
  if (first_section(data)) return parse_graph_file(data, path);
  BERTH_CHECK(data.size() <= kMaxFileBytes, kInput, "'{}' has {}, the limit is {}", path,
              format_bytes(data.size()), format_bytes(kMaxFileBytes));
  return parse_graph({reinterpret_cast<const char*>(data.data()), data.size()}, path);
}

void write_graph(const std::string& path, const Graph& graph) {
  if (!path.ends_with(".json")) return write_file_atomically(path, serialize_graph(graph));
  const std::string wrong = violation(graph);
  BERTH_CHECK(wrong.empty(), kUsage, "no graph: {}", wrong);
  const std::string text = to_json(graph);
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

std::string to_json(const Graph& graph) {
  using Ordered = nlohmann::ordered_json;
  const auto value = [](ValueId id) { return Ordered::array({id.storage, id.version}); };
  Ordered root = {
      {"format", kFormat}, {"storages", Ordered::array()}, {"operators", Ordered::array()}};
  for (const Storage& storage : graph.storages) {
    Ordered json = {{"bytes", storage.bytes},
                    {"class", kClasses[static_cast<std::size_t>(storage.kind)]}};
    if (storage.role != trace::RoleKind::kUnknown)
      json["role"] = trace::kRoleNames[static_cast<std::size_t>(storage.role)];
    root["storages"].push_back(std::move(json));
  }
  for (const Operator& op : graph.operators) {
    Ordered json = {{"name", op.name}, {"phase", kPhases[static_cast<std::size_t>(op.phase)]}};
    Ordered traits = Ordered::array();
    if (op.traits.random) traits.push_back("random");
    if (op.traits.changes_state) traits.push_back("changes_state");
    if (op.traits.host_sync) traits.push_back("host_sync");
    if (op.traits.collective) traits.push_back("collective");
    if (op.traits.draws_again) traits.push_back("draws_again");
    if (!traits.empty()) json["traits"] = std::move(traits);
    if (op.forward) json["forward"] = *op.forward;
    json["alternatives"] = Ordered::array();
    for (const Alternative& one : op.alternatives) {
      Ordered made = {{"ns", one.ns},
                      {"workspace", one.workspace},
                      {"reads", Ordered::array()},
                      {"writes", Ordered::array()}};
      for (const Read& read : one.reads)
        made["reads"].push_back(
            Ordered::array({read.value.storage, read.value.version, read.offset, read.bytes}));
      for (const ValueId written : one.writes) made["writes"].push_back(value(written));
      for (const auto& [from, to] : one.in_place)
        made["in_place"].push_back(Ordered::array({value(from), value(to)}));
      if (!one.algorithm.empty()) made["algorithm"] = one.algorithm;
      json["alternatives"].push_back(std::move(made));
    }
    root["operators"].push_back(std::move(json));
  }
  for (const auto& [earlier, later] : graph.control)
    root["control"].push_back(Ordered::array({earlier, later}));
  if (!graph.order.empty()) root["order"] = graph.order;
  return root.dump(-1, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace berth::graph
