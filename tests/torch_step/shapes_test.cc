// Steps whose tensors get other shapes: because the body says so, or because data do.
#include "tests/catch.h"
#include "tests/torch_step/bodies.h"

#include <berth/step_program.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace berth::test::bodies;
using torch::Tensor;

Tensor weights() { return torch::linspace(-1, 1, 64).reshape({8, 8}); }

Tensor scaled(const Tensor& x, const c10::Dict<std::string, double>& by) {
  return x.mul(by.at("factor"));
}
Tensor grow(const Tensor& x) {  // its schema does not say so
  x.resize_({x.size(0) * 2});
  return x.fill_(3).sum();
}

}  // namespace

TORCH_LIBRARY(berth_shapes_test, library) {
  library.def("scaled(Tensor x, Dict(str, float) by) -> Tensor");
  library.def("grow(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(berth_shapes_test, CPU, library) {
  library.impl("scaled", scaled);
  library.impl("grow", grow);
}

TEST_CASE("Numbers that a step's first program had go on in the program that it changes to",
          "[step]") {
  const auto stats = as_eager([] {
    return [w = weights()](int step) {
      // Two kinds of steps that begin alike; the last one has the number of the other kind.
      constexpr std::array<double, kSteps> numbers = {2, 3, 2, 3, 5, 3, 2, 3, 3};
      const Tensor x = torch::randn({4, 8}).clamp_max(numbers[step] / 10).matmul(w);
      return step % 2 == 0 ? x.relu() : x.tanh();
    };
  });
  CHECK(stats.scheduled >= 4);
}

TEST_CASE("A step may give its tensors another shape", "[step][barrier]") {
  const auto scheduled = [](const std::function<Body()>& make) {
    for (const double share : {0.0, 0.5}) {
      const auto stats = as_eager(make, {.memory_share = share});
      CAPTURE(share, stats.last_refusal, stats.last_divergence);
      CHECK(stats.refused == 0);
      CHECK(stats.scheduled >= 5);
    }
  };
  SECTION("by a place for the result that is too small") {
    scheduled([] {
      return [w = weights()](int) {
        const Tensor x = torch::randn({64, 8}).matmul(w).relu();
        Tensor sum = torch::empty({0});
        torch::add_out(sum, x, x, 2);
        const Tensor before = sum.mul(3);
        sum.mul_(2);
        return before.sum() + sum.matmul(w).sum();
      };
    });
  }
  SECTION("by one that another step left empty") {
    scheduled([] {
      return [w = weights(), kept = torch::empty({0})](int) mutable {
        const Tensor x = torch::randn({64, 8}).matmul(w);
        torch::mul_out(kept, x, x);
        const Tensor sum = kept.sum();
        kept = torch::empty({0});
        return sum;
      };
    });
  }
  SECTION("by one that is too large") {
    scheduled([] {
      return [w = weights()](int) {
        const Tensor x = torch::randn({16, 8}).matmul(w);
        Tensor room = torch::ones({64, 8}).mul(2);
        const Tensor all = room.view({-1});
        Tensor part = room.detach();
        part.resize_({16, 8});
        part.copy_(x);
        return all.sum() + part.mul(x).sum();
      };
    });
  }
  SECTION("and back") {
    scheduled([] {
      return [w = weights(), buffer = torch::zeros({4})](int step) {
        const Tensor x = torch::randn({64, 8}).matmul(w).relu();
        buffer.resize_({64, 8}).copy_(x);
        const Tensor early = buffer.matmul(w).sum();
        buffer.resize_({4}).fill_(step);
        return early + buffer.sum() + x.sum();
      };
    });
  }
  SECTION("of lists that it does not return") {
    scheduled([] {
      return [w = weights()](int) {
        const Tensor x = torch::randn({16, 8}).matmul(w);
        const Tensor room = torch::ones({64, 64}), all = room.view({-1});
        const std::vector<Tensor> parts{torch::empty({0}), room.resize_({0})};
        at::_foreach_mul_out(parts, {x, x}, 3);
        return parts[0].sum() + parts[1].mul(2).sum() + all.sum();
      };
    });
  }
  SECTION("within an operator that nobody knows") {
    scheduled([] {
      return [](int step) {
        const Tensor x = torch::randn({64}).add(step);
        const auto op =
            c10::Dispatcher::singleton().findSchemaOrThrow("berth_shapes_test::grow", "");
        const Tensor sum = op.typed<Tensor(const Tensor&)>().call(x);
        return sum + x.mul(2).sum();
      };
    });
  }
}

TEST_CASE("A barrier that gives a tensor another size than before leaves the program",
          "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights()](int step) {
      const Tensor x = torch::randn({8, 8}).matmul(w);
      const Tensor mask = x.new_zeros({8});
      mask.slice(0, 0, step < 4 ? 4 : 1 + step % 3).fill_(1);
      Tensor chosen = torch::empty({0}, torch::kLong);
      torch::nonzero_out(chosen, mask);
      return chosen.sum().add(x.sum()).add(chosen.size(0));
    };
  });
  CHECK(stats.refused == 0);
  CHECK(stats.scheduled >= 2);
}

