// A program that trains on CUDA under an installed berth: the lines that the README shows.
#include <berth/torch.h>
#include <berth/torch_cuda.h>

#include <ATen/ATen.h>

#include <iostream>

int main() {
  berth::torch::install_cuda();  // before CUDA is used
  const at::Tensor input = at::ones({64, 256}, at::kCUDA);
  at::Tensor weight = at::full({256, 256}, 0.5F, at::kCUDA);
  for (int step = 0; step < 20; ++step) {
    const at::Tensor gradient = input.t().mm(input.mm(weight).tanh());
    weight.sub_(gradient, 1e-4);
    berth::torch::mark_step();
  }
  const berth::Stats stats = berth::torch::cuda_stats();
  std::cout << stats.to_json() << "\n";
  return berth::torch::cuda_installed() && stats.steps == 20 && stats.live > 0 ? 0 : 1;
}
