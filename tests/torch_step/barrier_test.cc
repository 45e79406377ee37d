// What is not known to be safe happens when it is called: each body here gives in each step what it
// gives without a step program.
#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/outside_memory.h"
#include "tests/catch.h"
#include "tests/torch_step/bodies.h"

#include <berth/step_program.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace berth::test::bodies;
using berth::torch::StepProgram;
using torch::Tensor;

// Operators that nobody knows, whose schemas say little.
std::int64_t count_positive(const Tensor& x) { return x.gt(0).sum().item<std::int64_t>(); }
Tensor keep_positive(const Tensor& x) { return x.masked_select(x.gt(0)); }
Tensor draw_behind(const Tensor& x) {
  return x + torch::rand(x.sizes());  // no tag says that it draws
}
std::int64_t calls_of_counter = 0;
Tensor counter(const Tensor& x) { return x + static_cast<double>(++calls_of_counter); }
Tensor global;
Tensor write_global(const Tensor& x) {
  global.add_(1);
  return x.mul(2);
}
std::int64_t calls_of_pure = 0;
Tensor pure_double(const Tensor& x) {
  ++calls_of_pure;
  return x.mul(2);
}
Tensor write_argument(const Tensor& x) {  // its schema does not say so
  x.data_ptr<float>()[0] += 1;
  return torch::ones({1});
}

template <typename Result>
Result call(const char* name, const Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<Result(const Tensor&)>()
      .call(x);
}

Tensor weights() { return torch::linspace(-1, 1, 64).reshape({8, 8}); }

}  // namespace

TORCH_LIBRARY(berth_barrier_test, library) {
  library.def("count_positive(Tensor x) -> int");
  library.def("keep_positive(Tensor x) -> Tensor");
  library.def("draw_behind(Tensor x) -> Tensor");
  library.def("counter(Tensor x) -> Tensor");
  library.def("write_global(Tensor x) -> Tensor");
  library.def("pure_double(Tensor x) -> Tensor");
  library.def("write_argument(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(berth_barrier_test, CPU, library) {
  library.impl("count_positive", count_positive);
  library.impl("keep_positive", keep_positive);
  library.impl("draw_behind", draw_behind);
  library.impl("counter", counter);
  library.impl("write_global", write_global);
  library.impl("pure_double", pure_double);
  library.impl("write_argument", write_argument);
}

namespace {

void resize_storage(const Tensor& of, std::int64_t bytes) {
  berth::torch::step::register_byte_access();
  const torch::NoGradGuard no_gradients;
  (void)c10::Dispatcher::singleton()
      .findSchemaOrThrow("berth::resize_storage", "")
      .typed<Tensor(const Tensor&, std::int64_t)>()
      .call(torch::empty({0}, of.options().requires_grad(false)).set_(of.storage(), 0, {0}, {1}),
            bytes);
}

}  // namespace

TEST_CASE("A step may give storages another size", "[step][barrier]") {
  // The weights have bytes while they are used, as those of FSDP do.
  const auto sharded = [] {
    const Tensor shard = weights(), weight = shard.clone().set_requires_grad(true);
    resize_storage(weight, 0);
    return [=](int step) {
      const auto use = [&] {
        resize_storage(weight, 8 * 8 * 4);
        weight.detach().copy_(shard);
        const Tensor loss = torch::randn({16, 8}).matmul(weight).relu().matmul(weight).sum();
        loss.backward();
        resize_storage(weight, 0);
        const torch::NoGradGuard no_gradients;
        shard.sub_(weight.grad(), 0.001);
        weight.mutable_grad().reset();
        return loss.detach();
      };
      return step == 6 ? use() + use() : use();
    };
  };
  REQUIRE(as_eager(sharded).scheduled >= 5);
  REQUIRE(as_eager(sharded, {.memory_share = 0.5}).scheduled >= 5);
  // What the step makes grows, and shrinks behind a call that reads it.
  const auto grows = [] {
    return [](int) {
      const Tensor x = torch::randn({64, 64}), y = x.relu();
      const Tensor sum = y.sum();
      resize_storage(y, 64 * 64 * 4 * 2);
      const Tensor all = torch::empty({0}).set_(y.storage(), 0, {128, 64}, {64, 1});
      all.slice(0, 64).copy_(x);
      const Tensor whole = all.mul(2).sum();
      resize_storage(y, 64 * 4);
      return torch::stack({sum, whole, y[0].sum()});
    };
  };
  REQUIRE(as_eager(grows).scheduled >= 5);
  // Whoever had its address asks for the new one.
  const auto shared = [] {
    return [w = weights().clone()](int step) {
      berth::torch::share_bytes(w);
      resize_storage(w, 8 * 8 * 4 * (1 + step % 2));
      w.add_(1);
      return torch::tensor(w.data_ptr<float>()[3]);
    };
  };
  static_cast<void>(as_eager(shared));
}

TEST_CASE("A step may write another part of a buffer each time", "[step]") {
  const auto ring = [] {
    const Tensor buffer = torch::zeros({64, 8}), counts = torch::zeros({64});
    return [=](int step) {
      const auto at = [&](int n) { return std::int64_t{8} * ((step + n) % 8); };
      const Tensor x = torch::randn({8, 8}).relu();
      buffer.slice(0, at(0), at(0) + 8).copy_(x);
      counts.slice(0, at(3), at(3) + 8).add_(1);
      const Tensor before = buffer.mul(2).sum();
      buffer.slice(0, at(5), at(5) + 8).mul_(0.5);
      return torch::stack({before, buffer.sum(), counts.dot(torch::arange(64.0))});
    };
  };
  REQUIRE(as_eager(ring).scheduled >= 5);
  REQUIRE(as_eager(ring, {.memory_share = 0.8}).scheduled >= 5);
}

TEST_CASE("A tensor that gets another storage leaves an empty one as it was", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [empty = torch::empty({0})](int) {
      Tensor x = empty.detach();
      x.set_(torch::randn({8, 8}));
      REQUIRE(empty.storage().data() == nullptr);
      return x.mul(2).sum();
    };
  });
  REQUIRE(stats.scheduled >= 5);
}