TEST_CASE("A draw whose length data decide may stand in a step that sets its generator",
          "[step][barrier]") {
  for (const double share : {0.0, 0.5}) {
    const auto stats = as_eager(
        [] {
          return [w = weights()](int step) {
            const Tensor x = torch::rand({64, 8}).matmul(w).abs();
            const Tensor counts = torch::poisson(x.mul(3 + step)), after = torch::randn({8, 8});
            const Tensor before = torch::rand({8, 8});
            torch::manual_seed(step);
            const Tensor again = torch::poisson(x) + torch::bernoulli(x.clamp(0, 1)) +
                                 torch::rrelu(x - 1, 0.1, 0.5, true);
            return (counts + again).matmul(w).matmul(before + after + torch::rand({8, 8})).sum();
          };
        },
        {.memory_share = share});
    CAPTURE(stats.to_json());
    CHECK(stats.refused == 0);
    CHECK(stats.scheduled >= 5);
  }
}

TEST_CASE("A pure operator that takes an object runs when it is called", "[step][barrier]") {
  berth::torch::pure("berth_shapes_test::scaled");
  const auto stats = as_eager([] {
    return [w = weights()](int step) {
      c10::Dict<std::string, double> by;
      by.insert("factor", 0.5 * step);
      const auto op =
          c10::Dispatcher::singleton().findSchemaOrThrow("berth_shapes_test::scaled", "");
      return op.typed<Tensor(const Tensor&, const c10::Dict<std::string, double>&)>()
          .call(torch::randn({8, 8}).matmul(w), by)
          .relu()
          .sum();
    };
  });
  CHECK(stats.refused == 0);
  CHECK(stats.scheduled >= 5);
}

TEST_CASE("Tensors that are not dense are those of barriers", "[step][barrier]") {
  const auto sparse = [] {
    const Tensor table = torch::randn({50, 8}).requires_grad_(true),
                 w = weights().requires_grad_(true);
    return [=](int) {
      const Tensor ids = torch::randint(50, {16});
      const Tensor rows = torch::embedding(table, ids, -1, false, /*sparse=*/true).matmul(w);
      const Tensor loss = rows.relu().square().sum();
      loss.backward();
      const torch::NoGradGuard no_gradients;
      const Tensor values = table.grad()._values().mul(2).sum();
      table.add_(table.grad(), -0.01);
      w.sub_(w.grad(), 0.01);
      const Tensor left = torch::cat(
          {loss.reshape({1}), values.reshape({1}), table.grad().to_dense().flatten(), w.flatten()});
      table.mutable_grad().reset();
      w.mutable_grad().reset();
      return left;
    };
  };
  const auto quantized = [] {
    return [w = weights()](int) {
      const Tensor x = torch::randn({16, 8}).matmul(w);
      const Tensor q = torch::quantize_per_tensor(x, 0.1, 3, torch::kQInt8);
      return q.dequantize().matmul(w).sum() + q.int_repr().sum() + x.sum();
    };
  };
  const auto kept = [] {  // and what it was made of is written later
    return [w = weights()](int) {
      const Tensor values = torch::randn({8}).matmul(w), at = torch::arange(8).reshape({1, 8});
      const Tensor made = torch::_sparse_coo_tensor_unsafe(at, values, {8});
      values.mul_(2);
      const Tensor after = made.to_dense();
      made._values().add_(1);
      return after.sum() + values.mul(3).sum() + made.to_dense().dot(w[0]);
    };
  };
  for (const double share : {0.0, 0.6}) {
    for (const auto& make : {std::function<Body()>(sparse), std::function<Body()>(quantized),
                             std::function<Body()>(kept)}) {
      const auto stats = as_eager(make, {.memory_share = share});
      CAPTURE(share, stats.to_json());
      CHECK(stats.refused == 0);
      CHECK(stats.scheduled >= 5);
    }
  }
}

