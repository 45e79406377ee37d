// Memory that two processes share.

#include "csrc/cuda/descriptor_server.h"
#include "tests/cuda/fixture.h"
#include "tests/support/run_program.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;

namespace {

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

// A committed range of 8 MiB.
struct Range {
  explicit Range(Memory kind, Bytes handle = 2 * kMiB) : device(make_gpu(kind)) {
    void* reserved = nullptr;
    REQUIRE(device->reserve(8 * kMiB, 0, &reserved).ok());
    REQUIRE(device->commit(reserved, 8 * kMiB, Device::Residency::kOnDemand, handle).ok());
    base = static_cast<std::byte*>(reserved);
  }
  std::unique_ptr<CudaDevice> device;
  std::byte* base = nullptr;
};

template <typename T>
T at(const std::string& text, std::size_t offset) {
  T value;
  std::memcpy(&value, text.data() + offset, sizeof value);
  return value;
}

// Of a handle: where descriptors are asked for.
constexpr std::size_t kDoor = 32;

// Open file descriptors of this process.
std::size_t descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open))) - 1;
}

// The process may have `more` descriptors than it has, while this lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t more) {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit few{descriptors() + more, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewDescriptors() { (void)setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("Another process reads and writes what was shared", "[cuda][ipc]") {
  const Standin standin;
  // Where the system lets a process reach for the descriptors of its descendants only.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  CAPTURE(name_of(kind));
  const Range range(kind);
  // From the middle of one page to that of another.
  std::byte* const pointer = range.base + 3 * kMiB;
  const Bytes size = 2 * kMiB;
  cudaMemset(range.base, 0, 8 * kMiB);
  cudaMemset(pointer, 1, size);
  cudaDeviceSynchronize();
  CudaSharedMemory shared;
  REQUIRE(range.device->share(pointer, size, &shared).ok());
  const ProgramResult result = run_program({BERTH_CUDA_PROGRAM, "open", to_hex(shared.handle),
                                            std::to_string(shared.offset), std::to_string(size)},
                                           {{"BERTH_STANDIN_MEMORY", std::to_string(kTotal)}});
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  std::vector<std::byte> bytes(8 * kMiB);
  cudaMemcpy(bytes.data(), range.base, bytes.size(), cudaMemcpyDeviceToHost);
  REQUIRE(bytes[3 * kMiB - 1] == std::byte{0});
  REQUIRE(std::all_of(bytes.begin() + 3 * kMiB, bytes.begin() + 5 * kMiB,
                      [](std::byte byte) { return byte == std::byte{2}; }));
  REQUIRE(bytes[5 * kMiB] == std::byte{0});
}

TEST_CASE("Another process reads and writes pages that are shared at an alias",
          "[cuda][ipc][alias]") {
  const Standin standin;
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const Range range(Memory::kVirtual);
  void* reserved = nullptr;
  REQUIRE(range.device->reserve(4 * kMiB, 0, &reserved).ok());
  auto* const alias = static_cast<std::byte*>(reserved);
  const void* const from[] = {range.base + 6 * kMiB, range.base};
  REQUIRE(range.device->alias(alias, from, 2).ok());
  cudaMemset(alias, 1, 4 * kMiB);
  cudaDeviceSynchronize();
  CudaSharedMemory shared;
  REQUIRE(range.device->share(alias, 4 * kMiB, &shared).ok());
  // The other process has them without the first addresses.
  REQUIRE(range.device->decommit(range.base, 2 * kMiB).ok());
  const ProgramResult result =
      run_program({BERTH_CUDA_PROGRAM, "open", to_hex(shared.handle), std::to_string(shared.offset),
                   std::to_string(4 * kMiB)},
                  {{"BERTH_STANDIN_MEMORY", std::to_string(kTotal)}});
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  std::vector<std::byte> bytes(4 * kMiB);
  cudaMemcpy(bytes.data(), alias, bytes.size(), cudaMemcpyDeviceToHost);
  REQUIRE(bytes == std::vector<std::byte>(4 * kMiB, std::byte{2}));
  cudaMemcpy(bytes.data(), range.base + 6 * kMiB, 2 * kMiB, cudaMemcpyDeviceToHost);
  REQUIRE(bytes.front() == std::byte{2});
}

