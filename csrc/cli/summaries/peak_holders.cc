#include "csrc/cli/summaries/peak_holders.h"

#include "csrc/trace/role_names.h"
#include "csrc/trace/traced_run.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace berth::cli {
namespace {

using trace::StringId;

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
  const TracedRun traced(trace);
  PeakHolders found{.peak = traced.peak(), .tick = traced.peak_tick()};
  std::unordered_map<StringId, std::string> modules;
  Sums all, by_module, by_operator, by_role;
  for (const TracedBlock& block : traced.blocks()) {
    if (!block.lives_at(traced.peak_tick())) continue;
    const auto [module, fresh] = modules.try_emplace(block.origin.module);
    if (fresh) module->second = without_numbers(trace.name(block.origin.module));
    const std::string op(trace.name(block.origin.op)), role(name_of(block.role));
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
