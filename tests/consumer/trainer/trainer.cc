// A program that trains under an installed berth: the lines that the README shows.
#include <berth/torch.h>

#include <ATen/ATen.h>

#include <iostream>

int main() {
  berth::torch::install();  // before the first tensor
  const at::Tensor input = at::ones({64, 256});
  at::Tensor weight = at::full({256, 256}, 0.5F);
  for (int step = 0; step < 20; ++step) {
    const at::Tensor gradient = input.t().mm(input.mm(weight).tanh());
    weight.sub_(gradient, 1e-4);
    berth::torch::mark_step();
  }
  const berth::Stats stats = berth::torch::stats();
  std::cout << stats.to_json() << "\n";
  return berth::torch::installed() && weight.isfinite().all().item<bool>() ? 0 : 1;
}
