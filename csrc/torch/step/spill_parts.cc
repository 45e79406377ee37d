#include "csrc/torch/step/spill_parts.h"

#include "csrc/torch/shared/backend.h"
#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/core/List.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

constexpr Bytes kLeastRoom = Bytes{1} << 20;
// How often what one call takes is laid out anew.
constexpr std::size_t kMostLayouts = 4;

// The elements of the call's lists of tensors, the same in all; 0 where there are none, or others.
std::size_t elements_of(c10::ArrayRef<c10::IValue> arguments) {
  std::size_t count = 0;
  for (const c10::IValue& value : arguments) {
    if (form_of(value) != Form::kTensors || value.toListRef().empty()) continue;
    const std::size_t here = value.toListRef().size();
    if (count != 0 && here != count) return 0;
    count = here;
  }
  return count;
}

Bytes bytes_of_element(const c10::IValue& tensor) {
  return tensor.isTensor() && tensor.toTensor().defined() ? tensor.toTensor().nbytes() : 0;
}

c10::IValue cut(const c10::IValue& list, std::size_t first, std::size_t end) {
  const c10::List<c10::IValue> all = list.toList();
  c10::impl::GenericList some(all.elementType());
  some.reserve(end - first);
  for (std::size_t n = first; n < end; ++n) some.push_back(all.get(n));
  return some;
}

// The device that is not the CPU among the arguments, if any.
std::optional<c10::Device> device_among(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  for (const c10::IValue& value : arguments) {
    if (value.isDevice() && !value.toDevice().is_cpu()) found = value.toDevice();
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (tensor.defined() && !tensor.device().is_cpu()) found = tensor.device();
    });
  }
  return found;
}

// That one, else the current one.
c10::Device device_where_it_works(c10::ArrayRef<c10::IValue> arguments) {
  const std::optional<c10::Device> found = device_among(arguments);
  if (found && found->has_index()) return *found;
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return c10::kCPU;
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
}

}  // namespace

void run_with_room(const c10::OperatorHandle& op, c10::Stack* stack,
                   const std::function<void(c10::Stack* part)>& run) {
  const OperatorFacts& facts = facts_of(op);
  const bool writes = std::count(facts.writes.begin(), facts.writes.end(), true) > 0;
  if (Spills::get().allocators_ask() || writes || facts.opaque) {
    run(stack);
    return;
  }
  const std::size_t below = stack->size() - op.schema().arguments().size();
  const c10::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  std::optional<GeneratorState> drawn_from;
  if (facts.random) drawn_from.emplace(generator_of(given));
  // How much it asked for is not told.
  Bytes bytes = kLeastRoom;
  for (const c10::IValue& value : given)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (tensor.defined()) bytes += tensor.nbytes();
    });
  for (;; bytes *= 2) {
    try {
      run(stack);
      return;
    } catch (const c10::OutOfMemoryError& error) {
      RoomMaker& maker = Spills::get();
      if (!maker.make_room(device_where_it_works(given), bytes))
        TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace(), "; ",
                         maker.why_no_room());
    }
    stack->resize(below);
    stack->insert(stack->end(), given.begin(), given.end());
    if (drawn_from) drawn_from->set(generator_of(given));
  }
}

namespace {

// Bytes that a kernel writes though nothing says so, as they were before.
class HiddenCopies {
 public:
  HiddenCopies(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> given) {
    const OperatorFacts& facts = facts_of(op);
    for (std::size_t n = 0; n < given.size(); ++n)
      if (facts.writes[n])
        for_each_tensor(given[n], form_of(given[n]), [&](const at::Tensor& tensor) {
          if (!tensor.defined()) return;
          const c10::Storage& storage = tensor.storage();
          const at::Tensor here = all_bytes(storage);
          copies_.emplace_back(storage, Spills::copy_to_host(here));
        });
  }
  void put_back() const {
    for (const auto& [storage, copy] : copies_) Spills::copy_from_host(copy, all_bytes(storage));
  }

 private:
  std::vector<std::pair<c10::Storage, at::Tensor>> copies_;
};

// Whether the device has no kernel of its own for it.
bool runs_composite(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const auto own = device_among(arguments) ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  // mutant: spills-composite
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(own);
}

}  // namespace

