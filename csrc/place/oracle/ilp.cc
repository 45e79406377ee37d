#include "csrc/core/check.h"
#include "csrc/place/fits/pyramid.h"
#include "csrc/place/ilp_engine.h"
#include "csrc/place/oracle/integer_program.h"

#include <berth/place_ilp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace berth {
namespace place {
namespace {

constexpr std::size_t kMaxBuffers = 20'000;
constexpr double kMaxUnits = 0x1p49;        // integers stay exact in sums of doubles
constexpr double kMaxProvenUnits = 0x1p20;  // times the solver's tolerance: below one unit
constexpr double kTolerance = 1e-3;         // of a bound in units

bool are_twins(const Conflicts& conflicts, Index i, Index j) {
  const auto key = [&](Index b) {
    const Buffer& buffer = conflicts.problem().buffers[b];
    return std::tuple{buffer.lane,   buffer.branch,      buffer.birth,
                      buffer.length, conflicts.bytes(b), conflicts.unit(b)};
  };
  return key(i) == key(j);
}

// A placement problem as a program, and its columns.
class Model {
 public:
  Model(const Conflicts& conflicts, FirstFit& first_fit, const IlpSettings& settings)
      : conflicts_(conflicts), first_fit_(first_fit), settings_(settings) {
    set_unit();
    limit_ = units(settings.form == IlpForm::kTight ? settings.best->high_water_mark : total());
    BERTH_CHECK(limit_ <= kMaxUnits, kUsage,
                "an integer program of {} units of {} bytes exceeds its limit of 2^49 units",
                limit_, unit_);
    add_offsets();
    add_pairs();
    if (settings.form == IlpForm::kPyramid) fix_pyramid();
  }

  [[nodiscard]] const IntegerProgram& program() const noexcept { return program_; }

  // The best known placement as values of the columns.
  [[nodiscard]] std::vector<double> start() const {
    std::vector<Bytes> offsets = settings_.best->offsets;
    sort_twins(offsets);
    std::vector<double> values(program_.columns());
    values[0] = limit_;
    for (Index i = 0; i < conflicts_.size(); ++i) values[i + 1] = units(offsets[i]) / step(i);
    for (const auto& [i, j, column] : pairs_)
      values[static_cast<std::size_t>(column)] = offsets[i] < offsets[j] ? 1 : 0;
    return values;
  }

  // First fit in the order of a solution's offsets.
  [[nodiscard]] Packing packing(std::span<const double> values) const {
    std::vector<double> offsets(conflicts_.size());
    std::vector<Index> order(conflicts_.size());
    std::iota(order.begin(), order.end(), 0);
    for (Index i = 0; i < conflicts_.size(); ++i) offsets[i] = values[i + 1] * step(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](Index i, Index j) { return offsets[i] < offsets[j]; });
    return *first_fit_.run(order, Fit::kFirst, std::numeric_limits<Bytes>::max(), nullptr);
  }

  // What the solver's bound proves.
  [[nodiscard]] Bytes proven(double bound) const {
    if (settings_.form != IlpForm::kTight || limit_ > kMaxProvenUnits || !(bound > 0)) return 0;
    return static_cast<Bytes>(std::ceil(std::min(bound, limit_) - kTolerance)) * unit_;
  }

 private:
  struct Pair {
    Index i, j;
    IntegerProgram::Column column;  // 1: i lies below j
  };

  [[nodiscard]] double units(Bytes bytes) const {
    return static_cast<double>(bytes / unit_) + (bytes % unit_ != 0 ? 1 : 0);
  }
  // An offset's column counts steps of so many units.
  [[nodiscard]] double step(Index i) const {
    return conflicts_.unit(i) > unit_ ? static_cast<double>(conflicts_.unit(i) / unit_) : 1;
  }
  [[nodiscard]] IntegerProgram::Column offset_of(Index i) const {
    return static_cast<IntegerProgram::Column>(i) + 1;
  }
  [[nodiscard]] const std::optional<Bytes>& pin(Index i) const {
    return conflicts_.problem().buffers[i].pinned;
  }

  // An optimum has its offsets at sums of sizes above 0 or a pin, rounded up to alignments.
  void set_unit() {
    unit_ = 0;
    for (Index i = 0; i < conflicts_.size(); ++i) {
      unit_ = std::gcd(unit_, conflicts_.bytes(i));
      if (pin(i)) unit_ = std::gcd(unit_, *pin(i));
    }
    Bytes common = unit_;
    for (Index i = 0; i < conflicts_.size(); ++i) {
      if (unit_ % conflicts_.unit(i) != 0) common = std::gcd(common, conflicts_.unit(i));
    }
    unit_ = std::max<Bytes>(common, 1);
  }

  // All side by side, above the pins.
  [[nodiscard]] Bytes total() const {
    Bytes sum = 0, pins = 0;
    for (Index i = 0; i < conflicts_.size(); ++i) {
      sum = align_up(sum, conflicts_.unit(i)) + conflicts_.bytes(i);
      if (pin(i)) pins = std::max(pins, *pin(i) + conflicts_.bytes(i));
    }
    return sum + pins;
  }

