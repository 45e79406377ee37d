#include "csrc/torch/step/generators.h"

#include "tests/catch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace {

using berth::torch::step::GeneratorState;

std::string bytes_of(const at::Generator& generator) {
  const at::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

// Counts the requests to libtorch's CPU allocator while it stands.
class CountedRequests final : public c10::Allocator {
 public:
  CountedRequests() : inner_(c10::GetAllocator(c10::kCPU)) {
    c10::SetAllocator(c10::kCPU, this, 255);
  }
  ~CountedRequests() override { c10::SetAllocator(c10::kCPU, inner_, 255); }
  CountedRequests(const CountedRequests&) = delete;
  CountedRequests& operator=(const CountedRequests&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    ++count;
    return inner_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  int count = 0;

 private:
  c10::Allocator* inner_;
};

// A generator of the CPU that is not libtorch's: one number is all of its state.
class Counter final : public c10::GeneratorImpl {
 public:
  Counter() : GeneratorImpl(at::kCPU, c10::DispatchKeySet(c10::DispatchKey::CPU)) {}
  void set_current_seed(std::uint64_t seed) override { number = seed; }
  void set_offset(std::uint64_t) override {}
  std::uint64_t get_offset() const override { return 0; }
  std::uint64_t current_seed() const override { return number; }
  std::uint64_t seed() override { return number; }
  void set_state(const c10::TensorImpl& state) override {
    std::memcpy(&number, state.data(), sizeof(number));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::empty({8}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), &number, sizeof(number));
    return state.getIntrusivePtr();
  }

  std::uint64_t number = 7;

 private:
  GeneratorImpl* clone_impl() const override { return new Counter(*this); }
  Counter(const Counter& other) : Counter() { number = other.number; }
};

}  // namespace

TEST_CASE("The state of a generator of the CPU is all that its next draws depend on", "[step]") {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::TensorOptions options = at::TensorOptions().dtype(type);
    // A draw of one number leaves the second of a pair behind.
    for (const std::int64_t before : {0, 1, 2, 3, 16, 700}) {
      CAPTURE(before, type);
      (void)at::randn({before}, generator, options);
      const GeneratorState state(generator);
      const std::string bytes = bytes_of(generator);
      REQUIRE(state == GeneratorState(generator));
      const at::Tensor first = at::randn({5}, generator, options);
      REQUIRE_FALSE(state == GeneratorState(generator));
      state.set(generator);
      REQUIRE(bytes_of(generator) == bytes);
      REQUIRE(at::equal(at::randn({5}, generator, options), first));
    }
  }
}

TEST_CASE("The state of a generator of the CPU asks no allocator", "[step]") {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const CountedRequests requests;
  const GeneratorState state(generator);
  state.set(generator);
  REQUIRE(requests.count == 0);
}

TEST_CASE("The state of a generator that is not libtorch's is what it says", "[step]") {
  at::Generator generator = at::make_generator<Counter>();
  const GeneratorState state(generator);
  generator.set_current_seed(8);
  REQUIRE_FALSE(state == GeneratorState(generator));
  state.set(generator);
  REQUIRE(generator.current_seed() == 7);
  REQUIRE(state == GeneratorState(generator));
  REQUIRE_FALSE(state == GeneratorState(at::make_generator<at::CPUGeneratorImpl>(3)));
}
