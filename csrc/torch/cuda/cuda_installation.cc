#include "csrc/core/check.h"
#include "csrc/cuda/cuda_device.h"
#include "csrc/plan/file.h"
#include "csrc/plan/folder.h"
#include "csrc/torch/cuda/cuda_allocator.h"
#include "csrc/torch/cuda/cudnn/convolution_choice.h"
#include "csrc/torch/cuda/fed_reads.h"
#include "csrc/torch/cuda/offered_streams.h"
#include "csrc/torch/recording/range_observer.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/shared/program.h"
#include "csrc/torch/shared/room.h"

#include <berth/error.h>
#include <berth/torch_cuda.h>
#include <berth/warnings.h>

#include <c10/core/AllocatorConfig.h>
#include <c10/core/DeviceType.h>
#include <fmt/format.h>
#include <pthread.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace berth::torch {
namespace {

std::mutex installing;
std::atomic<bool> is_installed{false};

// CUDA as those see it who listen to libtorch.
class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(CudaAllocator& allocator) : allocator_(allocator) {}
  // Of the first GPU that was used: a process that trains on several writes a trace each, and
  // ranges go into one.
  [[nodiscard]] Recorder* recorder() noexcept override {
    if (allocator_.forked()) return nullptr;
    const auto gpus = allocator_.gpus();
    return gpus.empty() ? nullptr : gpus.front()->planned().recorder();
  }
  void mark_step() noexcept override { allocator_.mark_step(); }
  void expect_other_steps(std::span<const ForetoldOn> foretold) noexcept override {
    if (allocator_.forked()) return;
    for (Gpu* const gpu : allocator_.gpus()) {
      const auto own = std::find_if(foretold.begin(), foretold.end(), [&](const ForetoldOn& one) {
        return one.device.is_cuda() && one.device.index() == gpu->device().index();
      });
      gpu->planned().expect_other_steps(own == foretold.end() ? nullptr : own->steps.get());
    }
  }
  [[nodiscard]] std::shared_ptr<const Foretold> foretell(c10::Device device,
                                                         std::span<const StepRequests> kinds,
                                                         double seconds) override {
    if (!device.is_cuda() || allocator_.forked()) return nullptr;
    for (Gpu* const gpu : allocator_.gpus())
      if (gpu->device().index() == device.index()) return gpu->planned().foretell(kinds, seconds);
    return nullptr;
  }
  [[nodiscard]] Bytes requested(c10::Device device, const void* block) noexcept override {
    if (!device.is_cuda() || allocator_.forked()) return 0;
    for (Gpu* const gpu : allocator_.gpus())
      if (gpu->device().index() == device.index())
        if (const auto found = gpu->planned().find(block)) return found->requested;
    return 0;
  }
  void trim(c10::Device device) override {
    if (!device.is_cuda() || allocator_.forked()) return;
    for (Gpu* const gpu : allocator_.gpus())
      if (gpu->device().index() == device.index()) gpu->trim();
  }

 private:
  CudaAllocator& allocator_;
};

void check_door() {
  const auto* const current = c10::cuda::CUDACachingAllocator::allocator.load();
  BERTH_CHECK(
      current == nullptr ||
          !const_cast<c10::cuda::CUDACachingAllocator::CUDAAllocator*>(current)->initialized(),
      kUsage,
      "CUDA is in use already, so its allocator cannot be replaced any more. Move "
      "berth::torch::install_cuda() (Python: berth.install()) before the first call that "
      "initialises CUDA: set_device, current_device, get_device_name, is_bf16_supported, "
      "synchronize, mem_get_info, any CUDA tensor, pin_memory, _record_memory_history, an "
      "out-of-memory observer, set_per_process_memory_fraction, reset_peak_memory_stats, MemPool, "
      "get_rng_state");
}

// PyTorch's own settings of its allocator, as text.
std::string_view settings_of_pytorch() {
  const char* text = std::getenv("PYTORCH_ALLOC_CONF");
  if (text == nullptr) text = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  return text == nullptr ? std::string_view() : text;
}

// PyTorch would compare it with the name of the allocator that there is, at the first use of CUDA.
void check_backend() {
  constexpr std::string_view kName = "backend";
  const std::string_view settings = settings_of_pytorch();
  const std::size_t at = settings.find(kName);
  if (at == std::string_view::npos) return;
  std::string_view value = settings.substr(at + kName.size());
  value = value.substr(0, value.find(','));
  value.remove_prefix(std::min(value.find_first_not_of(" :"), value.size()));
  throw Error(ErrorKind::kUsage,
              fmt::format("PYTORCH_ALLOC_CONF asks for backend:{}, and berth is to be the "
                          "allocator: take the backend out of it, or turn berth off "
                          "(BERTH_MODE=off)",
                          value));
}

