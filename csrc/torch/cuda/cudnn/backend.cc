#include "csrc/torch/cuda/cudnn/backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <optional>

namespace berth::torch::cudnn {

namespace {

// Where a preloaded stand-in comes first.
void* symbol(const char* name) {
  if (void* const found = ::dlsym(RTLD_DEFAULT, name)) return found;
  static void* const library = ::dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

template <typename Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(symbol(name));
  return function != nullptr;
}

std::optional<Calls> find_calls() {
  Calls calls = {};
  std::size_t (*version)() = nullptr;
  if (!find(version, "cudnnGetVersion") || !find(calls.create, "cudnnBackendCreateDescriptor") ||
      !find(calls.destroy, "cudnnBackendDestroyDescriptor") ||
      !find(calls.set, "cudnnBackendSetAttribute") ||
      !find(calls.get, "cudnnBackendGetAttribute") ||
      !find(calls.finalize, "cudnnBackendFinalize") || !find(calls.execute, "cudnnBackendExecute"))
    return std::nullopt;
  calls.version = version();
  return calls.version / 10000 == kMajor ? std::optional(calls) : std::nullopt;
}

}  // namespace

const Calls* Calls::find() {
  static const std::optional<Calls> found = find_calls();
  return found ? &*found : nullptr;
}

Descriptor::Descriptor(const Calls& calls, DescriptorType type)
    : calls_(&calls), good_(calls.create(static_cast<std::int32_t>(type), &raw_) == kSuccess) {}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) calls_->destroy(raw_);
}

Descriptor& Descriptor::set(Attribute name, AttributeType type, std::int64_t count,
                            const void* values) {
  good_ = good_ && calls_->set(raw_, static_cast<std::int32_t>(name),
                               static_cast<std::int32_t>(type), count, values) == kSuccess;
  return *this;
}

Descriptor& Descriptor::set(Attribute name, std::span<const Descriptor> others) {
  std::vector<RawDescriptor> raw;
  for (const Descriptor& other : others) {
    good_ = good_ && other.good_;
    raw.push_back(other.raw_);
  }
  return set(name, AttributeType::kDescriptor, static_cast<std::int64_t>(raw.size()), raw.data());
}

Descriptor& Descriptor::finalize() {
  good_ = good_ && calls_->finalize(raw_) == kSuccess;
  return *this;
}

bool Descriptor::get(Attribute name, std::int64_t* number) const {
  std::int64_t count = 0;
  return good_ &&
         calls_->get(raw_, static_cast<std::int32_t>(name),
                     static_cast<std::int32_t>(AttributeType::kInt64), 1, &count,
                     number) == kSuccess &&
         count == 1;
}

std::vector<std::int32_t> Descriptor::enumerators(Attribute name, AttributeType type,
                                                  std::int64_t most) const {
  std::vector<std::int32_t> found(static_cast<std::size_t>(most));
  std::int64_t count = 0;
  if (!good_ || calls_->get(raw_, static_cast<std::int32_t>(name), static_cast<std::int32_t>(type),
                            most, &count, found.data()) != kSuccess)
    count = 0;
  found.resize(static_cast<std::size_t>(std::clamp(count, std::int64_t{0}, most)));
  return found;
}

std::vector<Descriptor> Descriptor::descriptors(Attribute name, DescriptorType type,
                                                std::int64_t most) const {
  std::vector<Descriptor> found;
  std::vector<RawDescriptor> raw;
  for (std::int64_t n = 0; n < most; ++n) {
    found.emplace_back(*calls_, type);
    raw.push_back(found.back().raw_);
  }
  std::int64_t count = 0;
  if (!good_ || calls_->get(raw_, static_cast<std::int32_t>(name),
                            static_cast<std::int32_t>(AttributeType::kDescriptor), most, &count,
                            raw.data()) != kSuccess)
    count = 0;
  while (static_cast<std::int64_t>(found.size()) > std::max(count, std::int64_t{0}))
    found.pop_back();
  return found;
}

}  // namespace berth::torch::cudnn
