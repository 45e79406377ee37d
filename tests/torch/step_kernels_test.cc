// Kernels that a program registers for libtorch's operators are called where the program calls
// them.
#include "tests/catch.h"
#include "tests/torch/step_bodies.h"

#include <berth/step_program.h>

#include <dlfcn.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <memory>

namespace {

using namespace berth::test::bodies;
using torch::Tensor;

int calls = 0;  // of the program's own kernels
Tensor own_silu(const Tensor& x) {
  ++calls;
  return x.mul(3);
}
Tensor own_celu(const Tensor& x, const c10::Scalar&) {
  ++calls;
  return x.mul(5);
}

class Kernels {
 public:
  Kernels() : library_(::torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library_.impl("silu", own_silu);
    library_.impl("celu", own_celu);
  }

 private:
  ::torch::Library library_;
};

// How often the operator's kernel of the program's own was called by the time that it returned.
template <class Operator>
Tensor counted(const Operator& op) {
  const int before = calls;
  const Tensor made = op(torch::rand({8}).mul(2));
  return made.add(1).sum() + (calls - before);
}
Tensor silu(const Tensor& x) { return torch::silu(x); }
Tensor celu(const Tensor& x) { return torch::celu(x); }

}  // namespace

TEST_CASE("A kernel of the program's own for an operator of libtorch's runs when it is called",
          "[step][barrier]") {
  const Kernels kernels;
  // One that replaces libtorch's, and one beside libtorch's for all devices.
  for (Tensor (*const op)(const Tensor&) : {silu, celu}) {
    const auto stats = as_eager([op] { return [op](int) { return counted(op); }; });
    CAPTURE(stats.to_json());
    CHECK(stats.scheduled == kSteps - 2);
    CHECK(stats.barriers == 1);
  }
}

TEST_CASE("So does one that comes between steps that are scheduled", "[step][barrier]") {
  const auto run = [](bool scheduled, const auto& tell) {
    ::torch::manual_seed(7);
    std::unique_ptr<Kernels> kernels;
    berth::torch::StepProgram program(waiting());
    Outcome outcome;
    for (int step = 0; step < kSteps; ++step) {
      if (step == 5) {
        kernels = std::make_unique<Kernels>();
        tell();
      }
      if (scheduled) program.begin();
      const Tensor left = counted(silu) + counted(celu);
      if (scheduled) (void)program.end(false);
      outcome.seen.push_back(left.clone());
    }
    outcome.stats = program.stats();
    return outcome;
  };
  const auto check = [&](const auto& tell) {
    const Outcome eager = run(false, [] {}), scheduled = run(true, tell);
    CAPTURE(scheduled.stats.to_json());
    for (int step = 0; step < kSteps; ++step) {
      CAPTURE(step, eager.seen[step], scheduled.seen[step]);
      REQUIRE(::torch::equal(eager.seen[step], scheduled.seen[step]));
    }
    CHECK(scheduled.stats.scheduled == kSteps - 4);
    CHECK(scheduled.stats.barriers == 2);
  };
  SECTION("and that the program tells of") {
    check([] { berth::torch::note_kernels(); });
  }
  SECTION("with a library that is loaded") {
    void* library = nullptr;
    check([&] { library = ::dlopen("libanl.so.1", RTLD_NOW); });  // which is not there yet
    REQUIRE(library != nullptr);
    ::dlclose(library);
  }
}
