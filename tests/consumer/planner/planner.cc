// A program that uses the planner of an installed berth: no libtorch, no file of berth's own tree.
#include <berth/error.h>
#include <berth/place.h>
#include <berth/place_ilp.h>
#include <berth/schedule.h>
#include <berth/schedule_ilp.h>

#include <iostream>
#include <string>

// What the integer program says against solving a problem; nothing where it does.
std::string complaint(const berth::Problem& problem) {
  try {
    return berth::place_buffers(problem, {.engine = "ilp"}).proven_optimal ? "" : "no optimum";
  } catch (const berth::Error& error) {
    return error.what();
  }
}

// The same of ordering operators.
std::string complaint(const berth::StepOperators& operators) {
  berth::OrderOptions options;
  options.engine = "olla";
  try {
    return berth::order_operators(operators, options).proven_optimal ? "" : "no optimum";
  } catch (const berth::Error& error) {
    return error.what();
  }
}

// Two small values are made from a large one each, and then joined: what is made first is used up
// before the other begins.
bool orders_operators() {
  const berth::StepOperators operators{.workspaces = {0, 0, 0, 0, 0},
                                       .values = {{.bytes = 90, .maker = 0, .readers = {2}},
                                                  {.bytes = 90, .maker = 1, .readers = {3}},
                                                  {.bytes = 10, .maker = 2, .readers = {4}},
                                                  {.bytes = 10, .maker = 3, .readers = {4}}}};
  const berth::OrderResult result = berth::order_operators(operators);
  std::cout << result.peak << " of " << result.bound << " bytes\n";
  if (result.given_peak != 190 || result.peak != 110 || !result.proven_optimal) return false;
  if (complaint(operators).find("berth::schedule_ilp") == std::string::npos) return false;
  berth::use_olla();
  const std::string why = complaint(operators);
  return why.empty() || why.find("HiGHS") != std::string::npos;
}

int main() {
  if (!orders_operators()) return 1;
  berth::Problem problem;
  problem.buffers = {{.size = 1024, .birth = 0, .length = 4},
                     {.size = 512, .birth = 4, .length = 2}};
  const berth::Placement placement = berth::place_buffers(problem);
  std::cout << placement.high_water_mark << " of " << berth::lower_bound(problem) << " bytes\n";
  if (complaint(problem).find("berth::place_ilp") == std::string::npos) return 1;
  berth::use_ilp();
  const std::string why = complaint(problem);
  if (!why.empty() && why.find("HiGHS") == std::string::npos) return 1;
  return placement.high_water_mark == 1024 && placement.offsets[1] + 512 <= 1024 ? 0 : 1;
}
