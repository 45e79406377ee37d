#include "csrc/place/oracle/integer_program.h"
#include "tests/catch.h"

#include <berth/error.h>

using namespace berth;
using Catch::Matchers::Contains;

// integer_program.cc as it is built on a machine without HiGHS.
TEST_CASE("A build without HiGHS says so and how to get it", "[place][ilp]") {
  REQUIRE_THAT(place::unavailable_solver().value(),
               Contains("this berth was built without it") && Contains("cmake/setup"));
  try {
    (void)place::solve({}, {});
    FAIL("solved");
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kUsage);
    REQUIRE(error.what() == *place::unavailable_solver());
  }
}