TEST_CASE("Large memory is shared by a descriptor a handle", "[cuda][ipc][handles]") {
  const Standin standin;
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const auto device = make_gpu(Memory::kVirtual);
  void* reserved = nullptr;
  REQUIRE(device->reserve(20 * kMiB, 0, &reserved).ok());
  auto* const base = static_cast<std::byte*>(reserved);
  // Of 8, 8 and 4 MiB.
  REQUIRE(device->commit(base, 20 * kMiB, Device::Residency::kOnDemand, 8 * kMiB).ok());
  cudaMemset(base, 1, 20 * kMiB);
  cudaDeviceSynchronize();
  CudaSharedMemory one, equal, unequal;
  REQUIRE(device->share(base + 9 * kMiB, 6 * kMiB, &one).ok());
  CHECK(one.offset == kMiB);
  CHECK(one.handle.substr(0, 2) == "\2e");  // PyTorch opens it
  CHECK(at<std::uint64_t>(one.handle, 10) == 8 * kMiB);
  CHECK(at<std::uint64_t>(one.handle, 18) == 1);
  REQUIRE(device->share(base + 3 * kMiB, 12 * kMiB, &equal).ok());
  CHECK(equal.offset == 3 * kMiB);
  CHECK(equal.handle.substr(0, 2) == "\2e");
  CHECK(at<std::uint64_t>(equal.handle, 18) == 2);
  REQUIRE(device->share(base + 15 * kMiB, 4 * kMiB, &unequal).ok());
  CHECK(unequal.offset == 7 * kMiB);
  CHECK(unequal.handle.substr(0, 2) == "\2b");  // berth opens it
  CHECK(unequal.handle.size() == 2 + 24 + kDoor + 2 * (8 + 8));
  for (const CudaSharedMemory* shared : {&one, &equal, &unequal}) {
    const ProgramResult result =
        run_program({BERTH_CUDA_PROGRAM, "open", to_hex(shared->handle),
                     std::to_string(shared->offset), std::to_string(2 * kMiB)},
                    {{"BERTH_STANDIN_MEMORY", std::to_string(kTotal)}});
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
  }
  std::vector<std::byte> bytes(20 * kMiB);
  cudaMemcpy(bytes.data(), base, bytes.size(), cudaMemcpyDeviceToHost);
  const auto is = [&](Bytes first, Bytes last, int value) {
    return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(first),
                       bytes.begin() + static_cast<std::ptrdiff_t>(last),
                       [&](std::byte byte) { return byte == std::byte(value); });
  };
  CHECK(is(kMiB, 3 * kMiB, 1));  // it wrote a byte at the beginning of a handle, too
  CHECK(is(3 * kMiB, 5 * kMiB, 2));
  CHECK(is(9 * kMiB, 11 * kMiB, 2));
  CHECK(is(15 * kMiB, 17 * kMiB, 2));
  CHECK(is(17 * kMiB, 20 * kMiB, 1));
}

TEST_CASE("Memory of more handles than there are descriptors is shared without rights",
          "[cuda][ipc][descriptors]") {
  const Standin standin;
  constexpr Bytes kSize = 96 * kMiB;  // 48 handles
  const auto device = make_gpu(Memory::kVirtual);
  void* reserved = nullptr;
  REQUIRE(device->reserve(kSize, 0, &reserved).ok());
  auto* const base = static_cast<std::byte*>(reserved);
  REQUIRE(device->commit(base, kSize, Device::Residency::kOnDemand).ok());
  cudaMemset(base + kSize - 2 * kMiB, 1, 2 * kMiB);
  cudaDeviceSynchronize();
  const FewDescriptors few(30);
  CudaSharedMemory shared;
  REQUIRE(device->share(base, kSize, &shared).ok());
  CHECK(shared.handle.substr(0, 2) == "\2b");
  CHECK(shared.handle.size() == 2 + 24 + kDoor + 48 * (8 + 8));
  const std::size_t before = descriptors();
  // It refuses itself pidfd_getfd(), as a container does, and may have 30 descriptors more.
  const ProgramResult result =
      run_program({BERTH_CUDA_PROGRAM, "open-confined", to_hex(shared.handle),
                   std::to_string(shared.offset + kSize - 2 * kMiB), std::to_string(2 * kMiB)},
                  {{"BERTH_STANDIN_MEMORY", std::to_string(kTotal)}});
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(descriptors() <= before);
  std::vector<std::byte> bytes(2 * kMiB);
  cudaMemcpy(bytes.data(), base + kSize - 2 * kMiB, bytes.size(), cudaMemcpyDeviceToHost);
  REQUIRE(bytes == std::vector<std::byte>(2 * kMiB, std::byte{2}));
}

