#pragma once

#include <berth/step_program.h>

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

// Models that step programs are tested on, and how they train.
namespace berth::test {

// As those, each plan waited for, so that tests know which step it runs.
[[nodiscard]] berth::torch::StepProgramOptions waiting(
    berth::torch::StepProgramOptions options = {});

// Everything that a program can see after training.
struct Outcome {
  std::vector<::torch::Tensor> tensors;
  std::vector<std::uint32_t> versions;
  berth::torch::StepProgramStats stats;
};
[[nodiscard]] bool same_bits(const ::torch::Tensor& a, const ::torch::Tensor& b);
[[nodiscard]] bool same(const Outcome& a, const Outcome& b);

// A model, its optimizer, and what one step does. The step returns its loss.
struct Subject {
  std::shared_ptr<::torch::nn::Module> model;
  std::shared_ptr<::torch::optim::Optimizer> optimizer;
  std::function<::torch::Tensor(int step)> body;
};
using Make = std::function<Subject()>;

inline constexpr int kSteps = 8;

[[nodiscard]] Outcome train(const Make& make, bool by_program, int steps = kSteps,
                            const berth::torch::StepProgramOptions& options = {},
                            bool keep_gradients = true);

// Plain supervised learning with the optimizer on random data, drawn outside of the model.
[[nodiscard]] Subject supervised(std::shared_ptr<::torch::nn::Module> model,
                                 std::function<::torch::Tensor(::torch::Tensor)> forward,
                                 std::shared_ptr<::torch::optim::Optimizer> optimizer,
                                 std::vector<std::int64_t> shape, bool clip = false);

[[nodiscard]] Subject make_mlp();
[[nodiscard]] Subject make_convolutions();
[[nodiscard]] Subject make_lstm();
[[nodiscard]] Subject make_deep();
[[nodiscard]] Subject make_wide();
[[nodiscard]] Subject make_normalized();
[[nodiscard]] Subject make_elementwise();
[[nodiscard]] Subject make_listwise();

struct Named {
  const char* name;
  Make make;
};
[[nodiscard]] const std::vector<Named>& subjects();

}  // namespace berth::test
