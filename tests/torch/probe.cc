// Programs that the tests run as children: what happens once in a process, at its start, its end or
// in a fork. `probe NAME`; each prints what the test compares, and exits with 0 where all went
// well.
#include <berth/torch.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

namespace {

// Destroyed after main, and after everything that main makes.
at::Tensor outlives_main;

struct Late {
  ~Late() {
    // Tensors can still be made, used and freed here.
    const at::Tensor tensor = at::ones({1000});
    std::printf("after main: %.0f\n", tensor.sum().item<double>());
    std::fflush(stdout);
  }
};

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

// A small network with dropout and momentum; prints the bits of each loss.
int train(bool mark) {
  at::manual_seed(7);
  std::vector<at::Tensor> parameters = {at::randn({64, 512}) * 0.1, at::zeros({512}),
                                        at::randn({512, 10}) * 0.1};
  std::vector<at::Tensor> momenta;
  for (at::Tensor& p : parameters) {
    p.requires_grad_();
    momenta.push_back(at::zeros_like(p));
  }
  for (int step = 0; step < 80; ++step) {
    const at::Tensor input = at::randn({256, 64}), target = at::randint(10, {256}, at::kLong);
    const at::Tensor hidden =
        at::dropout((input.mm(parameters[0]) + parameters[1]).relu(), 0.1, true);
    const at::Tensor loss = at::cross_entropy_loss(hidden.mm(parameters[2]), target);
    loss.backward();
    {
      const c10::AutoGradMode no_gradients(false);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        momenta[i].mul_(0.9).add_(parameters[i].grad());
        parameters[i].sub_(momenta[i], 0.01);
        parameters[i].mutable_grad().reset();
      }
    }
    std::printf("%08x\n", std::bit_cast<unsigned>(loss.item<float>()));
    if (mark) berth::torch::mark_step();
    // A step takes a millisecond; leave the planner time to be seen.
    if (step >= 20 && berth::torch::installed() && berth::torch::stats().arena == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return 0;
}

int fork_and_use() {
  at::set_num_threads(1);  // GNU's OpenMP does not survive a fork, under any allocator
  const at::Tensor before = at::arange(100000, at::kFloat);
  at::Tensor freed_by_child = at::ones({100000});
  const double sum = before.sum().item<double>();
  const pid_t child = ::fork();
  if (child == 0) {
    // What the parent made is here; new tensors, their frees and frees of the parent's work.
    freed_by_child.reset();
    const at::Tensor copy = before + 1;
    at::Tensor scratch = at::zeros({1 << 20});
    scratch.reset();
    const bool same = copy.sub(1).equal(before);
    std::exit(same && before.sum().item<double>() == sum ? 0 : 1);
  }
  int status = 0;
  require(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child computed what the parent would");
  require(before.sum().item<double>() == sum, "the child left the parent's tensors alone");
  require(freed_by_child.sum().item<double>() == 100000, "the child's frees were its own");
  const auto requests = berth::torch::stats().requests;
  const at::Tensor after = at::ones({100000});
  require(berth::torch::stats().requests > requests, "the parent is served as before");
  return 0;
}

int use_older_blocks() {
  at::Tensor older = at::ones({5000}), grown = at::ones({10});
  berth::torch::install();
  const auto before = berth::torch::stats();
  older.reset();
  grown.resize_({100000});  // by the allocator that its storage came from
  require(berth::torch::stats().frees == before.frees, "older blocks go to their own allocator");
  const at::Tensor newer = at::ones({5000});
  require(berth::torch::stats().requests > before.requests, "newer ones come from berth");
  require(berth::torch::stats().misuses == 0, "nobody freed what was not theirs");
  return 0;
}

int mark_by_optimizer_ranges(bool own_marks) {
  for (int step = 0; step < 5; ++step) {
    const at::Tensor work = at::ones({1000});
    { RECORD_USER_SCOPE("Optimizer.step#SGD.step"); }
    { RECORD_USER_SCOPE("evaluation"); }
    if (own_marks) berth::torch::mark_step();
  }
  std::printf("%llu\n", static_cast<unsigned long long>(berth::torch::stats().steps));
  return 0;
}

int run(const char* scenario) {
  const auto is = [&](const char* name) { return std::strcmp(scenario, name) == 0; };
  if (is("installed")) {  // without a call of our own
    std::printf("%d\n", berth::torch::installed());
    const at::Tensor tensor = at::ones({1000});
    std::printf("%d\n", berth::torch::stats().requests > 0);
    return 0;
  }
  if (is("older-blocks")) return use_older_blocks();
  berth::torch::install();
  if (is("train")) return train(true);
  if (is("train-unmarked")) return train(false);
  if (is("fork")) return fork_and_use();
  if (is("optimizer-ranges")) return mark_by_optimizer_ranges(false);
  if (is("own-marks")) return mark_by_optimizer_ranges(true);
  if (is("outlive")) {
    static const Late late;
    outlives_main = at::ones({100000});
    return 0;
  }
  std::fprintf(stderr, "no scenario '%s'\n", scenario);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "probe: %s\n", error.what());
    return 1;
  }
}
