#include "csrc/cli/summaries/peak_holders.h"

#include "csrc/trace/operator_names.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace berth::cli {
namespace {

using trace::StringId;

constexpr trace::Tick kNever = std::numeric_limits<trace::Tick>::max();

// A block from its request to its free.
struct Block {
  Bytes bytes = 0;
  trace::Tick born = 0, freed = kNever;
  StringId module = 0, op = 0;
  trace::RoleKind role = trace::RoleKind::kUnknown;
};

// What is open on one thread, outermost first.
struct Thread {
  struct Operator {
    std::uint64_t op = 0;
    StringId name = 0, module = 0;
  };
  std::vector<std::pair<std::uint64_t, StringId>> modules;  // range and name
  std::vector<Operator> operators;

  [[nodiscard]] StringId module() const {
    if (!modules.empty()) return modules.back().second;
    for (auto op = operators.rbegin(); op != operators.rend(); ++op)
      if (op->module != 0) return op->module;
    return 0;
  }
};

class Walk {
 public:
  explicit Walk(const Trace& trace) : trace_(trace) {
    for (const trace::Entry& entry : trace.entries)
      std::visit([&](const auto& event) { see(entry, event); }, entry.event);
  }

  Bytes peak = 0;
  trace::Tick tick = 0;
  std::vector<Block> blocks;

 private:
  void see(const trace::Entry& entry, const trace::Request& request) {
    const Thread& thread = threads_[entry.thread];
    Block block{.bytes = align_up(request.bytes, trace_.alignment), .born = entry.tick};
    block.module = thread.module();
    for (auto op = thread.operators.rbegin(); op != thread.operators.rend(); ++op) {
      block.op = op->name;
      if (!trace::only_allocates(trace_.name(op->name))) break;
    }
    index_[request.id] = blocks.size();
    blocks.push_back(block);
    live_ += block.bytes;
    if (live_ > peak) {
      peak = live_;
      tick = entry.tick;
    }
  }
  void see(const trace::Entry& entry, const trace::Free& free) {
    Block* const block = find(free.id);
    if (block == nullptr || block->freed != kNever) return;
    block->freed = entry.tick;
    live_ -= block->bytes;
  }
  void see(const trace::Entry& entry, const trace::RangeBegin& range) {
    if (range.kind == trace::RangeKind::kModule)
      threads_[entry.thread].modules.emplace_back(range.range, range.name);
  }
  // A range may end out of turn, or on another thread than it began.
  void see(const trace::Entry& entry, const trace::RangeEnd& range) {
    auto& modules = threads_[entry.thread].modules;
    const auto open = std::find_if(modules.rbegin(), modules.rend(),
                                   [&](const auto& one) { return one.first == range.range; });
    if (open != modules.rend()) modules.erase(std::next(open).base());
  }
  void see(const trace::Entry& entry, const trace::OperatorBegin& op) {
    Thread& thread = threads_[entry.thread];
    StringId module = 0;
    if (op.sequence >= 0) {
      if (op.backward) {
        const auto made = makers_.find({op.forward_thread, op.sequence});
        if (made != makers_.end()) module = made->second;
      } else {
        makers_[{entry.thread, op.sequence}] = thread.module();
      }
    }
    thread.operators.push_back({op.op, op.name, module});
  }
  void see(const trace::Entry& entry, const trace::OperatorEnd& op) {
    auto& operators = threads_[entry.thread].operators;
    const auto open = std::find_if(operators.rbegin(), operators.rend(),
                                   [&](const auto& one) { return one.op == op.op; });
    if (open != operators.rend()) operators.erase(std::next(open).base());
  }
  void see(const trace::Entry& entry, const trace::Operand& operand) {
    Block* const block = find(operand.block);
    if (block != nullptr && block->module == 0) block->module = threads_[entry.thread].module();
  }
  void see(const trace::Entry&, const trace::Role& role) {
    if (Block* const block = find(role.id)) block->role = role.role;
  }
  template <class Other>
  void see(const trace::Entry&, const Other&) {}

  Block* find(trace::BlockId id) {
    const auto found = index_.find(id);
    return found == index_.end() ? nullptr : &blocks[found->second];
  }

  const Trace& trace_;
  std::unordered_map<trace::ThreadId, Thread> threads_;
  std::unordered_map<trace::BlockId, std::size_t> index_;
  // The module of a forward operator, by its thread and autograd's number.
  std::map<std::pair<trace::ThreadId, std::int64_t>, StringId> makers_;
  Bytes live_ = 0;
};

// "layers.3.mlp" -> "layers.*.mlp".
std::string without_numbers(std::string_view name) {
  std::string text;
  while (true) {
    const std::size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const bool number =
        !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    text += number ? "*" : part;
    if (dot == std::string_view::npos) return text;
    text += '.';
    name.remove_prefix(dot + 1);
  }
}

std::string name_of(trace::RoleKind role) {
  switch (role) {
    case trace::RoleKind::kParameter:
      return "parameter";
    case trace::RoleKind::kGradient:
      return "gradient";
    case trace::RoleKind::kOptimizer:
      return "optimizer";
    case trace::RoleKind::kActivation:
      return "activation";
    case trace::RoleKind::kWorkspace:
      return "workspace";
    case trace::RoleKind::kInput:
      return "input";
    case trace::RoleKind::kUnknown:
      break;
  }
  return "";
}

using Key = std::tuple<std::string, std::string, std::string>;  // module, operator, role

class Sums {
 public:
  void add(const Key& key, Bytes bytes) {
    PeakHolders::Holder& holder = sums_[key];
    std::tie(holder.module, holder.op, holder.role) = key;
    holder.bytes += bytes;
    ++holder.blocks;
  }
  [[nodiscard]] std::vector<PeakHolders::Holder> take() const {
    std::vector<PeakHolders::Holder> holders;
    for (const auto& [key, holder] : sums_) holders.push_back(holder);
    std::stable_sort(holders.begin(), holders.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return holders;
  }

 private:
  std::map<Key, PeakHolders::Holder> sums_;
};

}  // namespace

PeakHolders find_peak_holders(const Trace& trace) {
  const Walk walk(trace);
  PeakHolders found{.peak = walk.peak, .tick = walk.tick};
  std::unordered_map<StringId, std::string> modules;
  Sums all, by_module, by_operator, by_role;
  for (const Block& block : walk.blocks) {
    if (block.born > walk.tick || block.freed <= walk.tick) continue;
    const auto [module, fresh] = modules.try_emplace(block.module);
    if (fresh) module->second = without_numbers(trace.name(block.module));
    const std::string op(trace.name(block.op)), role = name_of(block.role);
    all.add({module->second, op, role}, block.bytes);
    by_module.add({module->second, "", ""}, block.bytes);
    by_operator.add({"", op, ""}, block.bytes);
    by_role.add({"", "", role}, block.bytes);
  }
  found.holders = all.take();
  found.by_module = by_module.take();
  found.by_operator = by_operator.take();
  found.by_role = by_role.take();
  return found;
}

}  // namespace berth::cli
