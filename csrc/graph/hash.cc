#include "csrc/graph/hash.h"

#include "csrc/core/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace berth::graph {
namespace {

// A hash of what it was given, in order. Lists begin with their lengths, so that two graphs do not
// give the same numbers in the same order.
class Hasher {
 public:
  void add(std::uint64_t value) noexcept { hash_ = hash_combine(hash_, value); }
  void add(ValueId value) noexcept {
    add(value.storage);
    add(value.version);
  }
  void add(std::string_view text) noexcept { add(checksum(std::as_bytes(std::span(text)))); }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

void add(Hasher& to, const Alternative& one) noexcept {
  to.add(one.ns);
  to.add(one.workspace);
  to.add(one.reads.size());
  for (const Read& read : one.reads) {
    to.add(read.value);
    to.add(read.offset);
    to.add(read.bytes);
  }
  to.add(one.writes.size());
  for (const ValueId& written : one.writes) to.add(written);
  to.add(one.in_place.size());
  for (const auto& [from, result] : one.in_place) {
    to.add(from);
    to.add(result);
  }
  // Not where it is not said, so that graphs keep the hash that they had without.
  if (!one.algorithm.empty()) to.add(one.algorithm);
}

void add(Hasher& to, const Operator& op) noexcept {
  to.add(op.name);
  to.add(static_cast<std::uint64_t>(op.phase));
  for (const bool trait :
       {op.traits.random, op.traits.changes_state, op.traits.host_sync, op.traits.collective})
    to.add(std::uint64_t{trait});
  if (op.traits.draws_again) to.add(std::string_view("draws_again"));
  to.add(op.forward ? std::uint64_t{*op.forward} + 1 : 0);
  to.add(op.alternatives.size());
  for (const Alternative& one : op.alternatives) add(to, one);
}

}  // namespace

std::uint64_t hash_of(const Graph& graph) noexcept {
  Hasher to;
  to.add(graph.storages.size());
  for (const Storage& storage : graph.storages) {
    to.add(storage.bytes);
    to.add(static_cast<std::uint64_t>(storage.kind));
    to.add(static_cast<std::uint64_t>(storage.role));
  }
  to.add(graph.operators.size());
  for (const Operator& op : graph.operators) add(to, op);
  to.add(graph.control.size());
  for (const auto& [earlier, later] : graph.control) {
    to.add(earlier);
    to.add(later);
  }
  to.add(graph.order.size());
  for (const OperatorId op : graph.order) to.add(op);
  return std::max<std::uint64_t>(to.hash(), 1);
}

std::vector<OperatorIdentity> identities_of(const Graph& graph) {
  std::vector<OperatorIdentity> identities;
  identities.reserve(graph.operators.size());
  for (const Operator& op : graph.operators) {
    Hasher to;
    const auto add_storage = [&](ValueId value) {
      to.add(value);
      to.add(graph.storages[value.storage].bytes);
    };
    const Alternative& one = op.alternatives.front();
    to.add(one.reads.size());
    for (const Read& read : one.reads) add_storage(read.value);
    to.add(one.writes.size());
    for (const ValueId& written : one.writes) add_storage(written);
    identities.push_back({op.name, to.hash()});
  }
  return identities;
}

std::string difference(const Schedule& schedule, const Graph& graph) {
  if (schedule.operators.empty()) return {};
  const std::vector<OperatorIdentity> identities = identities_of(graph);
  const auto [theirs, ours] = std::mismatch(schedule.operators.begin(), schedule.operators.end(),
                                            identities.begin(), identities.end());
  if (theirs == schedule.operators.end() && ours == identities.end()) return {};
  const std::string counts =
      identities.size() == schedule.operators.size()
          ? fmt::format("it is for another step of {} operators", identities.size())
          : fmt::format("it is for a step of {} operators, this one has {}",
                        schedule.operators.size(), identities.size());
  const auto at = ours - identities.begin();
  if (theirs != schedule.operators.end() && ours != identities.end() && theirs->name == ours->name)
    return fmt::format("{}: operator {}, {}, takes or makes others, or of other sizes", counts, at,
                       ours->name);
  const auto name = [](auto one, auto end) { return one == end ? "nothing" : one->name; };
  return fmt::format("{}: operator {} is {} there and {} here", counts, at,
                     name(theirs, schedule.operators.end()), name(ours, identities.cend()));
}

}  // namespace berth::graph