TEST_CASE("Few handles are shared without rights, too", "[cuda][ipc][descriptors]") {
  const Standin standin;
  const Range range(Memory::kVirtual);
  cudaMemset(range.base, 1, 8 * kMiB);
  cudaDeviceSynchronize();
  CudaSharedMemory shared;
  REQUIRE(range.device->share(range.base, 4 * kMiB, &shared).ok());
  REQUIRE(shared.handle[1] == 'e');
  const auto open = [&](const std::string& handle) {
    return run_program({BERTH_CUDA_PROGRAM, "open-confined", to_hex(handle),
                        std::to_string(shared.offset), std::to_string(4 * kMiB)},
                       {{"BERTH_STANDIN_MEMORY", std::to_string(kTotal)}});
  };
  const ProgramResult result = open(shared.handle);
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  // As PyTorch's own allocator shares it needs them, and the error says what to do.
  const ProgramResult refused = open(shared.handle.substr(0, 2 + 24 + 2 * 4));
  CHECK(refused.exit_code != 0);
  CHECK(refused.out.find("pidfd_getfd failed on cuda:0: Operation not permitted: this process has "
                         "no ptrace rights") != std::string::npos);
}

TEST_CASE("Whoever does not have the key gets no descriptors", "[cuda][ipc][descriptors][misuse]") {
  const Standin standin;
  const Range range(Memory::kVirtual);
  CudaSharedMemory shared;
  REQUIRE(range.device->share(range.base, 4 * kMiB, &shared).ok());
  DescriptorDoor door;
  std::memcpy(&door, shared.handle.data() + 2 + 24 + 2 * 4 + 8, sizeof door);
  std::size_t taken = 0;
  const auto take = [&](int) {
    ++taken;
    return Status();
  };
  const std::uint64_t numbers[] = {1, 2};
  REQUIRE(fetch_descriptors(door, numbers, take).ok());
  REQUIRE(taken == 2);
  DescriptorDoor forged = door;
  forged.key[3] ^= std::byte{1};
  REQUIRE_FALSE(fetch_descriptors(forged, numbers, take).ok());
  const std::uint64_t unknown[] = {1, 77};
  REQUIRE_FALSE(fetch_descriptors(door, unknown, take).ok());
  REQUIRE(taken == 3);
  // What is gone has no descriptor any more, and the door still answers.
  REQUIRE(range.device->decommit(range.base, 2 * kMiB).ok());
  REQUIRE_FALSE(fetch_descriptors(door, {numbers, 1}, take).ok());
  REQUIRE(fetch_descriptors(door, {numbers + 1, 1}, take).ok());
  forged = door;
  ++forged.number;
  const Status nobody = fetch_descriptors(forged, numbers, take);
  REQUIRE(range.device->describe(nobody).find("connect failed on cuda:0: Connection refused: the "
                                              "process that shares is gone") == 0);
}

TEST_CASE("A segment is plain whatever the rest is", "[cuda][ipc][segments]") {
  const Standin standin;
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  const auto device = make_gpu(kind);
  void* segment = nullptr;
  REQUIRE(device->allocate_segment(6 * kMiB, &segment).ok());
  auto* const base = static_cast<std::byte*>(segment);
  CudaSharedMemory shared;
  REQUIRE(device->share(base + 5 * kMiB, kMiB, &shared).ok());
  CHECK(shared.handle.substr(0, 2) == "\2c");
  CHECK(shared.offset == 5 * kMiB);
  REQUIRE_FALSE(device->share(base + 5 * kMiB, 2 * kMiB, &shared).ok());
  REQUIRE_FALSE(device->free_segment(base, 2 * kMiB).ok());
  REQUIRE(device->free_segment(base, 6 * kMiB).ok());
  REQUIRE_FALSE(device->free_segment(base, 6 * kMiB).ok());
  REQUIRE(berth_standin_live_allocations() == 0);
}

TEST_CASE("A plain range is one handle whatever its pointer", "[cuda][ipc]") {
  const Standin standin;
  const Range range(Memory::kPlain);
  CudaSharedMemory first, second;
  REQUIRE(range.device->share(range.base, 512, &first).ok());
  REQUIRE(range.device->share(range.base + 5 * kMiB, kMiB, &second).ok());
  REQUIRE(first.handle == second.handle);
  REQUIRE(first.offset == 0);
  REQUIRE(second.offset == 5 * kMiB);
  // As PyTorch writes it: version 2, type, the runtime's own 64 bytes.
  REQUIRE(first.handle.size() == 66);
  REQUIRE(first.handle.substr(0, 2) == "\2c");
}

