#include "csrc/graph/graph_file.h"

#include "csrc/core/check.h"
#include "csrc/graph/columns.h"
#include "csrc/graph/generated/graph_generated.h"

#include <limits>
#include <map>

namespace berth::graph {
namespace {

namespace fb = graph_file;

constexpr std::size_t kMaxUses = std::size_t{1} << 25;  // reads, writes, pairs and edges, each
constexpr Bytes kMaxTextBytes = Bytes{64} << 20;        // names of operators
constexpr std::uint32_t kNobody = ~std::uint32_t{0};
constexpr std::uint32_t kRandom = 1, kChangesState = 2, kHostSync = 4, kCollective = 8,
                        kDrawsAgain = 16;

std::uint32_t bits_of(const Traits& traits) {
  return (traits.random ? kRandom : 0) | (traits.changes_state ? kChangesState : 0) |
         (traits.host_sync ? kHostSync : 0) | (traits.collective ? kCollective : 0) |
         (traits.draws_again ? kDrawsAgain : 0);
}

// A number that must be one of an enumerator's, up to the last of them.
template <class Enum>
Enum enumerator(std::uint32_t number, Enum last, const char* what, const std::string& name) {
  BERTH_CHECK(number <= static_cast<std::uint32_t>(last), kInput,
              "'{}' is malformed: {} {}, the last is {}", name, what, number,
              static_cast<std::uint32_t>(last));
  return static_cast<Enum>(number);
}

ValueId value_from(const fb::Value& from) { return {from.storage(), from.version()}; }

class Reader {
 public:
  Reader(const fb::Graph& from, const std::string& name)
      : from_(from),
        name_(name),
        alternatives_(from.alternatives(), "alternatives",
                      Graph::kMaxOperators * Graph::kMaxAlternatives, name),
        reads_(from.reads(), "reads", kMaxUses, name),
        writes_(from.writes(), "writes", kMaxUses, name),
        in_place_(from.in_place(), "pairs in place", kMaxUses, name),
        algorithms_(from.algorithms(), "algorithms", Graph::kMaxOperators * Graph::kMaxAlternatives,
                    name) {}

  Graph read() {
    Graph graph;
    Column storages(from_.storages(), "storages", Graph::kMaxStorages, name_);
    storages.next(storages.size(), [&](const fb::Storage* one) {
      graph.storages.push_back(
          {one->bytes(),
           enumerator(one->kind(), StorageClass::kResident, "a storage of class", name_),
           enumerator(one->role(), trace::RoleKind::kInput, "a storage of role", name_)});
    });
    Column operators(from_.operators(), "operators", Graph::kMaxOperators, name_);
    graph.operators.reserve(operators.size());
    operators.next(operators.size(), [&](const fb::Operator* one) {
      graph.operators.push_back(operator_from(*one));
    });
    Column control(from_.control(), "control edges", kMaxUses, name_);
    control.next(control.size(), [&](const fb::Edge* one) {
      graph.control.emplace_back(one->earlier(), one->later());
    });
    Column order(from_.order(), "operators in order", Graph::kMaxOperators, name_);
    order.next(order.size(), [&](OperatorId op) { graph.order.push_back(op); });
    alternatives_.check_end();
    reads_.check_end();
    writes_.check_end();
    in_place_.check_end();
    algorithms_.check_end();
    return graph;
  }

 private:
  std::string text(std::uint32_t number) {
    const std::size_t names = from_.names() ? from_.names()->size() : 0;
    BERTH_CHECK(number < names, kInput, "'{}' is malformed: name {} of {}", name_, number, names);
    const flatbuffers::String& found = *from_.names()->Get(number);
    text_bytes_ += found.size();  // a few bytes can be named again and again
    BERTH_CHECK(text_bytes_ <= kMaxTextBytes, kInput,
                "'{}' is malformed: names of more than {} bytes", name_, kMaxTextBytes);
    return found.str();
  }

  Operator operator_from(const fb::Operator& from) {
    Operator op;
    op.name = text(from.name());
    op.phase = enumerator(from.phase(), Phase::kOptimizer, "an operator of phase", name_);
    const std::uint32_t traits = from.traits();
    BERTH_CHECK(traits < 2 * kDrawsAgain, kInput, "'{}' is malformed: traits {}, the last are {}",
                name_, traits, 2 * kDrawsAgain - 1);
    op.traits = {(traits & kRandom) != 0, (traits & kChangesState) != 0, (traits & kHostSync) != 0,
                 (traits & kCollective) != 0, (traits & kDrawsAgain) != 0};
    if (from.forward() != kNobody) op.forward = from.forward();
    alternatives_.next(from.alternatives(), [&](const fb::Alternative* one) {
      op.alternatives.push_back(alternative_from(*one));
    });
    return op;
  }

