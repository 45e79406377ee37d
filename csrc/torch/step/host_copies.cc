#include "csrc/torch/step/host_copies.h"

#include "csrc/core/check.h"
#include "csrc/core/setup_mutex.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace berth::torch::step {

namespace {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

struct CopyStreams {
  c10::Stream out, in;
};

SetupMutex streams_mutex;

// The same ones for ever: allocators know streams by name.
CopyStreams copy_streams(c10::Device device) {
  const std::lock_guard lock(streams_mutex);
  static auto& streams = *new std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, CopyStreams>;
  const std::pair key(device.type(), device.index());
  const auto found = streams.find(key);
  if (found != streams.end()) return found->second;
  const c10::impl::VirtualGuardImpl on(device.type());
  const c10::Stream out = on.getStreamFromGlobalPool(device, false);
  return streams.emplace(key, CopyStreams{out, on.getStreamFromGlobalPool(device, false)})
      .first->second;
}

std::shared_ptr<c10::Event> event_of(c10::Stream stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

}  // namespace

HostCopies::~HostCopies() {
  try {
    end();
    while (!arriving_.empty()) wait_for(arriving_.begin()->first);
  } catch (...) {  // the device has failed: whoever uses it next is told
  }
}

bool HostCopies::out(BufferNumber buffer, c10::Storage storage) {
  const c10::Device device = storage.device();
  std::optional<Spills::HostShare> share = Spills::get().host_share(storage.nbytes());
  if (!share) return false;
  Away away{.bytes = storage.nbytes(), .device = device, .share = *std::move(share)};
  wait_for(buffer);
  const Spills::Use there(storage);
  if (device.is_cpu()) {
    away.plain = std::make_unique_for_overwrite<std::byte[]>(away.bytes);
    std::memcpy(away.plain.get(), storage.data(), away.bytes);
    skip_out();
  } else {
    away.pinned = at::empty({static_cast<std::int64_t>(away.bytes)},
                            at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    const c10::Stream stream = copy_streams(device).out;
    event_of(current_stream(device))->block(stream);
    {
      const c10::StreamGuard on(stream);
      away.pinned.copy_(all_bytes(storage), /*non_blocking=*/true);
    }
    away.out = event_of(stream);
    leaving_.push_back(note_leaving({std::move(storage), away.out, current_stream(device)}));
  }
  away_.insert_or_assign(buffer, std::move(away));
  return true;
}

void HostCopies::send(BufferNumber buffer, const c10::Storage& storage) {
  wait_for(buffer);
  const c10::Device device = storage.device();
  std::optional<c10::Stream> stream;
  if (!device.is_cpu()) stream = copy_streams(device).out;
  c10::DataPtr block = Spills::get().send(*storage.unsafeGetStorageImpl(), stream);
  if (!stream || block.get() == nullptr) {
    skip_out();
    return;
  }
  leaving_.push_back(note_leaving(
      {c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::int64_t>(storage.nbytes()),
                    std::move(block), nullptr, /*resizable=*/false),
       event_of(*stream), current_stream(device)}));
}

void HostCopies::fetch(BufferNumber buffer, const c10::Storage& storage) {
  const c10::Device device = storage.device();
  std::optional<c10::Stream> stream;
  if (!device.is_cpu()) stream = copy_streams(device).in;
  if (Spills::get().fetch(*storage.unsafeGetStorageImpl(), stream) && stream)
    arriving_.insert_or_assign(buffer, Arriving{storage, event_of(*stream)});
}

void HostCopies::begin_without(const c10::Storage& storage) {
  BERTH_ASSERT(leaving_.empty(), "{} copies of the step have begun", leaving_.size());
  send(kNoBuffer, storage);
  end();
  ended_ = 0;
}

void HostCopies::end_outs(std::size_t count) {
  for (; ended_ < count && !leaving_.empty(); ++ended_, leaving_.pop_front())
    if (leaving_.front() != nullptr) step::end(*leaving_.front());
}

c10::Storage HostCopies::in(BufferNumber buffer) {
  const auto found = away_.find(buffer);
  BERTH_ASSERT(found != away_.end(), "buffer {} is not on the host", buffer);
  Away& away = found->second;
  const at::Tensor here = at::empty({static_cast<std::int64_t>(away.bytes)},
                                    at::TensorOptions().dtype(at::kByte).device(away.device));
  if (away.device.is_cpu()) {
    std::memcpy(here.mutable_data_ptr(), away.plain.get(), away.bytes);
    // It came before its use, where there was room: what an operator needs meanwhile is more.
    Spills::get().see(*here.storage().unsafeGetStorageImpl());
  } else {
    const c10::Stream stream = copy_streams(away.device).in;
    event_of(current_stream(away.device))->block(stream);
    away.out->block(stream);
    {
      const c10::StreamGuard on(stream);
      const at::Tensor to = here;
      to.copy_(away.pinned, /*non_blocking=*/true);
    }
    const std::shared_ptr<c10::Event> in = event_of(stream);
    Spills::get().see(*here.storage().unsafeGetStorageImpl(), in);
    arriving_.insert_or_assign(buffer, Arriving{here.storage(), in});
  }
  away_.erase(found);
  return here.storage();
}

void HostCopies::wait_for(BufferNumber buffer) {
  const auto found = arriving_.find(buffer);
  if (found == arriving_.end()) return;
  found->second.in->block(current_stream(found->second.storage.device()));
  arriving_.erase(found);
}

}  // namespace berth::torch::step
