#include "csrc/torch/step/kernel_cost.h"

#include "csrc/torch/shared/backend.h"
#include "csrc/torch/step/tensors.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

namespace berth::torch::step {

class KernelCost::Memory final : public MemoryListener {
 public:
  void reportMemoryUsage(void* block, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device device) override {
    if (bytes > 0) {
      const auto size = static_cast<Bytes>(bytes);
      blocks_[block] = {size, made_};
      held += size;
      peak = std::max(peak, held);
      if (++made_ > kMostRequests) return;
      // What is reported may be rounded.
      const Bytes asked = requested_bytes(device, block);
      requests.push_back({.bytes = asked > 0 ? asked : size, .device = device});
    } else if (const auto found = blocks_.find(block); found != blocks_.end()) {
      // What was there before the kernel and is freed in it is not its own.
      held -= found->second.bytes;
      if (made_ <= kMostRequests)
        requests[found->second.request].freed = static_cast<std::uint32_t>(made_);
      blocks_.erase(found);
    }
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  void left(const void* block) noexcept override {
    ++left_;
    own_left_ |= blocks_.contains(const_cast<void*>(block));
  }
  // `left`: so many blocks have left since it began, of all threads. One that the kernel made has
  // no address then, or that of another by now.
  [[nodiscard]] bool complete(std::uint64_t left) const noexcept {
    return made_ <= kMostRequests && left == left_ && !own_left_;
  }
  // Which request made the block that is held there; null where none did.
  [[nodiscard]] KernelRequest* find(const void* block) {
    const auto found = blocks_.find(const_cast<void*>(block));
    return found == blocks_.end() ? nullptr : &requests[found->second.request];
  }

  Bytes held = 0, peak = 0;
  std::vector<KernelRequest> requests;

 private:
  struct Block {
    Bytes bytes = 0;
    std::size_t request = 0;
  };
  std::size_t made_ = 0;
  std::uint64_t left_ = 0;  // while this thread made room
  bool own_left_ = false;
  std::unordered_map<void*, Block> blocks_;
};

namespace {

std::atomic<StreamWait> offered_wait{nullptr};

// Waits for what was asked of the current streams of the values' devices, but the CPU.
void wait_for_devices(c10::ArrayRef<c10::IValue> values) {
  c10::SmallVector<c10::Device, 2> waited;
  for (const c10::IValue& value : values)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.device().is_cpu()) return;
      if (std::find(waited.begin(), waited.end(), tensor.device()) != waited.end()) return;
      waited.push_back(tensor.device());
      const c10::impl::VirtualGuardImpl on(tensor.device().type());
      const c10::Stream stream = on.getStream(tensor.device());
      const StreamWait wait = offered_wait.load(std::memory_order_acquire);
      if (wait == nullptr || !wait(stream)) on.synchronizeStream(stream);
    });
}

}  // namespace

void offer_stream_wait(StreamWait wait) noexcept {
  offered_wait.store(wait, std::memory_order_release);
}

KernelCost::KernelCost(c10::ArrayRef<c10::IValue> values)
    : memory_(std::make_shared<Memory>()), guard_(memory_) {
  wait_for_devices(values);
  before_ = Spills::get().figures();
  elapsed_ = {};
}

std::uint64_t KernelCost::ns(c10::ArrayRef<c10::IValue> results) const {
  wait_for_devices(results);
  const std::uint64_t spilled = Spills::get().figures().ns - before_.ns;
  const std::uint64_t all = elapsed_.ns();
  return all - std::min(all, spilled);
}

Bytes KernelCost::peak() const noexcept { return memory_->peak; }
Bytes KernelCost::held() const noexcept { return memory_->held; }

std::uint32_t KernelCost::request_of(const void* block) const {
  const KernelRequest* const made = memory_->find(block);
  return made == nullptr ? KernelRequest::kNone
                         : static_cast<std::uint32_t>(made - memory_->requests.data());
}

std::vector<KernelRequest> KernelCost::requests(c10::ArrayRef<c10::IValue> results) const {
  if (!memory_->complete(Spills::get().figures().left - before_.left)) return {};
  std::uint32_t number = 0;
  for (const c10::IValue& value : results)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      const std::uint32_t result = number++;
      if (!tensor.defined() || !tensor.has_storage()) return;
      // One that was there before may be on the host, and has no address.
      c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
      KernelRequest* const made = memory_->find(storage._mutable_data_ptr_no_checks().get());
      if (made != nullptr && made->result == KernelRequest::kNone) made->result = result;
    });
  return memory_->requests;
}

}  // namespace berth::torch::step
