// Spills::Use: who uses which tensors meanwhile, and the turns of operators.
#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/record.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

namespace berth::torch::step {

namespace {

// Of operators, on this thread.
thread_local Spills::Use *innermost = nullptr, *outermost = nullptr;
thread_local bool gives_way = false;

// Calls visit(const c10::Storage&) for those of tensors inside one that libtorch reads without an
// operator: a nested one's sizes, a quantized one's scales.
template <typename Visit>
void for_each_inside(const at::Tensor& tensor, const Visit& visit_storage) {
  const auto visit = [&](const at::Tensor& inside) {
    if (inside.defined() && inside.has_storage() && inside.storage())
      visit_storage(inside.storage());
  };
  if (!tensor.defined() || tensor.key_set().has(c10::DispatchKey::Python)) return;
  if (tensor.is_nested()) {
    const at::native::NestedTensorImpl* const nested = at::native::get_nested_tensor_impl(tensor);
    visit(nested->get_nested_sizes());
    visit(nested->get_nested_strides());
    visit(nested->get_storage_offsets());
  } else if (tensor.is_quantized()) {
    const auto* const channels = dynamic_cast<const at::PerChannelAffineQuantizer*>(
        at::get_qtensorimpl(tensor)->quantizer().get());
    if (channels == nullptr) return;
    visit(channels->scales());
    visit(channels->zero_points());
  }
}

// Calls visit(const c10::Storage&, bool stays) for what holds the tensor's bytes: of a sparse one
// the storages of its indices and values. What is inside stays.
template <typename Visit>
void for_each_storage(const at::Tensor& tensor, const Visit& visit) {
  if (!tensor.defined() || tensor.key_set().has(c10::DispatchKey::Python)) return;
  if (tensor.is_sparse()) {
    const at::SparseTensorImpl* const sparse = at::sparse::get_sparse_impl(tensor);
    for_each_storage(sparse->indices(), visit);
    for_each_storage(sparse->values(), visit);
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto* const sparse = at::sparse_csr::get_sparse_csr_impl(tensor);
    for_each_storage(sparse->compressed_indices(), visit);
    for_each_storage(sparse->plain_indices(), visit);
    for_each_storage(sparse->values(), visit);
  } else if (tensor.has_storage()) {
    const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    if (storage) visit(storage, false);
    // mutant: spills-inside
    for_each_inside(tensor, [&](const c10::Storage& inside) { visit(inside, true); });
  }
}

}  // namespace

bool Spills::Use::inside_kernel() noexcept {
  return innermost != nullptr && (innermost->keeps_inside_ || innermost->keeper() != nullptr);
}

Spills::Use* Spills::Use::keeper() const noexcept {
  Use* one = outer_;
  while (one != nullptr && !one->keeps_inside_) one = one->outer_;
  return one;
}

Spills::Use::Need Spills::Use::need(c10::Device device) {
  if (outermost == nullptr || !outermost->op_) return {};
  Need result{.name = words_of(*outermost->op_)};
  std::unordered_set<const void*> counted;
  for (const Use* use = innermost; use != nullptr; use = use->outer_)
    for (const void* const one : use->used_) {
      const auto& entry = *static_cast<const Entry*>(one);
      if (entry.device == device && !entry.away && counted.insert(one).second)
        result.uses += entry.bytes;
    }
  return result;
}

void Spills::forget_copy_of(const c10::StorageImpl& storage) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  if (const auto found = by_storage_.find(&storage); found != by_storage_.end())
    forget_copy(*found->second);
}

bool Spills::Use::gave_way() noexcept { return std::exchange(gives_way, false); }

void Spills::Use::begin(const c10::OperatorHandle& op, const c10::Stack& stack, bool begins_again,
                        const Rooms* rooms) {
  const OperatorFacts& facts = facts_of(op);
  outer_ = std::exchange(innermost, this);
  if (outer_ == nullptr) {
    outermost = this;
    gives_way = false;
  }
  op_ = op;
  stands_ = true;
  keeps_inside_ = !facts.points_to_arguments;
  get().note_profiler();
  if (facts.view || facts.allocates) return;
  // A collective waits for threads of its backend, which may need memory.
  if (outer_ == nullptr && !facts.collective) get().turns_.begin(turn_, begins_again);
  const std::size_t arguments = op.schema().arguments().size();
  const auto given = last_of(stack, arguments);
  const bool keeps = facts.opaque && !facts.resizes;  // a pointer, perhaps
  c10::SmallVector<Used, 8> storages;
  for (std::size_t n = 0; n < arguments; ++n) {
    const c10::IValue& value = given[n];
    const bool written = facts.writes[n];
    if (value.isStorage())
      storages.push_back({value.toStorage().unsafeGetStorageImpl(), true, keeps});
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      for_each_storage(tensor, [&](const c10::Storage& storage, bool inside) {
        storages.push_back({storage.unsafeGetStorageImpl(), written, keeps || inside});
      });
    });
  }
  {
    Spills& spills = get();
    const std::lock_guard lock(spills.mutex_);
    for (const Used& one : storages)
      if (one.storage == spills.compared_) spills.end_compare();
    for (const Used& one : storages) spills.use(one, used_);
  }
  bring_back(rooms);
}

