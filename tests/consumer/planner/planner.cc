// A program that uses the planner of an installed berth: no libtorch, no file of berth's own tree.
#include <berth/error.h>
#include <berth/place.h>
#include <berth/place_ilp.h>

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

int main() {
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
