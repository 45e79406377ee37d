#include "csrc/facts/operator_kinds.h"

#include "tests/catch.h"

#include <string>
#include <string_view>

using namespace berth::facts;

TEST_CASE("Operators whose results are as large as contents say make the host wait", "[facts]") {
  for (const char* const name : {"aten::nonzero", "aten::masked_select", "aten::_unique2",
                                 "aten::bincount", "aten::unique_dim", "aten::nonzero.out"}) {
    CAPTURE(name);
    CHECK(sizes_by_contents(name));
    CHECK_FALSE(reads_number(name));
    CHECK(waits_for_contents(name));
  }
  for (const char* const name : {"aten::item", "aten::_local_scalar_dense", "aten::equal"}) {
    CAPTURE(name);
    CHECK(reads_number(name));
    CHECK_FALSE(sizes_by_contents(name));
    CHECK(waits_for_contents(name));
  }
  // Looks at shapes alone.
  CHECK_FALSE(waits_for_contents("aten::is_same_size"));
  CHECK_FALSE(waits_for_contents("aten::add.Tensor"));
}

TEST_CASE("Norms have running statistics in arguments 3 and 4, with any overload", "[facts]") {
  for (const RunningStatistics& known : kWithStatistics) {
    CAPTURE(known.name);
    const std::string overload = std::string(known.name) + ".out";
    CHECK(updates_statistics(overload));
    CHECK(is_statistics(overload, kRunningMean));
    CHECK(is_statistics(known.name, kRunningVariance));
    CHECK_FALSE(is_statistics(known.name, 2));
    // Backward parts only read them.
    CHECK(known.writes == (known.name.find("backward") == std::string_view::npos));
  }
  CHECK(is_statistics("aten::batch_norm", kRunningMean));
  CHECK_FALSE(updates_statistics("aten::batch_norm"));
  CHECK_FALSE(is_statistics("aten::layer_norm", kRunningMean));
}

TEST_CASE("Operators that only allocate are told from those that fill", "[facts]") {
  CHECK(only_allocates("aten::empty.memory_format"));
  CHECK(only_allocates("aten::new_empty_strided"));
  CHECK(only_allocates("aten::resize_"));
  CHECK_FALSE(only_allocates("aten::zeros"));
  // Of these, the ones that make the tensor.
  CHECK(makes_room("aten::empty_strided"));
  CHECK(makes_room("aten::empty_permuted"));
  CHECK(makes_room("aten::new_empty"));
  CHECK_FALSE(makes_room("aten::resize_"));
}

TEST_CASE("Collectives are operators of c10d in both of its libraries, and ranges of backends",
          "[facts]") {
  for (const char* const name : {"c10d::allreduce_", "_c10d_functional::all_reduce",
                                 "c10d_functional::all_reduce", "nccl:all_reduce", "gloo:send"}) {
    CAPTURE(name);
    CHECK(is_collective(name));
  }
  CHECK_FALSE(is_collective("aten::all"));
}
