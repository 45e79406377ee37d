#include "csrc/torch/step/streams.h"

#include "csrc/torch/step/captures.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/outside_memory.h"
#include "csrc/torch/step/tensors.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace berth::torch::step {

namespace {

c10::Stream current_on(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

constexpr std::uint32_t kSide = 1;

}  // namespace

std::uint32_t StreamsOfCalls::note(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<std::size_t> streams;
  for_each_device(arguments, [&](c10::Device device) {
    const c10::Stream current = current_on(device);
    auto found = std::find_if(seen_.begin(), seen_.end(),
                              [&](const Seen& one) { return one.stream == current; });
    if (found == seen_.end()) found = seen_.insert(found, Seen{.stream = current});
    const auto number = static_cast<std::size_t>(found - seen_.begin());
    if (std::find(streams.begin(), streams.end(), number) == streams.end())
      streams.push_back(number);
  });
  if (streams.empty()) return 0;
  for (const std::size_t one : streams) ++seen_[one].calls;
  auto found = std::find(together_.begin(), together_.end(), streams);
  if (found == together_.end()) found = together_.insert(found, std::move(streams));
  return static_cast<std::uint32_t>(found - together_.begin()) + 1;
}

void StreamsOfCalls::set_own(c10::Stream stream) {
  seen_.push_back({.stream = stream, .calls = 0, .own = true});
}

void StreamsOfCalls::settle(std::vector<Call>& calls, std::size_t first) const {
  std::vector<bool> own(seen_.size());
  for (std::size_t n = 0; n < seen_.size(); ++n)
    own[n] = std::none_of(seen_.begin(), seen_.end(), [&](const Seen& other) {
      if (&other == &seen_[n] || other.stream.device() != seen_[n].stream.device()) return false;
      if (other.own != seen_[n].own) return other.own;
      // mutant: streams-most
      return other.calls > seen_[n].calls || (other.calls == seen_[n].calls && &other < &seen_[n]);
    });
  for (std::size_t n = first; n < calls.size(); ++n) {
    std::uint32_t& stream = calls[n].stream;
    if (stream == 0) continue;
    const std::vector<std::size_t>& streams = together_[stream - 1];
    stream = std::all_of(streams.begin(), streams.end(), [&](std::size_t one) { return own[one]; })
                 ? 0
                 : kSide;
  }
}

bool has_side_streams(const StepRecord& record) {
  return std::any_of(record.calls.begin(), record.calls.end(),
                     [](const Call& call) { return call.on_side(); });
}

namespace {

void share(StepRecord& record, StorageNumber storage) {
  if (storage != kNoStorage) record.storages[storage].shared = true;
}

}  // namespace

void make_barrier(StepRecord& record, std::uint32_t number) {
  Call& call = record.calls[number];
  if (call.by_body) return;
  call.barrier = call.host_read = true;
  call.checked = false;
  call.aside.clear();
  for (Argument& argument : call.arguments) argument.any |= argument.form == Form::kValue;
  for (const ResultTensor& one : call.result_tensors) {
    if (one.operand.storage == kNoStorage) continue;
    RecordedStorage& made = record.storages[one.operand.storage];
    if (made.maker != number || made.made_by_barrier) continue;
    made.made_by_barrier = true;
    if (const auto there = record.held[one.operand.storage].lock(); there != nullptr)
      made.foreign = is_foreign(*there);
  }
}

void run_at_calls(StepRecord& record) {
  record.several_streams = true;
  for (std::uint32_t number = 0; number < record.calls.size(); ++number) {
    Call& call = record.calls[number];
    // mutant: streams-side
    if (call.on_side()) make_barrier(record, number);
    // mutant: streams-put-off
    call.checked = !call.by_body && !call.barrier && !call.host_read;
    if (call.on_side() || facts_of(call.op).records_stream) {
      for (const Operand& one : call.operands) share(record, one.storage);
      for (const ResultTensor& one : call.result_tensors) share(record, one.operand.storage);
    }
  }
}

void OrderedBehind::begin(const std::vector<c10::Stream>& streams) {
  for (const c10::Stream& stream : streams) {
    if (is_captured(stream.device())) continue;
    Point& point = points_.emplace_back(Point{c10::Event(stream.device_type()), {stream}});
    point.event.record(stream);
  }
}

void OrderedBehind::order(c10::ArrayRef<c10::IValue> arguments) {
  if (points_.empty()) return;
  for_each_device(arguments, [&](c10::Device device) {
    const c10::Stream current = current_on(device);
    for (Point& point : points_) {
      if (point.behind.front().device() != device ||
          std::find(point.behind.begin(), point.behind.end(), current) != point.behind.end())
        continue;
      // mutant: streams-left
      point.event.block(current);
      point.behind.push_back(current);
    }
  });
}

}  // namespace berth::torch::step