namespace {

// Experts, to each of which a router sends the rows that it chooses.
Body experts() {
  const Tensor router = torch::randn({8, 3}), w = weights().requires_grad_(true);
  std::vector<Tensor> of;
  for (int n = 0; n < 3; ++n) of.push_back(torch::randn({8, 8}).requires_grad_(true));
  return [=](int) {
    const Tensor x = torch::randn({64, 8}).matmul(w).relu();
    const Tensor best = x.matmul(router).argmax(1);
    Tensor out = torch::zeros({64, 8});
    for (int n = 0; n < 3; ++n) {
      const Tensor rows = best.eq(n).nonzero().squeeze(1);
      const Tensor made = x.index_select(0, rows).matmul(of[static_cast<std::size_t>(n)]).tanh();
      out = out.index_add(0, rows, torch::dropout(made, 0.1, true));
    }
    const Tensor loss = out.matmul(w).square().mean();
    loss.backward();
    const torch::NoGradGuard no_gradients;
    for (const Tensor& one : of) one.sub_(one.grad(), 0.01);
    const Tensor left = torch::cat({loss.reshape({1}), w.grad().flatten(), of[1].flatten()});
    for (const Tensor& one : of) one.mutable_grad().reset();
    w.mutable_grad().reset();
    return left;
  };
}

// A mask chooses what counts; now and then as many as before.
Body masked() {
  const Tensor w = weights().requires_grad_(true);
  return [=](int) {
    const Tensor x = torch::randn({12, 8});
    const Tensor losses = x.matmul(w).square().sum(1);
    const Tensor chosen = losses.index({torch::rand({12}).gt(0.5)});
    const Tensor loss = chosen.mean() + losses.sum() * 0.1;
    loss.backward();
    const torch::NoGradGuard no_gradients;
    w.sub_(w.grad(), 0.01);
    const Tensor left = torch::cat({loss.reshape({1}), w.grad().flatten()});
    w.mutable_grad().reset();
    return left;
  };
}

}  // namespace

TEST_CASE("A step in which data decide shapes runs by a schedule", "[step][barrier]") {
  for (const double share : {0.0, 0.5}) {
    const auto stats = as_eager(experts, {.memory_share = share});
    CAPTURE(share, stats.to_json());
    CHECK(stats.scheduled >= 5);
    CHECK(stats.barriers > 0);
    // Most of it is no barrier.
    CHECK(stats.barriers * 2 < stats.operators * 1.5);
  }
  const auto stats = as_eager(masked);
  CAPTURE(stats.to_json());
  CHECK(stats.scheduled >= 4);
}

TEST_CASE("Sizes that come with the data are those of another step", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights(), data = torch::randn({32, 8})](int step) {
      const Tensor x = data.slice(0, 0, step % 2 == 0 ? 16 : 24).matmul(w);
      return x.sum().add(x.relu().sum().item<float>());
    };
  });
  CHECK(stats.programs == 2);
  CHECK(stats.barriers == 0);
}

TEST_CASE("What leaves a program because data decided a shape says so", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights()](int step) {
      const Tensor x = torch::ones({8, 8}).matmul(w);
      const Tensor over = w.flatten().sub(step < kSteps - 1 ? 0.0 : 0.5).gt(0);
      return over.nonzero().sum().add(x.sum());
    };
  });
  CHECK(stats.scheduled == kSteps - 3);
  CHECK_THAT(stats.last_divergence,
             Catch::Contains("aten::nonzero gave a tensor of another shape than was recorded: the "
                             "shape depends on data"));
}

namespace {

// A mask chooses so many rows in each step; in some steps more is called behind it.
std::function<Body()> choosing(std::vector<int> rows, int more_from = kSteps) {
  return [=] {
    const Tensor w = weights().requires_grad_(true);
    return [=](int step) {
      const Tensor x = torch::randn({12, 8}).matmul(w);
      const Tensor mask = torch::arange(12).lt(rows.at(static_cast<std::size_t>(step)));
      const Tensor chosen = x.index({mask});
      Tensor loss = chosen.square().sum() + x.sum();
      if (step >= more_from) loss = loss.mul(3) + chosen.tanh().sum();
      loss.backward();
      const Tensor left = torch::cat({loss.detach().reshape({1}), w.grad().flatten()});
      w.mutable_grad().reset();
      return left;
    };
  };
}

}  // namespace

TEST_CASE("A step that leaves a program in which data decide shapes may make another one",
          "[step][barrier]") {
  for (const std::vector<int>& rows : {std::vector<int>{10, 9, 8, 3, 4, 2, 5, 6, 1},
                                       std::vector<int>{3, 4, 5, 9, 8, 11, 10, 7, 12}}) {
    const auto stats = as_eager(choosing(rows, 3));
    CAPTURE(stats.to_json());
    CHECK(stats.refused == 0);
    CHECK(stats.programs == 2);
    CHECK(stats.scheduled == kSteps - 4);
  }
}

