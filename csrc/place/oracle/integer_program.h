#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace berth::place {

// Minimise the sum of cost times column, each column an integer within its limits, each row's sum
// within its own. Rows are kept compressed, as solvers take them.
class IntegerProgram {
 public:
  using Column = int;
  static constexpr double kInfinity = 1e30;  // what solvers take for it

  Column add_column(double cost, double lower, double upper);
  void add_row(double lower, double upper, std::span<const std::pair<Column, double>> entries);
  void add_row(double lower, double upper,
               std::initializer_list<std::pair<Column, double>> entries) {
    add_row(lower, upper, std::span(entries.begin(), entries.size()));
  }
  void fix(Column column, double value) { lower_[at(column)] = upper_[at(column)] = value; }

  [[nodiscard]] std::size_t columns() const noexcept { return cost_.size(); }
  [[nodiscard]] std::size_t rows() const noexcept { return row_lower_.size(); }

 private:
  friend class Highs;
  static std::size_t at(Column column) noexcept { return static_cast<std::size_t>(column); }

  std::vector<double> cost_, lower_, upper_;
  std::vector<double> row_lower_, row_upper_;
  std::vector<int> row_start_, entry_column_;
  std::vector<double> entry_value_;
};

struct SolverOptions {
  double seconds = kForever;
  std::uint64_t nodes = 0;  // of the search tree; 0: no limit
  std::uint64_t seed = 0;
  std::vector<double> start = {};  // a solution to begin with, one value a column, or empty
  // Columns need not be integers: the linear program, by an interior point, whose solution is none
  // of the corners. `start`, `nodes` and `found` then count for nothing.
  bool relaxed = false;
  // A better solution, one value a column.
  std::function<void(std::span<const double>)> found = {};
  // Asked again and again with the bound so far: whether to stop.
  std::function<bool(double bound)> stop = {};

  static constexpr double kForever = 1e30;
};

struct SolverResult {
  std::vector<double> values;  // of the best solution; empty: none was found
  double bound = 0;            // no solution is below
  bool complete = false;       // the best is the optimum, or there is none
  std::uint64_t nodes = 0;
};

// Solves a program with HiGHS (MIT licence, https://highs.dev) on the calling thread; floating
// point, so values are integers and rows are kept up to 1e-6 only. The library is loaded at the
// first call: where it is missing nothing else of berth is. Re-entrant; what `found` and `stop`
// throw comes out here. Throws Error(kUsage) with unavailable_solver()'s text where there is none.
[[nodiscard]] SolverResult solve(const IntegerProgram& program, const SolverOptions& options);

// Why solve() cannot be called here: what is missing and how to get it. Nothing where it can.
[[nodiscard]] const std::optional<std::string>& unavailable_solver();

}  // namespace berth::place
