// Kernels that a program registers for libtorch's operators are called where the program calls
// them.
#include "tests/catch.h"
#include "tests/torch_step/bodies.h"

#include <berth/step_program.h>

#include <ATen/CPUGeneratorImpl.h>
#include <dlfcn.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

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
    REQUIRE(stats.scheduled == kSteps - 2);
    REQUIRE(stats.barriers == 1);
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
    REQUIRE(scheduled.stats.scheduled == kSteps - 4);
    REQUIRE(scheduled.stats.barriers == 2);
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

TEST_CASE("An operator that comes in the middle of a step runs when it is called",
          "[step][barrier]") {
  static int libraries = 0;
  const auto sums = [](int from) {
    return [from] {
      const std::string name = "berth_late_" + std::to_string(libraries++);
      auto library = std::make_shared<std::unique_ptr<::torch::Library>>();
      return [=](int step) {
        const Tensor x = torch::rand({8}).mul(2);
        if (step < from) return x.add(1).sum();
        if (!*library) {
          *library = std::make_unique<::torch::Library>(::torch::Library::DEF, name, std::nullopt,
                                                        __FILE__, __LINE__);
          (*library)->def("sum(Tensor x) -> Tensor", [](const Tensor& of) {
            const auto* bytes = static_cast<const float*>(of.const_data_ptr());
            return torch::full({}, std::accumulate(bytes, bytes + of.numel(), 0.0F));
          });
        }
        return c10::Dispatcher::singleton()
            .findSchemaOrThrow((name + "::sum").c_str(), "")
            .typed<Tensor(const Tensor&)>()
            .call(x.add(1));
      };
    };
  };
  // In a step that is recorded, and in one that is scheduled.
  for (const int from : {0, 6}) {
    const auto stats = as_eager(sums(from));
    CAPTURE(from, stats.to_json());
    REQUIRE(stats.scheduled >= 3);
    REQUIRE(stats.barriers >= 1);
  }
}

TEST_CASE("Complex numbers are not divided in the place of an operand", "[step][barrier]") {
  // Kernels give other bits there for what does not fill a register.
  const auto stats = as_eager([] {
    return [](int) {
      const Tensor a = torch::randn({63}, torch::kComplexFloat).mul(2);
      const Tensor b = torch::randn({63}, torch::kComplexFloat).add(1);
      return torch::view_as_real(a.div(b)).clone();
    };
  });
  CAPTURE(stats.to_json());
  REQUIRE(stats.scheduled == kSteps - 2);
}

TEST_CASE("A slope that backward refuses is refused where backward is called", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [weight = torch::ones({8}).requires_grad_()](int step) mutable {
      const double slope = step < 6 ? 0.1 + 0.01 * step : -0.5;
      Tensor made = weight * torch::randn({8});
      const Tensor loss = torch::leaky_relu_(made, slope).sum();
      weight.mutable_grad().reset();
      try {
        loss.backward();
      } catch (const c10::Error&) {
        return torch::full({8}, -1.0);
      }
      return weight.grad().clone();
    };
  });
  CAPTURE(stats.to_json());
  REQUIRE(stats.scheduled >= 3);
}

TEST_CASE("A seed behind a draw is what the step leaves, whatever barrier comes behind it",
          "[step][barrier]") {
  // What the generator would draw.
  const auto next = [] {
    at::Generator copy = at::detail::getDefaultCPUGenerator().clone();
    return static_cast<double>(at::check_generator<at::CPUGeneratorImpl>(copy)->random());
  };
  const auto stats = as_eager([&] {
    return [&](int step) {
      const double left = next();
      torch::manual_seed(step);
      const Tensor dropped = torch::dropout(torch::ones({64}), 0.5, true);
      torch::manual_seed(step);
      return torch::cat({dropped, dropped.masked_select(dropped.gt(3)), torch::full({1}, left)});
    };
  });
  CAPTURE(stats.to_json());
  REQUIRE(stats.scheduled == kSteps - 2);
}

TEST_CASE("What a kernel writes of what it makes counts as written", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [](int) {
      Tensor x = torch::rand({8, 4}).requires_grad_();
      Tensor hot = torch::one_hot(torch::arange(4), 4).add_(1);
      const auto sorted = torch::sort(x, 1);
      std::get<0>(torch::max(x, 1)).sum().backward();
      const auto version = [](const Tensor& of) { return static_cast<double>(of._version()); };
      return torch::tensor({version(hot), version(std::get<0>(sorted)),
                            version(std::get<1>(sorted)), version(x.grad())});
    };
  });
  CAPTURE(stats.to_json());
  REQUIRE(stats.scheduled == kSteps - 2);
}

TEST_CASE("A tensor is split at bounds that the step computes", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [weight = torch::ones({8, 4}).requires_grad_()](int) mutable {
      const Tensor bounds =
          torch::bincount(torch::randint(3, {8}), {}, 3).cumsum(0).slice(0, 0, -1);
      const std::vector<Tensor> parts = (weight * 2).tensor_split(bounds);
      weight.mutable_grad().reset();
      (parts[0].sum() + 3 * parts[1].square().sum() + 5 * parts[2].sum()).backward();
      return weight.grad().clone();
    };
  });
  CAPTURE(stats.to_json());
  REQUIRE(stats.scheduled >= kSteps - 4);
}

namespace {

// A composite operator that writes a tensor before it reads one by a pointer.
Tensor filled_by_pointer(const Tensor& x) {
  Tensor made = torch::empty({4}).fill_(2);
  return made.mul(*x.const_data_ptr<float>());
}
TORCH_LIBRARY_FRAGMENT(aten, library) {
  library.def("_berth_filled_by_pointer(Tensor x) -> Tensor", filled_by_pointer);
}

}  // namespace

TEST_CASE("A composite that has written what it made itself is called again with bytes",
          "[step][barrier]") {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("aten::_berth_filled_by_pointer", "")
                      .typed<Tensor(const Tensor&)>();
  const auto stats =
      as_eager([&] { return [&](int) { return op.call(torch::rand({8}).mul(2)).add(1); }; });
  CAPTURE(stats.to_json());
  REQUIRE(stats.scheduled >= kSteps - 5);
}