TEST_CASE("The memory of a storage that is no more may be another's", "[step-program]") {
  berth::torch::step::OutsideMemory memory;
  const Tensor plain = torch::ones({16});
  Tensor foreign = torch::from_blob(plain.data_ptr(), {16});
  REQUIRE_FALSE(memory.overlaps(foreign.storage(), true));
  SECTION("one is there") { REQUIRE(memory.overlaps(plain.storage(), false)); }
  SECTION("none is") {
    foreign.reset();
    REQUIRE_FALSE(memory.overlaps(plain.storage(), false));
  }
  SECTION("one is, with other memory") {
    memory.forget(foreign.storage().unsafeGetStorageImpl());
    REQUIRE_FALSE(memory.overlaps(plain.storage(), false));
  }
  SECTION("one is, and has left") {
    const Tensor other = torch::empty({16});
    foreign.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        other.storage().unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr()));
    REQUIRE_FALSE(memory.overlaps(plain.storage(), false));
  }
}

TEST_CASE("An operator that nobody knows runs when it is called", "[step][barrier]") {
  SECTION("and the number that it returns is its own") {
    const auto stats = as_eager([] {
      return [w = weights()](int step) {
        const Tensor x = w.add(step < 4 ? 0 : 0.1 * step).mul(2);
        return x.sum().mul(
            static_cast<double>(call<std::int64_t>("berth_barrier_test::count_positive", x)));
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("and the shape that it makes depends on what it finds") {
    const auto stats = as_eager([] {
      return [w = weights()](int step) {
        const Tensor x = w.add(step < 4 ? 0 : 0.1 * step).mul(2);
        return call<Tensor>("berth_barrier_test::keep_positive", x).mul(3).sum();
      };
    });
    CHECK(stats.scheduled > 0);
    CHECK(stats.diverged > 0);
  }
  SECTION("and draws in its turn") {
    const auto stats = as_eager([] {
      return [w = weights()](int) {
        const Tensor a = torch::rand({8, 8});
        const Tensor b = call<Tensor>("berth_barrier_test::draw_behind", w.add(a));
        return a + b + torch::rand({8, 8});
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("and keeps its state") {
    const auto stats = as_eager([] {
      calls_of_counter = 0;
      return [w = weights()](int) {
        return call<Tensor>("berth_barrier_test::counter", w.mul(3)).add(1);
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("and writes what it was not given") {
    const auto stats = as_eager([] {
      global = torch::zeros({4});
      return [w = weights()](int) {
        const Tensor before = global.mul(10);
        const Tensor y = call<Tensor>("berth_barrier_test::write_global", w.add(1));
        return before.sum() + y.sum() + global.sum();
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("and writes what it was given, whatever its schema says") {
    for (const char* engine : {"auto", "release"}) {
      const auto stats = as_eager(
          [] {
            return [w = weights()](int) {
              const Tensor x = w.add(1);
              const Tensor before = x.sum();
              static_cast<void>(call<Tensor>("berth_barrier_test::write_argument", x));
              return before + x.sum().mul(2);
            };
          },
          {.engine = engine});
      CHECK(stats.scheduled > 2);
    }
  }
}

TEST_CASE("An operator that was declared pure runs with the schedule", "[step][barrier]") {
  berth::torch::pure("berth_barrier_test::pure_double");
  CHECK_THROWS_WITH(berth::torch::pure("nothing"), Catch::Contains("the name of an operator"));
  StepProgram program(waiting());
  const Tensor w = weights();
  for (int step = 0; step < kSteps; ++step) {
    calls_of_pure = 0;
    Tensor y;
    {
      const auto scope = program.step();
      y = call<Tensor>("berth_barrier_test::pure_double", w.add(step));
      CHECK(calls_of_pure == (step < 2 ? 1 : 0));
    }
    CHECK(calls_of_pure == 1);
    REQUIRE(torch::equal(y, w.add(step).mul(2)));
  }
  CHECK(program.stats().scheduled == kSteps - 2);
}

TEST_CASE("Bytes that libtorch did not allocate are read when the operator is called",
          "[step][barrier]") {
  SECTION("into room of their own") {
    const auto stats = as_eager([] {
      auto buffer = std::make_shared<std::vector<float>>(64);
      return [buffer](int step) {
        const auto filled = [&](float with) {
          std::fill(buffer->begin(), buffer->end(), with);
          return torch::from_blob(buffer->data(), {64}).clone();
        };
        return filled(1) + filled(2) + filled(static_cast<float>(step));
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("but not before what it takes has been written") {
    const auto stats = as_eager([] {
      auto buffer = std::make_shared<std::vector<float>>(64, 1.0F);
      return [buffer, state = torch::ones({64})](int) {
        const Tensor outside = torch::from_blob(buffer->data(), {64});
        state.add_(1);
        return (state + outside).mul(2);
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("also by what takes something of the step") {
    const auto stats = as_eager([] {
      auto buffer = std::make_shared<std::vector<float>>(64);
      return [buffer, w = torch::ones({64})](int) {
        const Tensor outside = torch::from_blob(buffer->data(), {64});
        const Tensor mine = w.mul(3);
        (*buffer)[0] = 5;
        const Tensor sum = outside + mine;
        (*buffer)[0] = 7;
        outside.add_(mine);
        const float seen = (*buffer)[0];
        (*buffer)[0] = 0;
        return sum + outside + seen;
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("and written then, also where no schema says so") {
    const auto stats = as_eager([] {
      auto mean = std::make_shared<std::vector<float>>(8, 0.0F);
      auto variance = std::make_shared<std::vector<float>>(8, 1.0F);
      return [mean, variance, w = torch::randn({16, 8})](int) {
        const Tensor running_mean = torch::from_blob(mean->data(), {8});
        const Tensor running_variance = torch::from_blob(variance->data(), {8});
        const Tensor normal = torch::batch_norm(w.mul(3), {}, {}, running_mean, running_variance,
                                                true, 0.1, 1e-5, false);
        return normal.add((*mean)[3]).mul((*variance)[2]);
      };
    });
    CHECK(stats.scheduled > 2);
  }
  // 64 KiB are copied when the operator is called, more are read by a barrier.
  for (const std::int64_t floats : {100, 1 << 14, (1 << 14) + 1}) {
    DYNAMIC_SECTION("as they are then: " << floats) {
      const auto stats = as_eager([floats] {
        auto buffer = std::make_shared<std::vector<float>>(3 * floats);
        return [buffer, floats, w = torch::ones({floats})](int step) {
          const auto fill = [&](int with) {
            std::fill(buffer->begin(), buffer->end(), static_cast<float>(with));
          };
          const Tensor all = torch::from_blob(buffer->data(), {3 * floats});
          Tensor mine = w.mul(3);
          fill(step + 1);
          mine = mine + all.narrow(0, step % 3, floats);
          fill(step + 2);
          mine = torch::stack({mine, all.narrow(0, 2 * floats, floats)}).sum(0);
          fill(0);
          return mine;
        };
      });
      CHECK(stats.scheduled > 2);
      REQUIRE(stats.barriers == (floats <= 1 << 14 ? 0 : 1));
    }
  }
}

TEST_CASE("A pointer that nobody told of is found where bytes are looked at", "[step][barrier]") {
  ::setenv("BERTH_CHECK", "full", 1);
  StepProgram program(waiting());
  ::unsetenv("BERTH_CHECK");
  Tensor state = torch::ones({8});
  auto* const pointer = state.data_ptr<float>();
  for (int step = 0; step < 4; ++step) {
    std::string said;
    try {
      const auto scope = program.step();
      const Tensor y = state.mul(2);
      if (step == 3) pointer[0] += 1;
      static_cast<void>(y.add(1));
    } catch (const c10::Error& error) {
      said = error.what();
    }
    CAPTURE(step, program.stats().to_json());
    CHECK((said.find("written behind libtorch's operators between the call and its run") !=
           std::string::npos) == (step == 3));
  }
}

TEST_CASE("What a process has set is what an operator found when it was called",
          "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights()](int step) {
      // One step in which it is another all along, and in each step a part.
      if (step == 6) torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
      const Tensor a = torch::arange(0, 1, 0.1).square().sum();
      const auto before = torch::get_default_dtype();
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
      const Tensor b = torch::arange(0, 1, 0.1).sum();
      torch::set_default_dtype(before);
      const Tensor left = w.sum().to(torch::kDouble) + a + b;
      torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
      return left;
    };
  });
  CHECK(stats.scheduled > 2);
  CHECK(torch::get_default_dtype() == caffe2::TypeMeta::Make<float>());
}

TEST_CASE("Bytes that the body has got are not copied away from it", "[step][barrier]") {
  const auto stats = as_eager(
      [] {
        return [](int) {
          Tensor early = torch::randn({1 << 14}).exp();
          berth::torch::share_bytes(early);  // somebody has its address from now on
          std::vector<Tensor> kept{torch::randn({1 << 14})};
          for (int n = 0; n < 6; ++n) kept.push_back(kept.back().sin());
          Tensor all = torch::zeros({1 << 14});
          for (; !kept.empty(); kept.pop_back()) all = all + kept.back();
          early.mul_(2);
          return early + all;
        };
      },
      {.engine = "offload", .memory_share = 0.7, .copy_rate = 1'000'000'000'000});
  REQUIRE(stats.scheduled > 2);
  REQUIRE(stats.offloaded_bytes > 0);
}

TEST_CASE("What a kernel calls inside is under autocast as it was", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights()](int step) {
      const Tensor x = torch::eye(6) + 0.1 * torch::randn({6, 6});
      // Autocast lets both pass: one has another type by it, the other one other bits.
      at::autocast::set_autocast_enabled(at::kCPU, step != 6);
      const Tensor inverse = torch::linalg_pinv(x), power = torch::matrix_exp(x);
      at::autocast::set_autocast_enabled(at::kCPU, false);
      return w.sum() + inverse.to(torch::kFloat).sum() + power.sum();
    };
  });
  CHECK(stats.scheduled > 2);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("A step draws from the generators that it makes", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [](int step) {
      const auto own = at::make_generator<at::CPUGeneratorImpl>(step);
      const auto other = at::make_generator<at::CPUGeneratorImpl>(step + 1);
      const Tensor first = torch::rand({8}, own);
      return first + torch::rand({8}) * torch::rand({8}, step % 2 == 0 ? own : other);
    };
  });
  CHECK(stats.scheduled > 2);
}

TEST_CASE("What fails by what its arguments hold fails where it is called", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights(), state = torch::zeros({8})](int step) {
      Tensor index = torch::tensor({1, 2, 3});
      if (step == 5) index[1] = 8;
      const Tensor before = w.mul(2);
      state.add_(1);
      Tensor chosen;
      try {
        chosen = before.index_select(0, index);
      } catch (const c10::Error&) {
        return state.sum();  // as the program would
      }
      state.add_(chosen.sum());
      Tensor square = torch::eye(8) * (step == 7 ? -1 : 1);
      try {
        square = torch::linalg_cholesky(square);
      } catch (const c10::Error&) {
        square = torch::full({8, 8}, 2);
      }
      return state + square.sum() + chosen.sum();
    };
  });
  CHECK(stats.scheduled > 2);
}

TEST_CASE("A number of another kind is refused where the operator is called", "[step][barrier]") {
  // What is called with 1 in the first steps, and with a number that it refuses in the last ones.
  const auto refused_at_call = [](const std::function<Tensor(const Tensor&, double)>& call,
                                  double refused) {
    const auto stats = as_eager([&] {
      return [=](int step) {
        const Tensor x = torch::rand({4, 8}).mul(4), kept = x.mul(2);
        double caught = 0;
        Tensor made = kept;
        try {
          made = call(x, step < kSteps - 2 ? 1 + 0.1 * step : refused);
        } catch (const std::exception&) {
          caught = 1;
        }
        return (made.to(torch::kFloat) + kept).sum() + caught;
      };
    });
    CAPTURE(stats.to_json());
    CHECK(stats.scheduled == kSteps - 4);
    CHECK(stats.diverged == 2);
  };
  const auto half = [](const Tensor& x) { return x.to(torch::kHalf); };
  refused_at_call([](const Tensor& x, double by) { return torch::huber_loss(x, x.neg(), 0, by); },
                  -1);
  refused_at_call([](const Tensor& x, double by) { return torch::celu(x, by); }, 0);
  refused_at_call([&](const Tensor& x, double by) { return half(x).masked_fill(x.gt(1), by); },
                  -1e5);
  refused_at_call([](const Tensor& x, double by) { return x.to(torch::kByte).clamp_max(by); }, 1e3);
  refused_at_call([](const Tensor& x, double by) { return x.add(x, by); }, 1e39);
  // Numbers of any sign are numbers to most operators.
  const auto stats = as_eager([] {
    return [](int step) {
      const Tensor x = torch::rand({4, 8});
      const Tensor y = x.add(x, step % 2 == 0 ? 1.0 : -2.0).mul(step - 4);
      return torch::leaky_relu(y, 0.1 * (step - 3)).sum();
    };
  });
  CHECK(stats.scheduled == kSteps - 2);
  // Shifts are no numbers of the tensor's type, and draws have numbers of any sign.
  const auto drawn = as_eager([] {
    return [](int step) {
      const Tensor pixels = torch::randint(step - 4, 200, {8, 8}).clamp_min(0).to(torch::kByte);
      const Tensor moved = pixels.roll({step - 3, 300 * (4 - step)}, {0, 1}).to(torch::kFloat);
      const Tensor noise = torch::normal(0.5 * (step - 3), 1, {8, 8});
      return (moved + noise + torch::linspace(step - 3, 4 - step, 8)).sum() +
             noise.uniform_(step - 5, step).sum();
    };
  });
  CAPTURE(drawn.to_json());
  CHECK(drawn.scheduled == kSteps - 2);
  // Steps whose numbers are of two kinds in turn have two programs.
  const auto turns = as_eager([] {
    return [](int step) {
      return torch::elu(torch::rand({4, 8}).sub(0.5), step % 2 == 0 ? 1 : -1).mul(2).sum();
    };
  });
  CAPTURE(turns.to_json());
  CHECK(turns.scheduled == kSteps - 4);
  CHECK(turns.programs == 2);
}

namespace {

// A handler of warnings as Python's bindings set one.
struct Counted final : c10::WarningHandler {
  int count = 0;
  void process(const c10::Warning&) override { ++count; }
};

}  // namespace

TEST_CASE("A kernel that warns does so where it is called", "[step][barrier]") {
  const auto stats = as_eager([] {
    return [](int) {
      const Tensor x = torch::rand({1, 8}), y = x.mul(2);
      Counted warnings;
      Tensor spread;
      {
        const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
        spread = y.std(0);  // of one row: there is none
      }
      return y.sum() + spread.isnan().sum() + warnings.count;
    };
  });
  CAPTURE(stats.to_json());
  CHECK(stats.scheduled == kSteps - 2);
  CHECK(stats.barriers == 1);
}

TEST_CASE("Room that the body writes before an operator writes a part of it has what it wrote",
          "[step][barrier]") {
  for (const bool whole : {false, true}) {
    const auto stats = as_eager([whole] {
      return [whole](int step) {
        const Tensor x = torch::rand({2048});
        Tensor room = torch::empty({2048});  // as torch.tensor(list) does
        std::fill_n(room.data_ptr<float>(), 2048, 1.0F + static_cast<float>(step));
        if (whole)
          room.zero_();
        else
          room.slice(0, 0, 3).fill_(5);
        return x.mul(2).dot(room);
      };
    });
    CAPTURE(whole, stats.to_json());
    CHECK(stats.scheduled == kSteps - 2);
  }
}

TEST_CASE("A tensor that is twice in a list has the version that it has without berth",
          "[step][barrier]") {
  const auto stats = as_eager([] {
    return [](int) {
      const Tensor x = torch::rand({8}), part = x.slice(0, 0, 4), other = torch::rand({4});
      torch::_foreach_add_({part, other, part, x}, 1);
      return x.sum() + other.sum() + static_cast<double>(x._version() * 100 + other._version());
    };
  });
  CHECK(stats.scheduled == kSteps - 2);
}

TEST_CASE("Behind a call that failed another program goes on from what was drawn",
          "[step][barrier]") {
  const auto stats = as_eager([] {
    return [w = weights(), state = torch::zeros({8})](int step) {
      const bool fails = step == 3 || step == 4 || step == 6;
      const Tensor index = torch::tensor({1, fails ? 8 : 2, 3});
      const Tensor drawn = w.mul(2) + torch::rand({8});
      state.add_(drawn.sum());
      try {
        state.add_(drawn.index_select(0, index).sum());
      } catch (const c10::Error&) {
        return state.mul(drawn);
      }
      return state + drawn;
    };
  });
  REQUIRE(stats.programs == 2);
  REQUIRE(stats.scheduled == 5);
}

TEST_CASE("Composite operators that read by pointers find the bytes", "[step][barrier]") {
  SECTION("pooling without gradients") {
    const auto stats = as_eager([] {
      return [](int step) {
        const torch::NoGradGuard none;
        return torch::max_pool1d(torch::linspace(0, step + 1, 64).reshape({1, 1, 64}).sin(), 2)
            .relu();
      };
    });
    CHECK(stats.scheduled > 2);
  }
  SECTION("one that is found to read when it fails") {
    const auto stats = as_eager([] {
      return [](int step) {
        const Tensor x = torch::linspace(-1, step + 1, 64).mul(2);
        const auto [most, least] = torch::choose_qparams_optimized(x, 64, 200, 0.16, 8);
        return x * most + least;
      };
    });
    CHECK(stats.scheduled > 1);
  }
  SECTION("an LSTM over packed sequences") {
    const auto stats = as_eager([] {
      torch::nn::LSTM net(8, 8);
      return [net](int) mutable {
        net->zero_grad();
        const auto packed = torch::nn::utils::rnn::pack_padded_sequence(torch::randn({5, 3, 8}),
                                                                        torch::tensor({5, 4, 2}));
        const Tensor y = std::get<0>(net->forward_with_packed_input(packed)).data();
        y.square().mean().backward();
        Tensor all = y.sum();
        for (const Tensor& one : net->parameters()) all = all + one.grad().sum();
        return all;
      };
    });
    CHECK(stats.scheduled > 2);
  }
}

TEST_CASE("A step follows whichever program its calls are those of", "[step][barrier]") {
  SECTION("from its first call on") {
    const auto stats = as_eager([] {
      torch::nn::Linear net(8, 8);
      return [net](int step) mutable { return net(torch::ones({1 + step % 3, 8})).square().sum(); };
    });
    CHECK(stats.scheduled == kSteps - 6);
    CHECK(stats.programs == 3);
    CHECK(stats.made == 3);
  }
  SECTION("where they part after something was read back") {
    const auto stats = as_eager([] {
      return [w = weights(), state = torch::zeros({8, 8})](int step) {
        const Tensor x = w.mul(2).add_(1);
        const float first = x.sum().item<float>();
        const Tensor y = x.mul(first);
        state.add_(y);
        return step % 2 == 0 ? y.sin().add(state).sum() : y.cos().sub(state).mul(x).sum();
      };
    });
    CHECK(stats.scheduled >= kSteps - 4);
    CHECK(stats.programs == 2);
    CHECK(stats.made == 2);
  }
}
