// With libFuzzer: mutates as it does, then mostly makes checksums right again.
#include "tests/fuzz/fuzz.h"

#include <algorithm>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 4 == 0) return size;
  berth::fuzz::Input input(data, data + size);
  berth::fuzz::repair(input);
  if (input.size() > max_size) return size;
  std::copy(input.begin(), input.end(), data);
  return input.size();
}
