#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// The training problems of the benchmarks. No header of libtorch: only the models' own files pay
// for those.
namespace berth::bench {

struct WorkloadOptions {
  std::string data_folder;  // digits.csv and text.txt
  std::int64_t batch = 0;   // samples a step; 0: the workload's own
  std::uint64_t seed = 1;
  bool cuda = false;  // on the current GPU
};

// A model with its optimizer and its data. Equal options and thread counts make equal losses, bit
// for bit, under any allocator.
class Workload {
 public:
  virtual ~Workload() = default;
  // Makes the next batch.
  virtual void load() = 0;
  // Forward, backward, optimizer on the batch that was made last; the loss before the update.
  virtual float train() = 0;
  // What is trained on what, in one line.
  [[nodiscard]] virtual std::string description() const = 0;
};

struct WorkloadKind {
  std::string name;
  std::string summary;
  std::function<std::unique_ptr<Workload>(const WorkloadOptions&)> make;
};
[[nodiscard]] const std::vector<WorkloadKind>& workload_kinds();

// Seeds libtorch and fixes its thread count; call once, before a workload is made.
void prepare_libtorch(std::uint64_t seed, int threads, bool cudnn);

std::unique_ptr<Workload> make_gpt(const WorkloadOptions& options);
std::unique_ptr<Workload> make_resnet18(const WorkloadOptions& options);
std::unique_ptr<Workload> make_lstm(const WorkloadOptions& options);
std::unique_ptr<Workload> make_mlp(const WorkloadOptions& options);
std::unique_ptr<Workload> make_mixer(const WorkloadOptions& options);

}  // namespace berth::bench