void Spills::Use::begin(const c10::Storage& storage) {
  stands_ = true;
  {
    Spills& spills = get();
    const std::lock_guard lock(spills.mutex_);
    // Whoever takes a storage may write it.
    spills.use({storage.unsafeGetStorageImpl(), true}, used_);
  }
  bring_back();
}

void Spills::Use::bring_back(const Rooms* rooms) {
  try {
    if (rooms == nullptr)
      for (void* const one : used_) get().bring_back(*static_cast<Entry*>(one));
    else
      get().lay_out(used_, *rooms);
  } catch (...) {
    end();
    throw;
  }
}

void Spills::Use::end() noexcept {
  if (innermost == this) innermost = outer_;
  if (outermost == this) outermost = nullptr;
  stands_ = false;
  if (op_ && facts_of(*op_).opaque) get().note_profiler();  // that it has begun
  {
    const std::lock_guard lock(get().mutex_);
    if (Use* const keeper = this->keeper(); keeper != nullptr)
      keeper->used_.insert(keeper->used_.end(), used_.begin(), used_.end());
    else
      for (void* const one : used_) --static_cast<Entry*>(one)->uses;
    used_.clear();
  }
  if (outermost != nullptr)
    outermost->turn_.calm();
  else
    turn_.end();
}

void Spills::Use::see_view(const c10::Stack& stack) {
  if (stack.empty() || !stack.back().isTensor()) return;
  for_each_inside(stack.back().toTensor(), [](const c10::Storage& inside) {
    Spills& spills = get();
    const std::lock_guard lock(spills.mutex_);
    if (Entry* const entry = spills.find_or_add(*inside.unsafeGetStorageImpl()))
      entry->stays = true;
  });
}

void Spills::Use::see_results(const c10::OperatorHandle& op, const c10::Stack& stack) {
  const auto& returns = op.schema().returns();
  if (returns.size() > stack.size()) return;
  // Who makes it may keep its address: an operator that nobody knows, and one around this one.
  const auto keeps = [](const c10::OperatorHandle& maker) {
    return facts_of(maker).opaque && !facts_of(maker).resizes;
  };
  bool inside = false;
  for (const Use* one = outer_; one != nullptr; one = one->outer_)
    inside =
        inside || (one->op_ && keeps(*one->op_) && one->op_->operator_name().name != kRunWithin);
  c10::SmallVector<std::pair<c10::StorageImpl*, bool>, 4> storages;  // and whether it stays
  const auto results = last_of(stack, returns.size());
  for (std::size_t n = 0; n < results.size(); ++n) {
    // mutant: spills-made-inside
    const bool stays = keeps(op) || (inside && returns[n].alias_info() == nullptr);
    for_each_tensor(results[n], form_of(results[n]), [&](const at::Tensor& tensor) {
      for_each_storage(tensor, [&](const c10::Storage& storage, bool within) {
        storages.emplace_back(storage.unsafeGetStorageImpl(), stays || within);
      });
    });
  }
  Spills& spills = get();
  const std::lock_guard lock(spills.mutex_);
  for (const auto& [storage, stays] : storages) {
    Entry* const entry = spills.find_or_add(*storage);
    if (entry == nullptr) continue;
    spills.note_stream(*entry);
    entry->stays |= stays;
    if (keeper() == nullptr) continue;
    ++entry->uses;
    used_.push_back(entry);
  }
}

bool Spills::wait_for_others(std::uint64_t ended) {
  // Threads that do a part of an operator would wait for that.
  if (fetches_ || (outermost == nullptr && at::in_parallel_region())) return false;
  OperatorTurns::Turn none;  // of a request outside of operators
  const OperatorTurns::Answer answer =
      turns_.wait(outermost == nullptr ? none : outermost->turn_, ended);
  gives_way = answer == OperatorTurns::Answer::kGiveWay;
  return answer == OperatorTurns::Answer::kAskAgain;
}

std::optional<Spills::HostShare> Spills::host_share(Bytes bytes) {
  if (!on()) return HostShare();
  const std::lock_guard lock(mutex_);
  if (!host_has(bytes)) return std::nullopt;
  memory_.add_scheduled(bytes);
  return HostShare(bytes);
}

Spills::HostShare::~HostShare() {
  if (bytes_ == 0) return;
  Spills& spills = get();
  const std::lock_guard lock(spills.mutex_);
  spills.memory_.drop_scheduled(bytes_);
}

}  // namespace berth::torch::step