TEST_CASE("Shapes that data decide vary from the first step that has other ones",
          "[step][barrier]") {
  const auto stats = as_eager(choosing({6, 6, 5, 7, 3, 6, 8, 4, 2}));
  CAPTURE(stats.to_json());
  CHECK(stats.programs == 1);
  CHECK(stats.scheduled == kSteps - 3);
}

TEST_CASE("A step goes on in the program that its calls are those of, behind shapes by data, too",
          "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights().requires_grad_(true)](int step) {
      constexpr std::array kRows = {6, 7, 5, 9, 3, 7, 6, 10, 9};
      constexpr std::array kKind = {0, 0, 1, 2, 1, 2, 1, 2, 1};
      const auto at = static_cast<std::size_t>(step);
      const Tensor x = torch::randn({12, 8}).matmul(w);
      const Tensor some = x.index({torch::arange(12).lt(kRows.at(at))});
      const Tensor kept = kKind.at(at) > 0 ? some.sigmoid() : some.tanh();
      const Tensor loss = (kKind.at(at) > 1 ? kept.sigmoid() : kept.tanh()).square().sum();
      loss.backward();
      const Tensor left = torch::cat({loss.detach().reshape({1}), w.grad().flatten()});
      w.mutable_grad().reset();
      return left;
    };
  });
  CAPTURE(stats.to_json());
  CHECK(stats.programs == 3);
  CHECK(stats.scheduled == kSteps - 6);
}

TEST_CASE("What an operator inside of a barrier keeps has a size by data", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights().requires_grad_(true)](int step) {
      const Tensor x = torch::randn({16, 2, 8}).matmul(w).log_softmax(-1);
      const Tensor lengths = torch::tensor({2 + step % 5, 1 + step % 3});
      const Tensor targets = torch::randint(1, 8, {2, 8}), all = torch::full({2}, 16, torch::kLong);
      const Tensor loss = torch::ctc_loss(x, targets, all, lengths);
      loss.backward();
      const Tensor left = torch::cat({loss.detach().reshape({1}), w.grad().flatten()});
      w.mutable_grad().reset();
      return left;
    };
  });
  CAPTURE(stats.to_json());
  CHECK(stats.scheduled == kSteps - 2);
}

TEST_CASE("Data decide shapes that were equal by chance where they decide others",
          "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights().requires_grad_(true)](int step) {
      constexpr std::array kFirst = {6, 7, 5, 9, 3, 7, 6, 10, 9};
      constexpr std::array kSecond = {4, 4, 5, 4, 3, 6, 9, 2, 7};
      const auto at = static_cast<std::size_t>(step);
      const Tensor x = torch::randn({12, 8}).matmul(w);
      const Tensor some = x.index({torch::arange(12).lt(kFirst.at(at))});
      const Tensor more = x.index({torch::arange(12).lt(kSecond.at(at))});
      const Tensor loss = some.square().sum() + more.tanh().mul(2).sum() + x.sum();
      loss.backward();
      const Tensor left = torch::cat({loss.detach().reshape({1}), w.grad().flatten()});
      w.mutable_grad().reset();
      return left;
    };
  });
  CAPTURE(stats.to_json());
  CHECK(stats.programs == 1);
  CHECK(stats.scheduled == kSteps - 2);
}

TEST_CASE("A view of nothing may begin behind the end of its storage", "[step]") {
  const auto stats = as_eager([] {
    return [](int) {
      const Tensor x = torch::randn({8, 8}).mul(2);
      return x.narrow(0, 8, 0).narrow(1, 2, 3).gt(0).sum() + x.sum();
    };
  });
  CAPTURE(stats.to_json());
  CHECK(stats.refused == 0);
  CHECK(stats.scheduled == kSteps - 2);
}

TEST_CASE("Steps of too many operators are recorded more and more rarely", "[step]") {
  berth::torch::StepProgram program(waiting());
  Tensor x = torch::zeros({1});
  for (int step = 0; step < 7; ++step) {
    program.begin();
    for (int k = 0; k < 33'000; ++k) x.add_(1);
    program.end();
  }
  REQUIRE(x.item<float>() == 7 * 33'000);
  const berth::torch::StepProgramStats stats = program.stats();
  REQUIRE(stats.last_refusal.find("the most is 32768") != std::string::npos);
  REQUIRE(stats.refused == 2);  // of the second and of the fifth
}
