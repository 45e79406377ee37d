#include "csrc/cli/replay_child.h"

#include "csrc/cli/child_process.h"
#include "csrc/cli/replay_drive.h"
#include "csrc/core/check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

namespace berth::cli {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizer is the malloc, and no other can be preloaded
#else
constexpr bool kSanitized = false;
#endif

// At the start of the memory that parent and child share; the operations follow.
struct Header {
  std::uint64_t operations = 0, blocks = 0;
  std::uint64_t library = 0;  // index into malloc_libraries()
  std::uint64_t measure = 0;  // 1: memory, 0: time
  // The answer.
  std::uint64_t loaded = 0, complete = 0, known = 0;
  std::uint64_t reserved_peak = 0;
  double ns_per_operation = -1;
};

// Memory without a name that a child can inherit.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t size) : size_(size), fd_(::memfd_create("berth-replay", 0)) {
    BERTH_CHECK(fd_ >= 0, kSystem, "cannot make shared memory: {}", std::strerror(errno));
    if (::ftruncate(fd_, static_cast<off_t>(size)) == 0)
      data_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (data_ == MAP_FAILED) {
      const int error = errno;
      ::close(fd_);
      throw Error(ErrorKind::kSystem, fmt::format("cannot map {} of shared memory: {}",
                                                  format_bytes(size), std::strerror(error)));
    }
  }
  ~SharedMemory() {
    ::munmap(data_, size_);
    ::close(fd_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  std::size_t size_;
  int fd_;
  void* data_ = MAP_FAILED;
};

// --- The child: what a library says it holds from the system
// --------------------------------------

using Reserved = std::uint64_t (*)();

std::uint64_t reserved_glibc() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.arena + info.hblkhd;
}

using Mallctl = int (*)(const char*, void*, std::size_t*, void*, std::size_t);
Mallctl mallctl_function = nullptr;
std::uint64_t reserved_jemalloc() {
  std::uint64_t epoch = 1;
  std::size_t size = sizeof epoch;
  mallctl_function("epoch", &epoch, &size, &epoch, sizeof epoch);
  std::size_t resident = 0;
  size = sizeof resident;
  mallctl_function("stats.resident", &resident, &size, nullptr, 0);
  return resident;
}

using TcmallocProperty = int (*)(const char*, std::size_t*);
TcmallocProperty tcmalloc_property = nullptr;
std::uint64_t reserved_tcmalloc() {
  std::size_t heap = 0, unmapped = 0;
  tcmalloc_property("generic.heap_size", &heap);
  tcmalloc_property("tcmalloc.pageheap_unmapped_bytes", &unmapped);
  return heap - unmapped;
}

// mimalloc counts commits too, but not all that end: its number only grows (2.0.9). The kernel's
// word on private writable memory is right for a library that takes access away from what it gives
// back.
std::uint64_t reserved_mimalloc() {
  char text[256];  // size resident shared text lib data dirty, in pages
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? -1 : ::read(fd, text, sizeof text - 1);
  if (fd >= 0) ::close(fd);
  if (got <= 0) return 0;
  text[got] = '\0';
  char* field = text;
  for (int i = 0; i < 5; ++i) std::strtoull(field, &field, 10);
  return std::strtoull(field, nullptr, 10) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

template <class Function>
bool find_function(const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

// The library's own count, or null where it is not the one that runs.
Reserved find_reserved(std::string_view name) {
  if (name == "jemalloc" && find_function("mallctl", mallctl_function)) return reserved_jemalloc;
  if (name == "tcmalloc" && find_function("MallocExtension_GetNumericProperty", tcmalloc_property))
    return reserved_tcmalloc;
  void* (*mimalloc)(std::size_t) = nullptr;
  if (name == "mimalloc" && find_function("mi_malloc", mimalloc)) return reserved_mimalloc;
  if (name == "glibc") return reserved_glibc;
  return nullptr;
}

class MallocServer {
 public:
  // `reserved` null: nothing is measured.
  MallocServer(Reserved reserved, std::span<const Operation> operations)
      : reserved_(reserved), every_(operations.size() / kMostSamples + 1) {}

  void* allocate(const Operation& operation) {
    constexpr std::size_t kAlignment = 64;  // of c10's CPU allocator
    void* pointer = nullptr;
    if (::posix_memalign(&pointer, kAlignment, operation.size) != 0) return nullptr;
    if (reserved_ != nullptr) {
      live_ += operation.size;
      if (live_ > live_peak_ || ++since_ >= every_) sample();
    }
    return pointer;
  }
  void free(void* pointer) {
    // Sizes are those that the allocator gave: near enough to see a new peak.
    if (reserved_ != nullptr)
      live_ -= std::min<std::uint64_t>(live_, ::malloc_usable_size(pointer));
    ::free(pointer);
  }
  void use(void*, const Operation&) {}
  void step(const Operation&) {}

  void sample() {
    since_ = 0;
    live_peak_ = std::max(live_peak_, live_);
    peak_ = std::max(peak_, reserved_());
  }
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }

 private:
  static constexpr std::size_t kMostSamples = 100'000;
  Reserved reserved_;
  std::size_t every_;
  std::size_t since_ = 0;
  std::uint64_t live_ = 0, live_peak_ = 0, peak_ = 0;
};

// Shared, so that it does not count as a malloc's.
void* map_anonymous(std::size_t size) {
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BERTH_CHECK(data != MAP_FAILED, kSystem, "cannot map {}: {}", format_bytes(size),
              std::strerror(errno));
  return data;
}

// --- The parent ----------------------------------------------------------------------------------

// Folders that the dynamic linker looks in.
std::vector<std::string> library_folders() {
  std::vector<std::string> folders;
  const char* named = std::getenv("LD_LIBRARY_PATH");
  std::string_view path = named == nullptr ? "" : named;
  while (!path.empty()) {
    const std::size_t colon = path.find(':');
    folders.emplace_back(path.substr(0, colon));
    path.remove_prefix(colon == std::string_view::npos ? path.size() : colon + 1);
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/etc/ld.so.conf.d", ignored)) {
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('/')) folders.push_back(line);
    }
  }
  for (const char* folder : {"/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib"})
    folders.emplace_back(folder);
  return folders;
}

