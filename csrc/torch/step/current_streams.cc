#include "csrc/torch/step/current_streams.h"

#include "csrc/torch/step/tensors.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace berth::torch::step {

bool CurrentStreams::is_same(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return true;
  const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const auto known = std::find_if(streams_.begin(), streams_.end(), [&](const c10::Stream& one) {
    return one.device() == current.device();
  });
  if (known != streams_.end()) return *known == current;
  streams_.push_back(current);
  return true;
}

bool CurrentStreams::are_same(c10::Device first, c10::ArrayRef<c10::IValue> arguments) {
  if (!is_same(first)) return false;
  if (streams_.size() < 2) [[likely]]
    return true;
  bool same = true;
  for_each_device(arguments, [&](c10::Device device) { same = is_same(device) && same; });
  return same;
}

CurrentStreams::Guard::Guard(const CurrentStreams& streams, bool put_off) : put_off_(put_off) {
  for (const c10::Stream& stream : streams.streams_) {
    const c10::impl::VirtualGuardImpl on(stream.device_type());
    const c10::Stream before = on.getStream(stream.device());
    if (before == stream) continue;
    on.exchangeStream(stream);
    changed_.emplace_back(stream, before);
  }
}

CurrentStreams::Guard::~Guard() {
  for (const auto& [stream, before] : changed_) {
    const c10::impl::VirtualGuardImpl on(stream.device_type());
    on.exchangeStream(before);
    if (!put_off_) continue;
    c10::Event done(stream.device_type());
    done.record(stream);
    done.block(before);
  }
}

}  // namespace berth::torch::step
