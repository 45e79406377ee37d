// The layer that charges a device for the driver's calls counts what the CUDA device makes of them.

#include "tests/cuda/fixture.h"
#include "tests/support/charged_device.h"

#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;

namespace {

MemoryCallCounts calls_of_the_standin() {
  MemoryCallCounts counts;
  for (std::size_t i = 0; i < kMemoryCalls; ++i) {
    const auto call = static_cast<MemoryCall>(i);
    counts.add(call, berth_standin_calls(std::string(name_of(call)).c_str()));
  }
  return counts;
}

}  // namespace

TEST_CASE_METHOD(Standin, "What memory would cost on a GPU is what it costs there", "[charged]") {
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  const auto device = make_gpu(kind);
  const MemoryCallCounts before = calls_of_the_standin();
  ChargedDevice charged(*device);
  constexpr Bytes page = Bytes{2} << 20;
  constexpr std::size_t kPages = 32;
  std::array<std::byte*, 2> bases{};
  for (std::byte*& base : bases) {
    void* reserved = nullptr;
    REQUIRE(charged.reserve(kPages * page, 0, &reserved).ok());
    base = static_cast<std::byte*>(reserved);
  }
  if (kind == Memory::kVirtual) {
    std::mt19937 random(7);
    std::array<std::vector<bool>, 2> there;
    there.fill(std::vector<bool>(kPages, false));
    const auto handle = [&](std::size_t range, std::size_t at) {
      const ByteRange bytes = charged.handle_at(bases[range] + at * page);
      const Bytes base = reinterpret_cast<Bytes>(bases[range]);
      return ByteRange{(bytes.first - base) / page, (bytes.last - base) / page};
    };
    for (int i = 0; i < 400; ++i) {
      const std::size_t range = random() % 2, at = random() % kPages;
      const std::size_t count = 1 + random() % (kPages - at);
      if (random() % 3 != 0) {
        const Bytes most = page << random() % 5;
        REQUIRE(
            charged
                .commit(bases[range] + at * page, count * page, Device::Residency::kOnDemand, most)
                .ok());
        for (std::size_t k = at; k < at + count; ++k) there[range][k] = true;
      } else if (there[range][at]) {
        ByteRange gone = handle(range, at);
        const std::size_t other = 1 - range;
        bool free = random() % 2 == 0;
        for (std::size_t k = gone.first; k < gone.last; ++k) free = free && !there[other][k];
        if (free) {  // behind the same place of the other range first
          std::vector<const void*> from;
          for (std::size_t k = gone.first; k < gone.last; ++k) {
            from.push_back(bases[range] + k * page);
            there[other][k] = true;
          }
          REQUIRE(charged.alias(bases[other] + gone.first * page, from.data(), from.size()).ok());
        }
        // A neighbour goes in the same call.
        if (gone.last < kPages && there[range][gone.last])
          gone.last = handle(range, gone.last).last;
        REQUIRE(charged.decommit(bases[range] + gone.first * page, gone.size() * page).ok());
        for (std::size_t k = gone.first; k < gone.last; ++k) there[range][k] = false;
      }
    }
  }
  for (std::byte* const base : bases) REQUIRE(charged.release(base, kPages * page).ok());
  const MemoryCallCounts made = calls_of_the_standin() - before;
  for (std::size_t i = 0; i < kMemoryCalls; ++i) {
    const auto call = static_cast<MemoryCall>(i);
    INFO(name_of(call));
    CHECK(charged.memory_calls().of(call) == made.of(call));
  }
  CHECK(made.all() >= 4);
}