std::string find_library(const std::vector<const char*>& file_names) {
  std::error_code ignored;
  for (const std::string& folder : library_folders()) {
    for (const char* name : file_names) {
      const std::filesystem::path path = std::filesystem::path(folder) / name;
      if (std::filesystem::exists(path, ignored)) return path.string();
    }
  }
  return "";
}

// One run in a child. Returns what it wrote over its header.
Header run(const MallocLibrary& library, const std::string& preload, const Workload& workload,
           bool measure) {
  const std::size_t operations_size = workload.operations.size() * sizeof(Operation);
  const SharedMemory memory(sizeof(Header) + operations_size);
  Header header;
  header.operations = workload.operations.size();
  header.blocks = workload.block_count;
  header.library = static_cast<std::uint64_t>(&library - malloc_libraries().data());
  header.measure = measure ? 1 : 0;
  std::memcpy(memory.data(), &header, sizeof header);
  if (operations_size > 0)
    std::memcpy(memory.data() + sizeof header, workload.operations.data(), operations_size);
  const ChildExit ended = run_child(
      {"/proc/self/exe", std::string(kReplayChild), std::to_string(memory.fd())},
      {{"LD_PRELOAD", preload},
       // It would report every block of a gigabyte on standard error.
       {"TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD", std::to_string(std::uint64_t{1} << 62)}});
  BERTH_CHECK(ended.code == 0 && ended.signal == 0, kSystem,
              "the replay under {} failed: exit code {}, signal {}", library.name, ended.code,
              ended.signal);
  std::memcpy(&header, memory.data(), sizeof header);
  return header;
}

}  // namespace

const std::vector<MallocLibrary>& malloc_libraries() {
  static const std::vector<MallocLibrary> kLibraries = {
      {"glibc", {}, "libc6"},
      {"jemalloc", {"libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"}, "libjemalloc2"},
      {"tcmalloc",
       {"libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so"},
       "libtcmalloc-minimal4"},
      {"mimalloc", {"libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"}, "libmimalloc2.0"},
  };
  return kLibraries;
}

ReplayResult replay_malloc(const MallocLibrary& library, const Workload& workload) {
  ReplayResult result;
  if (kSanitized) {
    result.problem = "not measured: this berth is built with a sanitizer";
    return result;
  }
  std::string preload;
  if (!library.file_names.empty()) {
    preload = find_library(library.file_names);
    if (preload.empty()) {
      result.problem = fmt::format("not installed: {} (on Debian in {})", library.file_names[0],
                                   library.package);
      return result;
    }
  }
  const Header timed = run(library, preload, workload, false);
  if (timed.loaded == 0) {
    result.problem = fmt::format("'{}' could not be preloaded", preload);
    return result;
  }
  if (timed.ns_per_operation >= 0) result.ns_per_operation = timed.ns_per_operation;
  const Header measured = run(library, preload, workload, true);
  result.reserved_peak = measured.reserved_peak;
  if (timed.complete == 0 || measured.complete == 0) {
    result.out_of_memory = true;
    result.problem = "out of memory";
  }
  return result;
}

int replay_child(const char* memory_fd) {
  int fd = -1;
  const char* end = memory_fd + std::strlen(memory_fd);
  const auto [stop, error] = std::from_chars(memory_fd, end, fd);
  BERTH_CHECK(error == std::errc{} && stop == end, kUsage, "'{}' is no descriptor", memory_fd);
  const off_t size = ::lseek(fd, 0, SEEK_END);
  BERTH_CHECK(size >= static_cast<off_t>(sizeof(Header)), kUsage, "descriptor {} is no replay", fd);
  void* data =
      ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  BERTH_CHECK(data != MAP_FAILED, kSystem, "cannot map the replay: {}", std::strerror(errno));
  auto* header = static_cast<Header*>(data);
  BERTH_CHECK(
      static_cast<std::size_t>(size) == sizeof(Header) + header->operations * sizeof(Operation) &&
          header->library < malloc_libraries().size(),
      kUsage, "descriptor {} is no replay", fd);
  const std::span<const Operation> operations(
      reinterpret_cast<const Operation*>(static_cast<const std::byte*>(data) + sizeof(Header)),
      header->operations);
  const std::size_t blocks = std::max<std::uint64_t>(header->blocks, 1);
  const std::span<void*> pointers(static_cast<void**>(map_anonymous(blocks * sizeof(void*))),
                                  blocks);

  const Reserved reserved = find_reserved(malloc_libraries()[header->library].name);
  header->loaded = reserved != nullptr ? 1 : 0;
  if (reserved == nullptr) return 0;
  MallocServer server(header->measure != 0 ? reserved : nullptr, operations);
  const DriveResult driven = drive(operations, pointers, server);
  if (header->measure != 0) {
    server.sample();
    header->reserved_peak = server.peak();
  }
  header->complete = driven.complete ? 1 : 0;
  header->ns_per_operation = driven.ns_per_operation.value_or(-1);
  return 0;
}

}  // namespace berth::cli
