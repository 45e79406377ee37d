// The planner: whatever the problem, it is refused by name or placed legally, the bound not above.
#include "tests/fuzz/fuzz.h"
#include "tests/support/placement_check.h"

#include <berth/error.h>
#include <berth/place.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

namespace berth {
namespace {

// Reads small numbers off the input; zeros behind its end.
class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint64_t next() { return at_ < size_ ? data_[at_++] : 0; }
  bool more() const { return at_ < size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

// A head of period, alignment, seed and engine; then five bytes a buffer.
Problem read_problem(Reader& in) {
  Problem problem;
  problem.lanes[0].period = in.next() % 64;
  problem.alignment = Bytes{1} << in.next() % 5;
  while (in.more() && problem.buffers.size() < 64) {
    Buffer buffer{.size = in.next(), .birth = in.next() % 64, .length = in.next() % 70};
    const std::uint64_t alignment = in.next(), pin = in.next();
    buffer.alignment = alignment < 250 ? Bytes{1} << alignment % 8 : alignment;
    if (pin >= 200) buffer.pinned = (pin - 200) * 16;
    problem.buffers.push_back(buffer);
  }
  return problem;
}

void require(const std::optional<std::string>& broken) {
  if (!broken) return;
  std::fprintf(stderr, "broken: %s\n", broken->c_str());
  std::abort();
}

}  // namespace

namespace fuzz {

std::vector<std::pair<std::string, Input>> seeds() {
  return {{"line", {0, 0, 1, 0, 4, 0, 1, 0, 0, 1, 0, 4, 0, 0, 2, 2, 1, 0, 0, 3,
                    2, 5, 0, 0, 1, 3, 7, 0, 0, 2, 4, 1, 0, 0, 4, 7, 1, 0, 0}},
          {"ring", {12, 2, 7, 3, 9, 1, 8, 0, 0, 50, 6, 11, 3, 0, 7, 10, 5, 0, 0, 1, 0, 12, 0, 0}},
          {"pins", {0, 4, 2, 0, 9, 0, 9, 2, 201, 30, 3, 9, 1, 0, 8, 1, 4, 0, 208, 16, 5, 20, 0, 0}},
          {"empty", {}}};
}

void repair(Input&) {}

}  // namespace fuzz
}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace berth;
  Reader in(data, size);
  PlaceOptions options{.time_limit_seconds = std::numeric_limits<double>::infinity(),
                       .iteration_budget = 300};
  options.seed = in.next();
  const char* const engines[] = {"auto", "exact", "dive", "first_fit"};
  options.engine = engines[in.next() % std::size(engines)];
  const Problem problem = read_problem(in);
  try {
    require(test::check_placement(problem, place_buffers(problem, options)));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) require(std::string("refusals are usage errors"));
  }
  return 0;
}