// Settings of PyTorch that berth has no use for.
void name_ignored_settings() {
  const std::string_view settings = settings_of_pytorch();
  std::string ignored;
  for (const std::string_view name : {"max_split_size_mb", "garbage_collection_threshold",
                                      "max_non_split_rounding_mb", "large_segment_size_mb"}) {
    if (settings.find(name) == std::string_view::npos) continue;
    ignored += ignored.empty() ? "" : ", ";
    ignored += name;
  }
  if (!ignored.empty())
    warn("settings-ignored",
         fmt::format("PYTORCH_ALLOC_CONF asks for {}, which berth's CUDA allocator does not have",
                     ignored));
}

// A plan that cannot be read is better known now than at the first request.
void check_plan(const Config& config) {
  if (config.mode != Mode::kServe || config.plan.find('{') != std::string::npos) return;
  if (PlanFolder::is_named_by(config.plan)) return;
  (void)read_plan(config.plan);
}

// Memory that was asked for by name is better known to be missing now, too. A launcher's rank uses
// the GPU of its number.
void check_memory(const Config& config) {
  if (config.memory != MemoryKind::kVirtual) return;
  const char* const rank = std::getenv("LOCAL_RANK");
  require_virtual_memory(rank == nullptr ? 0 : std::max(std::atoi(rank), 0));
}

// The first lock is held over the fork as well, so that all three see the same allocator.
void before_fork() noexcept {
  installing.lock();
  if (CudaAllocator* const here = CudaAllocator::get()) here->before_fork();
}
void after_fork_in_parent() noexcept {
  if (CudaAllocator* const here = CudaAllocator::get()) here->after_fork_in_parent();
  installing.unlock();
}
void after_fork_in_child() noexcept {
  if (CudaAllocator* const here = CudaAllocator::get()) here->after_fork_in_child();
  installing.unlock();
}

// The driver may go before the last tensor does.
void at_exit() noexcept {
  CudaAllocator* const here = CudaAllocator::get();
  if (here == nullptr || here->forked()) return;
  for (Gpu* const gpu : here->gpus()) gpu->shut_down();
  set_cuda_over(true);
}

void make_installation(const Config& config) {
  check_libtorch();
  check_door();
  check_backend();
  check_plan(config);
  check_memory(config);
  name_ignored_settings();
  BERTH_CHECK(::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0,
              kSystem, "pthread_atfork has no memory left to register berth's handlers");
  BERTH_CHECK(std::atexit(+[] { at_exit(); }) == 0, kSystem,
              "atexit has no memory left to register berth's shutdown");
  auto allocator = std::make_shared<CudaAllocator>(config);
  if (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr) allocator->enable(false);
  allocator->become_instance();
  // Never destroyed: storages and deleters go on after main. libtorch's own reference is a static.
  static auto* const kept = new std::shared_ptr<CudaAllocator>(allocator);
  static auto* const backend = new CudaBackend(**kept);
  ::torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(*kept);
  // What torch.accelerator asks.
  c10::SetAllocator(c10::kCUDA, kept->get(), 1);
  note_asks_for_room(c10::kCUDA);
  add_backend(*backend);
  observe_ranges();
  tell_reads(**kept);
}

}  // namespace

void install_cuda() { install_cuda(Config::from_environment()); }

void install_cuda(const Config& config) {
  cudnn::offer_convolutions();
  offer_streams();
  const std::lock_guard lock(installing);
  if (config.mode == Mode::kOff || cuda_installed()) return;
  make_installation(config);
  is_installed.store(true, std::memory_order_release);
}

bool cuda_installed() noexcept { return is_installed.load(std::memory_order_acquire); }

namespace {

// Null where it was not used. Not for a forked child of a process that used CUDA.
Gpu* used_gpu(int device) {
  CudaAllocator* const here = CudaAllocator::get();
  if (here == nullptr) return nullptr;
  for (Gpu* const gpu : here->gpus())
    if (gpu->device().index() == device) return gpu;
  return nullptr;
}

}  // namespace

Stats cuda_stats(int device) {
  Gpu* const gpu = used_gpu(device);
  return gpu == nullptr ? Stats{} : gpu->planned().stats();
}

std::uint64_t cuda_release_memory(int device, bool keep_contents) {
  Gpu* const gpu = used_gpu(device);
  return gpu == nullptr || CudaAllocator::get()->forked() ? 0 : gpu->release_memory(keep_contents);
}

std::uint64_t cuda_resume_memory(int device) {
  Gpu* const gpu = used_gpu(device);
  return gpu == nullptr || CudaAllocator::get()->forked() ? 0 : gpu->resume_memory();
}

}  // namespace berth::torch
