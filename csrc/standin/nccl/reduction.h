#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::standin {

// How many bytes an element of an ncclDataType_t has; 0 for an unknown one.
std::size_t element_bytes(int type);

enum class Reduction : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };

// Adds up, or whatever the reduction is, the elements that ranks contributed, in the order in which
// they are given. Fractions are added in double precision and rounded once, whole numbers wrap.
// Elements of 8 bits with a fraction are taken from the first rank.
class Reducer {
 public:
  Reducer(int type, Reduction reduction) : type_(type), reduction_(reduction) {}

  void add(const std::byte* elements, std::size_t count);
  // Writes the result of all that was added and starts anew.
  void finish(std::byte* result);

 private:
  int type_;
  Reduction reduction_;
  int ranks_ = 0;
  std::vector<double> fractions_;
  std::vector<std::int64_t> integers_;
  std::vector<std::byte> bytes_;
};

// Multiplies elements by one of the same type.
void multiply(int type, std::byte* elements, std::size_t count, const std::byte* factor);

}  // namespace berth::standin
