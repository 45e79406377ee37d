// A program that uses the planner of an installed berth: no libtorch, no file of berth's own tree.
#include <berth/place.h>

#include <iostream>

int main() {
  berth::Problem problem;
  problem.buffers = {{.size = 1024, .birth = 0, .length = 4},
                     {.size = 512, .birth = 4, .length = 2}};
  const berth::Placement placement = berth::place_buffers(problem);
  std::cout << placement.high_water_mark << " of " << berth::lower_bound(problem) << " bytes\n";
  return placement.high_water_mark == 1024 && placement.offsets[1] + 512 <= 1024 ? 0 : 1;
}