void run_side_by_side(const c10::OperatorHandle& op, c10::Stack* stack,
                      const std::function<void(c10::Stack* part)>& run) {
  const OperatorFacts& facts = facts_of(op);
  const std::size_t below = stack->size() - op.schema().arguments().size();
  const c10::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  const bool inner = Spills::Use::inside_kernel();
  const bool writes = std::count(facts.writes.begin(), facts.writes.end(), true) > 0;
  // What is called inside of it may have had effects.
  const bool composite = runs_composite(op, given);
  const bool may_run_again = !facts.opaque && !composite && (!writes || facts.hides_writes);
  std::optional<GeneratorState> drawn_from;
  std::optional<HiddenCopies> before;
  Spills::Rooms rooms;
  std::size_t tries = 0;
  bool ran = false;
  for (;;) {
    bool begun = false;
    try {
      Spills::Use use(op, *stack, /*begins_again=*/true, tries == 0 ? nullptr : &rooms);
      if (ran) {
        if (before) before->put_back();
      } else if ((facts.hides_writes || facts.random) && Spills::get().figures().host > 0) {
        if (facts.hides_writes) before.emplace(op, given);
        if (facts.random) drawn_from.emplace(generator_of(given));
      }
      // Others may have drawn meanwhile.
      use.set_begins_again(may_run_again && (!writes || before) && !facts.random);
      begun = ran = true;
      run_with_room(op, stack, run);
      use.note_results(op, *stack);
      return;
    } catch (const c10::OutOfMemoryError&) {
      const bool may = may_run_again && (!writes || before) && (!facts.random || drawn_from);
      const bool gave_way = Spills::Use::gave_way();
      if (inner || (begun && !may)) throw;
      if (!gave_way) {
        const c10::Device device = device_where_it_works(given);
        // What another allocator was asked for is not told.
        const bool asks = asks_for_room(device.type());
        if (tries == (asks ? kMostLayouts : 1)) throw;
        // mutant: spills-rooms
        if (begun && asks) rooms.push_back(Spills::lacked());
        RoomMaker& maker = Spills::get();
        if (!maker.make_room(device, kMaxBytes)) throw;
        trim(device);
        ++tries;
      }
    }
    stack->resize(below);
    stack->insert(stack->end(), given.begin(), given.end());
    if (ran && drawn_from) drawn_from->set(generator_of(given));
  }
}

bool run_in_parts(const c10::OperatorHandle& op, c10::Stack* stack,
                  const std::function<void(c10::Stack* part)>& run) {
  const OperatorFacts& facts = facts_of(op);
  if (!Spills::on() || !facts.listwise) return false;
  const std::size_t arguments = op.schema().arguments().size();
  const std::size_t results = op.schema().returns().size();
  const std::size_t below = stack->size() - arguments;
  const c10::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  const std::size_t elements = elements_of(given);
  if (elements < 2) return false;
  // A tensor of one number for each element of the lists is not cut.
  const auto is_for_elements = [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().numel() > 1;
  };
  if (std::any_of(given.begin(), given.end(), is_for_elements)) return false;

  std::vector<Bytes> sizes(elements);
  Bytes all = 0;
  for (const c10::IValue& value : given)
    if (form_of(value) == Form::kTensors && !value.toListRef().empty())
      for (std::size_t n = 0; n < elements; ++n) sizes[n] += bytes_of_element(value.toListRef()[n]);
  for (const Bytes size : sizes) all += size;
  const Bytes most = Spills::get().known() / 8;
  if (all <= most) return false;

  const auto is_cut = [&](std::size_t n) {
    const c10::IValue& value = given[n];
    if (form_of(value) == Form::kTensors) return !value.toListRef().empty();
    return facts.scalars[n] && value.isList() && value.toListRef().size() == elements;
  };
  std::vector<c10::impl::GenericList> made;
  stack->resize(below);
  for (std::size_t first = 0; first < elements;) {
    std::size_t end = first;
    for (Bytes size = 0; end < elements && (end == first || size + sizes[end] <= most); ++end)
      size += sizes[end];
    c10::Stack part;
    for (std::size_t n = 0; n < arguments; ++n)
      part.push_back(is_cut(n) ? cut(given[n], first, end) : given[n]);
    run_side_by_side(op, &part, run);
    for (std::size_t n = 0; n < results; ++n) {
      const c10::List<c10::IValue> some = part[part.size() - results + n].toList();
      if (first == 0) made.emplace_back(some.elementType());
      for (std::size_t k = 0; k < some.size(); ++k) made[n].push_back(some.get(k));
    }
    first = end;
  }
  for (c10::impl::GenericList& list : made) stack->emplace_back(std::move(list));
  return true;
}

}  // namespace berth::torch::step