  Alternative alternative_from(const fb::Alternative& from) {
    Alternative one;
    one.ns = from.ns();
    one.workspace = from.workspace();
    reads_.next(from.reads(), [&](const fb::Read* read) {
      one.reads.push_back({{read->storage(), read->version()}, read->offset(), read->bytes()});
    });
    writes_.next(from.writes(),
                 [&](const fb::Value* value) { one.writes.push_back(value_from(*value)); });
    in_place_.next(from.in_place(), [&](const fb::InPlace* pair) {
      one.in_place.emplace_back(value_from(pair->from()), value_from(pair->to()));
    });
    if (algorithms_.size() == 0) return one;
    if (const std::uint32_t number = algorithms_.next(); number != kNobody)
      one.algorithm = text(number);
    return one;
  }

  const fb::Graph& from_;
  const std::string& name_;
  Column<const fb::Alternative*> alternatives_;
  Column<const fb::Read*> reads_;
  Column<const fb::Value*> writes_;
  Column<const fb::InPlace*> in_place_;
  Column<std::uint32_t> algorithms_;
  Bytes text_bytes_ = 0;
};

}  // namespace

Graph parse_graph_file(std::span<const std::byte> data, const std::string& name) {
  std::vector<std::byte> copy;
  data = aligned(data, copy);
  constexpr SectionType kKnown[] = {SectionType::kGraph};
  const std::vector<Section> sections = read_sections(data, kKnown, name);
  Graph graph = Reader(root_table<fb::Graph>(sections, SectionType::kGraph, 1, name), name).read();
  const std::string wrong = violation(graph);
  BERTH_CHECK(wrong.empty(), kInput, "'{}': {}", name, wrong);
  return graph;
}

std::vector<std::byte> serialize_graph(const Graph& graph) {
  const std::string wrong = violation(graph);
  BERTH_CHECK(wrong.empty(), kUsage, "no graph: {}", wrong);
  std::vector<std::string> names;
  std::map<std::string, std::uint32_t, std::less<>> number_of_name;
  std::vector<fb::Storage> storages;
  std::vector<fb::Operator> operators;
  std::vector<fb::Alternative> alternatives;
  std::vector<fb::Read> reads;
  std::vector<fb::Value> writes;
  std::vector<fb::InPlace> in_place;
  std::vector<fb::Edge> control;
  const auto value = [](ValueId id) { return fb::Value(id.storage, id.version); };
  const auto count = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
  for (const Storage& storage : graph.storages)
    storages.emplace_back(storage.bytes, static_cast<std::uint32_t>(storage.kind),
                          static_cast<std::uint32_t>(storage.role));
  std::vector<std::uint32_t> algorithms;
  Bytes text_bytes = 0;
  const auto number_of = [&](const std::string& text) {
    text_bytes += text.size();
    const auto [there, added] = number_of_name.emplace(text, count(names));
    if (added) names.push_back(text);
    return there->second;
  };
  bool names_algorithms = false;
  for (const Operator& op : graph.operators) {
    operators.emplace_back(number_of(op.name), static_cast<std::uint32_t>(op.phase),
                           bits_of(op.traits), op.forward.value_or(kNobody),
                           count(op.alternatives));
    for (const Alternative& one : op.alternatives) {
      alternatives.emplace_back(one.ns, one.workspace, count(one.reads), count(one.writes),
                                count(one.in_place));
      for (const Read& read : one.reads)
        reads.emplace_back(read.offset, read.bytes, read.value.storage, read.value.version);
      for (const ValueId written : one.writes) writes.push_back(value(written));
      for (const auto& [from, to] : one.in_place) in_place.emplace_back(value(from), value(to));
      algorithms.push_back(one.algorithm.empty() ? kNobody : number_of(one.algorithm));
      names_algorithms |= !one.algorithm.empty();
    }
  }
  if (!names_algorithms) algorithms.clear();
  for (const auto& [earlier, later] : graph.control) control.emplace_back(earlier, later);
  BERTH_CHECK(text_bytes <= kMaxTextBytes, kUsage, "names of {} bytes, the limit is {}", text_bytes,
              kMaxTextBytes);
  for (const std::size_t uses : {reads.size(), writes.size(), in_place.size(), control.size()})
    BERTH_CHECK(uses <= kMaxUses, kUsage, "a graph of {} uses of values or edges, the limit is {}",
                uses, kMaxUses);

  flatbuffers::FlatBufferBuilder to;
  const auto all_names = to.CreateVectorOfStrings(names);
  const auto all_storages = to.CreateVectorOfStructs(storages);
  const auto all_operators = to.CreateVectorOfStructs(operators);
  const auto all_alternatives = to.CreateVectorOfStructs(alternatives);
  const auto all_reads = to.CreateVectorOfStructs(reads);
  const auto all_writes = to.CreateVectorOfStructs(writes);
  const auto all_in_place = to.CreateVectorOfStructs(in_place);
  const auto all_control = to.CreateVectorOfStructs(control);
  const auto all_order = to.CreateVector(graph.order);
  flatbuffers::Offset<flatbuffers::Vector<std::uint32_t>> all_algorithms;
  if (!algorithms.empty()) all_algorithms = to.CreateVector(algorithms);
  to.Finish(fb::CreateGraph(to, all_names, all_storages, all_operators, all_alternatives, all_reads,
                            all_writes, all_in_place, all_control, all_order, all_algorithms));
  return write_sections({{SectionType::kGraph, true, table_content(to)}});
}

}  // namespace berth::graph
