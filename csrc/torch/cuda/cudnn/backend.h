#pragma once

#include "csrc/torch/cuda/cudnn/abi.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace berth::torch::cudnn {

// cuDNN's functions that berth calls, in the library that libtorch has loaded.
struct Calls {
  int (*create)(std::int32_t type, RawDescriptor* descriptor);
  int (*destroy)(RawDescriptor descriptor);
  int (*set)(RawDescriptor descriptor, std::int32_t name, std::int32_t type, std::int64_t count,
             const void* values);
  int (*get)(RawDescriptor descriptor, std::int32_t name, std::int32_t type, std::int64_t wanted,
             std::int64_t* count, void* values);
  int (*finalize)(RawDescriptor descriptor);
  int (*execute)(Handle handle, RawDescriptor plan, RawDescriptor pack);
  std::size_t version;

  // Null where there is none of version 9 in the process. Thread-safe.
  [[nodiscard]] static const Calls* find();
};

// A descriptor of cuDNN's. Calls that fail say false; a descriptor one of whose calls has failed is
// of no use. Not thread-safe.
class Descriptor {
 public:
  Descriptor(const Calls& calls, DescriptorType type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept
      : calls_(other.calls_), raw_(std::exchange(other.raw_, nullptr)), good_(other.good_) {}
  Descriptor& operator=(Descriptor&&) = delete;

  [[nodiscard]] bool good() const noexcept { return good_; }
  [[nodiscard]] RawDescriptor raw() const noexcept { return raw_; }

  Descriptor& set(Attribute name, AttributeType type, std::int64_t count, const void* values);
  Descriptor& set(Attribute name, std::span<const std::int64_t> numbers) {
    return set(name, AttributeType::kInt64, static_cast<std::int64_t>(numbers.size()),
               numbers.data());
  }
  Descriptor& set(Attribute name, std::int64_t number) { return set(name, {&number, 1}); }
  // An enumerator of cuDNN's.
  Descriptor& set(Attribute name, AttributeType type, std::int32_t value) {
    return set(name, type, 1, &value);
  }
  Descriptor& set(Attribute name, const Descriptor& other) {
    return set(name, AttributeType::kDescriptor, 1, &other.raw_);
  }
  Descriptor& set(Attribute name, std::span<const Descriptor> others);
  Descriptor& finalize();

  // False where cuDNN does not say.
  bool get(Attribute name, std::int64_t* number) const;
  // The enumerators of an attribute that has at most `most`.
  [[nodiscard]] std::vector<std::int32_t> enumerators(Attribute name, AttributeType type,
                                                      std::int64_t most) const;
  // What the descriptors of an attribute are, at most `most`.
  [[nodiscard]] std::vector<Descriptor> descriptors(Attribute name, DescriptorType type,
                                                    std::int64_t most) const;

 private:
  const Calls* calls_;
  RawDescriptor raw_ = nullptr;
  bool good_ = false;
};

}  // namespace berth::torch::cudnn
