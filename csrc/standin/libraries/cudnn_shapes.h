#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::standin {

constexpr int kBadParam = 2000;             // CUDNN_STATUS_BAD_PARAM
constexpr int kNotSupportedByCudnn = 3000;  // CUDNN_STATUS_NOT_SUPPORTED

// What is behind cuDNN's descriptors of tensors and of filters, which the older interface and the
// recurrent networks take.
struct ShapeDescriptor {
  int type = 0;    // as cuDNN numbers types
  int format = 0;  // of filters
  std::vector<int> sizes, strides;

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = sizes.empty() ? 0 : 1;
    for (const int size : sizes) count *= size;
    return count;
  }
};

// Of an element of a type, as cuDNN numbers them: float, double, half, .. bfloat16.
[[nodiscard]] constexpr std::size_t element_bytes(int type) {
  switch (type) {
    case 1:   // double
    case 10:  // int64
      return 8;
    case 2:  // half
    case 9:  // bfloat16
      return 2;
    case 3:   // int8
    case 6:   // uint8
    case 11:  // boolean
      return 1;
    default:
      return 4;
  }
}

[[nodiscard]] inline std::size_t bytes_of(const ShapeDescriptor& shape) {
  return static_cast<std::size_t>(shape.elements()) * element_bytes(shape.type);
}

[[nodiscard]] constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + 511) / 512 * 512;
}

}  // namespace berth::standin
