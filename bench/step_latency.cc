// What a step program costs an operator, beside the operator itself: a step of small operators on
// one element, as written and by two programs, in turns. Prints medians as JSON, in nanoseconds an
// operator: `eager` is the step as written, `kernels` its operators below autograd and nothing
// else, `schedule` what runs them, `engine` what that takes beside them for each of its
// instructions (runs of operators, and releases of what half of them leave), `ghost` the body
// without kernels and the checks, `step` both, and `beside` the same where the schedule runs on a
// second thread.
#include <berth/step_program.h>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kOperators = 2000, kWarmup = 10;

// Half of the operators make a tensor, half write in place.
at::Tensor body(const at::Tensor& start) {
  at::Tensor x = start;
  for (int n = 0; n < kOperators / 2; ++n) {
    x = x * 0.5;
    x.add_(1);
  }
  return x;
}

// The same operators, boxed as the engine calls them.
at::Tensor kernels(const at::Tensor& start) {
  static const auto find = [](const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "Scalar");
  };
  static const auto multiply = find("aten::mul"), add = find("aten::add_");
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor x = start;
  torch::jit::Stack stack;
  for (int n = 0; n < kOperators / 2; ++n) {
    stack.assign({x, 0.5});
    multiply.callBoxed(&stack);
    x = std::move(stack.back()).toTensor();
    stack.assign({x, 1, 1});
    add.callBoxed(&stack);
  }
  return x;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  if (steps <= 0) {
    std::fprintf(stderr, "step_latency: '%s' is no number of steps\n", argv[1]);
    return 2;
  }
  const torch::NoGradGuard no_grad;
  torch::set_num_threads(1);
  const at::Tensor start = torch::ones({1});
  berth::torch::StepProgram program({.engine = "release", .second_thread = false}),
      other({.engine = "release", .second_thread = true});
  std::vector<double> eager, bare, schedule, ghost, whole, beside, engine;
  bool equal = true;
  for (int step = 0; step < kWarmup + steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor expected = body(start);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    at::Tensor found;
    const auto begin_kernels = std::chrono::steady_clock::now();
    equal &= torch::equal(expected, kernels(start));
    const std::chrono::duration<double, std::nano> took_kernels =
        std::chrono::steady_clock::now() - begin_kernels;
    {
      const auto scope = program.step();
      found = body(start);
    }
    equal &= torch::equal(expected, found);
    {
      const auto scope = other.step();
      found = body(start);
    }
    equal &= torch::equal(expected, found);
    if (step < kWarmup) continue;
    const berth::torch::StepProgramStats stats = program.stats();
    eager.push_back(took.count() / kOperators);
    bare.push_back(took_kernels.count() / kOperators);
    schedule.push_back(static_cast<double>(stats.schedule_ns) / kOperators);
    // Half of the operators leave a tensor that is released.
    engine.push_back((schedule.back() - bare.back()) / 1.5);
    ghost.push_back(static_cast<double>(stats.step_ns - stats.schedule_ns) / kOperators);
    whole.push_back(static_cast<double>(stats.step_ns) / kOperators);
    beside.push_back(static_cast<double>(other.stats().step_ns) / kOperators);
  }
  if (program.stats().scheduled < static_cast<std::uint64_t>(steps) || !equal) {
    std::fprintf(stderr, "step_latency: the steps were not run by the program as written\n");
    return 1;
  }
  std::printf(R"({"operators": %d, "steps": %d, "eager": %.0f, "kernels": %.0f, "schedule": %.0f, )"
              R"("engine": %.0f, "ghost": %.0f, "step": %.0f, "beside": %.0f, "ran_beside": %llu})"
              "\n",
              kOperators, steps, median(eager), median(bare), median(schedule), median(engine),
              median(ghost), median(whole), median(beside),
              static_cast<unsigned long long>(other.stats().ran_beside));
  return 0;
}