TEST_CASE("The pages of a virtual range are named by their descriptors", "[cuda][ipc]") {
  const Standin standin;
  const Range range(Memory::kVirtual);
  CudaSharedMemory shared, again;
  REQUIRE(range.device->share(range.base + 3 * kMiB, 2 * kMiB, &shared).ok());
  REQUIRE(shared.offset == kMiB);
  // What PyTorch reads, and behind it what berth does.
  REQUIRE(shared.handle.size() == 2 + 24 + 2 * 4 + 8 + kDoor + 2 * 8);
  REQUIRE(shared.handle.substr(0, 2) == "\2e");
  REQUIRE(at<std::int32_t>(shared.handle, 2) == getpid());
  REQUIRE(at<std::int32_t>(shared.handle, 6) == 0);
  REQUIRE(at<std::uint64_t>(shared.handle, 10) == 2 * kMiB);
  REQUIRE(at<std::uint64_t>(shared.handle, 18) == 2);
  // The same pages have the same name, and no descriptor more.
  REQUIRE(range.device->share(range.base + 2 * kMiB, 4 * kMiB, &again).ok());
  REQUIRE(again.handle == shared.handle);
  const int descriptor = at<std::int32_t>(shared.handle, 26);
  REQUIRE(dup2(descriptor, descriptor) == descriptor);
  REQUIRE(range.device->decommit(range.base, 8 * kMiB).ok());
  REQUIRE(dup2(descriptor, descriptor) == -1);
}

TEST_CASE("Memory that is not the device's or not committed is not shared", "[cuda][ipc][misuse]") {
  const Standin standin;
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  const Range range(kind);
  CudaSharedMemory shared;
  REQUIRE_FALSE(range.device->share(&shared, 8, &shared).ok());
  REQUIRE_FALSE(range.device->share(range.base + 7 * kMiB, 2 * kMiB, &shared).ok());
  REQUIRE_FALSE(range.device->share(range.base + 9 * kMiB, 8, &shared).ok());
  REQUIRE_FALSE(range.device->share(range.base, kMaxBytes, &shared).ok());
  if (kind == Memory::kVirtual) {
    REQUIRE(range.device->decommit(range.base, 2 * kMiB).ok());
    REQUIRE_FALSE(range.device->share(range.base + kMiB, 2 * kMiB, &shared).ok());
  }
  REQUIRE(shared.handle.empty());
}

TEST_CASE("Handles that are damaged, foreign or too new are refused", "[cuda][ipc][misuse]") {
  const Standin standin;
  const bool equal = GENERATE(true, false);
  const Range range(Memory::kVirtual, equal ? 2 * kMiB : 6 * kMiB);
  CudaSharedMemory shared;
  REQUIRE(range.device->share(range.base, equal ? 4 * kMiB : 8 * kMiB, &shared).ok());
  REQUIRE(shared.handle[1] == (equal ? 'e' : 'b'));
  CudaDevice& device = *range.device;
  std::shared_ptr<void> base;
  const std::size_t pytorchs = 2 + 24 + 2 * 4;  // is whole without the rest
  for (std::size_t length = 0; length < shared.handle.size(); ++length)
    if (!equal || length != pytorchs)
      REQUIRE_FALSE(device.open_shared(shared.handle.substr(0, length), &base).ok());
  REQUIRE_FALSE(device.open_shared(shared.handle + "x", &base).ok());

  std::string newer = shared.handle;
  newer[0] = 3;
  REQUIRE(device.open_shared(newer, &base).code() == Status::Code::kUnsupported);
  std::string typed = shared.handle;
  typed[1] = 'x';
  REQUIRE(device.open_shared(typed, &base).code() == Status::Code::kFailed);
  // Of a process that is gone.
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  std::string orphan = shared.handle;
  std::memcpy(orphan.data() + 2, &child, sizeof child);
  std::memcpy(orphan.data() + (equal ? pytorchs + 8 : 2 + 24), &child, sizeof child);
  const Status gone = device.open_shared(orphan, &base);
  REQUIRE(device.describe(gone).find("connect failed on cuda:0: Connection refused") == 0);
  if (equal) {
    const Status alone = device.open_shared(orphan.substr(0, pytorchs), &base);
    REQUIRE(device.describe(alone) == "pidfd_open failed on cuda:0: No such process");
  }

  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text = shared.handle;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
      text[2 + random() % (text.size() - 2)] ^= static_cast<char>(1U << random() % 8);
    // Some name memory all the same; what matters is that nothing is left behind.
    (void)device.open_shared(text, &base);
    base.reset();
  }
  REQUIRE(berth_standin_live_allocations() == (equal ? 4 : 2));  // the range's own
}
