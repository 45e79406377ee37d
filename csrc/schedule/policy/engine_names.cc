#include <berth/schedule.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace berth::schedule {
namespace {

bool is_one_of(std::string_view engine, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), engine) != names.end();
}

}  // namespace

std::string step_engine_of(const std::string& name) {
  return name == "berth" ? "auto" : name == "olla" ? "order" : name;
}

std::string why_not(const std::string& engine, bool has_budget, bool has_rates) {
  const auto& engines = step_engines();
  if (std::find(engines.begin(), engines.end(), engine) == engines.end())
    return fmt::format("engine is '{}'; one of {}, berth, olla, eager is wanted", engine,
                       fmt::join(engines, ", "));
  if (is_one_of(engine, {"offload", "vdnn", "dymem"}) && !has_rates)
    return fmt::format("the engine {} offloads to the host: copy_rate is not given", engine);
  if (!has_budget && !is_one_of(engine, {"auto", "order", "release"}))
    return fmt::format("the engine {} recomputes what does not fit a budget: none is given",
                       engine);
  return {};
}

}  // namespace berth::schedule
