#include "csrc/device/host_memory.h"

#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

#include <filesystem>
#include <fstream>

using namespace berth;
using berth::test::TemporaryFolder;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

void write(const TemporaryFolder& root, const std::string& path, const std::string& text) {
  const std::filesystem::path file = root.path() + path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

void write_meminfo(const TemporaryFolder& root) {
  write(root, "/proc/meminfo",
        "MemTotal:        1048576 kB\nMemFree:          1024 kB\nMemAvailable:     524288 kB\n");
}

}  // namespace

TEST_CASE("Without a cgroup the memory of the machine is the limit", "[device][memory]") {
  const TemporaryFolder root;
  write_meminfo(root);
  const HostMemory memory(root.path());
  REQUIRE(memory.total() == 1024 * kMiB);
  REQUIRE(memory.available() == 512 * kMiB);
}

TEST_CASE("The smallest limit of a version 2 cgroup and its ancestors counts", "[device][memory]") {
  const TemporaryFolder root;
  write_meminfo(root);
  write(root, "/proc/self/cgroup", "0::/jobs/train\n");
  write(root, "/proc/self/mountinfo",
        "24 1 0:22 / /sys rw - sysfs sysfs rw\n"
        "25 24 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  write(root, "/sys/fs/cgroup/jobs/train/memory.max", "max\n");
  write(root, "/sys/fs/cgroup/jobs/train/memory.current", "1048576\n");
  write(root, "/sys/fs/cgroup/jobs/memory.max", "268435456\n");
  write(root, "/sys/fs/cgroup/jobs/memory.current", "104857600\n");
  write(root, "/sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 4194304\nactive_file 9\n");
  const HostMemory memory(root.path());
  REQUIRE(memory.total() == 256 * kMiB);
  REQUIRE(memory.available() == (256 - 100 + 4) * kMiB);
}

TEST_CASE("The limit of a version 1 memory cgroup counts", "[device][memory]") {
  const TemporaryFolder root;
  write_meminfo(root);
  write(root, "/proc/self/cgroup", "8:pids:/\n4:memory:/a\n2:cpu,cpuacct:/b\n0::/\n");
  write(root, "/proc/self/mountinfo",
        "30 24 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "31 24 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write(root, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "67108864\n");
  write(root, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "134217728\n");
  write(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const HostMemory memory(root.path());
  REQUIRE(memory.total() == 64 * kMiB);
  REQUIRE(memory.available() == 0);
}

TEST_CASE("Within a container the part of the path that is mounted is left out",
          "[device][memory]") {
  const TemporaryFolder root;
  write_meminfo(root);
  write(root, "/proc/self/cgroup", "0::/docker/c0ffee/inner\n");
  write(root, "/proc/self/mountinfo",
        "25 24 0:23 /docker/c0ffee /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  write(root, "/sys/fs/cgroup/inner/memory.max", "33554432\n");
  REQUIRE(HostMemory(root.path()).total() == 32 * kMiB);
}

TEST_CASE("Files that make no sense set no limit", "[device][memory]") {
  const TemporaryFolder root;
  write(root, "/proc/meminfo", "MemTotal: lots\nMemAvailable: 99999999999999999999999 kB\n");
  write(root, "/proc/self/cgroup", "nonsense\n0::\n::\n4:memory\n\n0::/x");
  write(root, "/proc/self/mountinfo",
        "1 2 3\n - \n25 24 0:23 / /sys/fs/cgroup rw - cgroup2\n26 24 0:24 / /v1 rw - cgroup\n");
  write(root, "/sys/fs/cgroup/x/memory.max", "-5 bananas");
  const HostMemory memory(root.path());
  REQUIRE(memory.total() == kMaxBytes);
  REQUIRE(memory.available() == kMaxBytes);
  REQUIRE(HostMemory(root.path() + "/nowhere").total() == kMaxBytes);
}