  void add_offsets() {
    const bool tight = settings_.form == IlpForm::kTight;
    const IntegerProgram::Column peak =
        program_.add_column(1, tight ? units(settings_.bound) : 0, limit_);
    for (Index i = 0; i < conflicts_.size(); ++i) {
      const double size = units(conflicts_.bytes(i));
      const IntegerProgram::Column offset =
          program_.add_column(0, 0, std::floor((limit_ - size) / step(i)));
      if (pin(i)) program_.fix(offset, units(*pin(i)) / step(i));
      program_.add_row(-IntegerProgram::kInfinity, -size, {{offset, step(i)}, {peak, -1}});
    }
  }

  void add_pairs() {
    const std::size_t count = conflicts_.size();
    for (Index i = 0; i < count && count <= kMaxBuffers; ++i) {
      for (Index j = i + 1; j < count; ++j) {
        if ((pin(i) && pin(j)) || !conflicts_.conflict(i, j)) continue;
        ++pair_count_;
        BERTH_CHECK(pair_count_ <= IlpEngine::kMaxPairs, kUsage,
                    "an integer program takes at most {} pairs of buffers alive together, and the "
                    "first {} of {} buffers have more",
                    IlpEngine::kMaxPairs, i + 1, count);
        add_pair(i, j);
      }
    }
    BERTH_CHECK(count <= kMaxBuffers, kUsage, "an integer program takes at most {} buffers, not {}",
                kMaxBuffers, count);
  }

  void add_pair(Index i, Index j) {
    const double size_i = units(conflicts_.bytes(i)), size_j = units(conflicts_.bytes(j));
    if (settings_.form == IlpForm::kTight && !pin(i) && !pin(j) && are_twins(conflicts_, i, j)) {
      program_.add_row(-IntegerProgram::kInfinity, -size_i,
                       {{offset_of(i), step(i)}, {offset_of(j), -step(j)}});
      return;
    }
    const IntegerProgram::Column below = program_.add_column(0, 0, 1);
    program_.add_row(-IntegerProgram::kInfinity, limit_ - size_i,
                     {{offset_of(i), step(i)}, {offset_of(j), -step(j)}, {below, limit_}});
    program_.add_row(-IntegerProgram::kInfinity, -size_j,
                     {{offset_of(j), step(j)}, {offset_of(i), -step(i)}, {below, -limit_}});
    pairs_.push_back({i, j, below});
  }

  void fix_pyramid() {
    const auto placed = first_fit_.run(pyramid_order(conflicts_, first_fit_), Fit::kFirst,
                                       std::numeric_limits<Bytes>::max(), nullptr);
    for (const Index i : pyramid(conflicts_))
      program_.fix(offset_of(i), units(placed->offsets[i]) / step(i));
  }

  // Twins in ascending order, as the program wants them.
  void sort_twins(std::vector<Bytes>& offsets) const {
    using Key =
        std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t, Bytes, Bytes>;
    std::map<Key, std::vector<Index>> groups;
    for (Index i = 0; i < conflicts_.size(); ++i) {
      const Buffer& buffer = conflicts_.problem().buffers[i];
      if (buffer.pinned) continue;
      groups[{buffer.lane, buffer.branch, buffer.birth, buffer.length, conflicts_.bytes(i),
              conflicts_.unit(i)}]
          .push_back(i);
    }
    for (const auto& [key, twins] : groups) {
      std::vector<Bytes> sorted;
      for (const Index i : twins) sorted.push_back(offsets[i]);
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t k = 0; k < twins.size(); ++k) offsets[twins[k]] = sorted[k];
    }
  }

  const Conflicts& conflicts_;
  FirstFit& first_fit_;
  const IlpSettings& settings_;
  IntegerProgram program_;
  std::vector<Pair> pairs_;
  std::size_t pair_count_ = 0;
  Bytes unit_ = 1;
  double limit_ = 0;  // M, in units
};

IlpResult solve_placement(const Conflicts& conflicts, FirstFit& first_fit,
                          const IlpSettings& settings, const IlpEvents& events) {
  BERTH_CHECK(!unavailable_solver(), kUsage, "{}", *unavailable_solver());
  const Model model(conflicts, first_fit, settings);
  SolverOptions options;
  options.seconds = settings.seconds;
  options.nodes = settings.nodes;
  options.seed = settings.seed;
  if (settings.form == IlpForm::kTight) options.start = model.start();
  options.found = [&](std::span<const double> values) { events.found(model.packing(values)); };
  options.stop = [&](double bound) { return events.stop(model.proven(bound)); };
  const SolverResult solved = solve(model.program(), options);
  if (!solved.values.empty()) events.found(model.packing(solved.values));
  return {model.proven(solved.bound), solved.nodes};
}

constexpr IlpEngine kEngine{unavailable_solver, solve_placement};

}  // namespace
}  // namespace place

void use_ilp() { place::set_ilp_engine(place::kEngine); }

}  // namespace berth
