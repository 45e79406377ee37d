#include "csrc/trace/step_bounds.h"

#include "tests/catch.h"
#include "tests/support/small_program.h"
#include "tests/support/trace_builder.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <variant>
#include <vector>

using namespace berth;
using test::Program;

namespace {

// Records a program that marks nothing, and where its steps end.
class Recorded {
 public:
  void* allocate(Bytes bytes, std::uint64_t) {
    ++requests_;
    return reinterpret_cast<void*>(builder_.allocate(bytes));
  }
  void free(void* block) { builder_.free(reinterpret_cast<trace::BlockId>(block)); }
  void step(const Program::Step& step) {
    program_.run(step, *this);
    ends_.push_back(requests_);
  }
  [[nodiscard]] Trace& trace() { return builder_.trace(); }
  [[nodiscard]] const std::vector<std::size_t>& ends() const { return ends_; }

 private:
  test::TraceBuilder builder_;
  Program program_;
  std::size_t requests_ = 0;
  std::vector<std::size_t> ends_;
};

// After how many requests the marks of a trace come.
std::vector<std::size_t> marks_of(const Trace& trace) {
  std::vector<std::size_t> marks;
  std::size_t requests = 0;
  for (const trace::Entry& entry : trace.entries) {
    requests += std::holds_alternative<trace::Request>(entry.event);
    if (std::holds_alternative<trace::StepMark>(entry.event)) marks.push_back(requests);
  }
  return marks;
}

}  // namespace

TEST_CASE("The sequence tells where steps of several kinds end", "[step][kinds]") {
  const bool zero_first = GENERATE(true, false);
  const std::size_t kinds = GENERATE(std::size_t{2}, std::size_t{3}, std::size_t{6});
  CAPTURE(zero_first, kinds);
  Recorded run;
  std::mt19937 random(7);
  for (int i = 0; i < 120; ++i) {
    const std::size_t kind = random() % kinds;
    const Program::Shape shape{.layers = 15, .batch = 4096 * (1 + kind), .zero_first = zero_first};
    run.step(kind % 3 == 2 ? Program::evaluation(shape) : Program::training(shape));
  }
  REQUIRE(mark_steps(run.trace()));
  // The last step may go on still.
  CHECK(marks_of(run.trace()) == std::vector(run.ends().begin(), run.ends().end() - 1));
}

TEST_CASE("The sequence tells evaluation from training that begins as it does", "[step][kinds]") {
  Recorded run;
  for (int i = 0; i < 80; ++i) {
    const Program::Shape shape{.layers = 30, .batch = 4096};
    run.step(i % 13 < 10 ? Program::training(shape) : Program::evaluation(shape));
  }
  REQUIRE(mark_steps(run.trace()));
  CHECK(marks_of(run.trace()) == std::vector(run.ends().begin(), run.ends().end() - 1));
}

TEST_CASE("Requests of random sizes have no steps", "[step][kinds]") {
  std::mt19937 random(7);
  const std::size_t sizes = GENERATE(std::size_t{5}, std::size_t{1000000});
  CAPTURE(sizes);
  Recorded run;
  for (int i = 0; i < 200; ++i) {
    Program::Step step;
    for (std::size_t k = 0, count = 1 + random() % 60; k < count; ++k)
      step.push_back({.bytes = 64 * (1 + random() % sizes), .name = 1 + random() % 20});
    run.step(step);
  }
  const Trace before = run.trace();
  CHECK_FALSE(mark_steps(run.trace()));
  CHECK(run.trace().entries.size() == before.entries.size());
}

TEST_CASE("A search for the ends of steps is given up when it is cancelled", "[step][kinds]") {
  Recorded run;
  for (int i = 0; i < 120; ++i)
    run.step(Program::training({.layers = 15, .batch = i % 3 == 0 ? Bytes{64} : Bytes{128}}));
  const std::atomic<bool> cancel{true};
  CHECK_FALSE(mark_steps(run.trace(), &cancel));
}
