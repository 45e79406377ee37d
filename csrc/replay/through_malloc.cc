#include "csrc/replay/through_malloc.h"

#include "csrc/core/check.h"
#include "csrc/replay/drive.h"
#include "csrc/replay/shared_workload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

namespace berth::replay {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizer is the malloc, and no other can be preloaded
#else
constexpr bool kSanitized = false;
#endif

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

SharedHeader run(const MallocLibrary& library, const std::string& preload, const Workload& workload,
                 bool measure) {
  SharedHeader header;
  header.library = static_cast<std::uint64_t>(&library - malloc_libraries().data());
  header.measure = measure ? 1 : 0;
  return run_in_child(
      {"/proc/self/exe", std::string(kMallocChild)},
      {{"LD_PRELOAD", preload},
       // It would report every block of a gigabyte on standard error.
       {"TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD", std::to_string(std::uint64_t{1} << 62)}},
      workload, header, library.name);
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

Result through_malloc(const MallocLibrary& library, const Workload& workload) {
  Result result;
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
  const SharedHeader timed = run(library, preload, workload, false);
  if (timed.loaded == 0) {
    result.problem = fmt::format("'{}' could not be preloaded", preload);
    return result;
  }
  if (timed.ns_per_operation >= 0) result.ns_per_operation = timed.ns_per_operation;
  const SharedHeader measured = run(library, preload, workload, true);
  result.reserved_peak = measured.reserved_peak;
  if (timed.complete == 0 || measured.complete == 0) {
    result.out_of_memory = true;
    result.problem = "out of memory";
  }
  return result;
}

int malloc_child(const char* memory_fd) {
  const SharedWorkload replay(memory_fd);
  SharedHeader& header = replay.header();
  BERTH_CHECK(header.library < malloc_libraries().size(), kUsage, "descriptor {} is no replay",
              memory_fd);
  const Reserved reserved = find_reserved(malloc_libraries()[header.library].name);
  header.loaded = reserved != nullptr ? 1 : 0;
  if (reserved == nullptr) return 0;
  MallocServer server(header.measure != 0 ? reserved : nullptr, replay.operations());
  const DriveResult driven = drive(replay.operations(), replay.pointers(), server);
  if (header.measure != 0) {
    server.sample();
    header.reserved_peak = server.peak();
  }
  header.complete = driven.complete ? 1 : 0;
  header.ns_per_operation = driven.ns_per_operation.value_or(-1);
  return 0;
}

}  // namespace berth::replay
