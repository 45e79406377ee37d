// The shared libraries libberth_torch_cpu.so and libberth_torch_cuda.so, which a program gets by
// LD_PRELOAD or ctypes. Each brings its ..._allocator.so, which lies beside it and does the work,
// into the program as soon as that has a libtorch: at once where it is linked to one, else when it
// loads its first library from a folder of one, as Python does at `import torch`. So libtorch is
// found by the program and not by a run path, and processes without one, such as a shell that a
// program starts, load next to nothing.
//
// By LD_PRELOAD that happens where BERTH_MODE is set, and installs berth; not in processes that
// only start others. Links neither libtorch nor C++'s library. BERTH_CUDA is 1 for the GPU's, else
// 0.
#include "csrc/torch/adapter.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Dlopen = void* (*)(const char*, int) noexcept;

#if BERTH_CUDA
constexpr char kAllocator[] = "libberth_torch_cuda_allocator.so";
constexpr char kLibtorch[] = "libtorch_cuda.so";
#else
constexpr char kAllocator[] = "libberth_torch_cpu_allocator.so";
constexpr char kLibtorch[] = "libtorch_cpu.so";
#endif

char allocator_path[PATH_MAX];
std::atomic<bool> over{false};  // the allocator was brought in, or is being so
std::atomic<const berth_torch_table*> allocator{nullptr};

Dlopen next_dlopen() noexcept {
  static std::atomic<void*> next{nullptr};
  void* found = next.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = ::dlsym(RTLD_NEXT, "dlopen");
    next.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Dlopen>(found);
}

// Whether this process runs libtorch only to start those that train, or to load their data: what
// its arguments say.
bool serves_others() noexcept {
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[4096];
  const ssize_t size = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (size <= 0) return false;
  text[size] = '\0';
  const char* before = "";
  for (const char* word = text; word < text + size; word += std::strlen(word) + 1) {
    const char* const slash = std::strrchr(word, '/');
    const bool program = word == text || std::strstr(before, "python") != nullptr;
    if (program && std::strcmp(slash == nullptr ? word : slash + 1, "torchrun") == 0) return true;
    if (std::strcmp(before, "-m") == 0 && (std::strcmp(word, "torch.distributed.run") == 0 ||
                                           std::strcmp(word, "torch.distributed.launch") == 0))
      return true;
    if (std::strstr(word, "torch/_inductor/compile_worker") != nullptr) return true;
    // The CPU's memory of a process that multiprocessing spawned is a data loader's as a rule.
    if (!BERTH_CUDA && std::strcmp(word, "--multiprocessing-fork") == 0) return true;
    before = word;
  }
  return false;
}

bool wanted() noexcept {
  const char* const mode = std::getenv("BERTH_MODE");
  return mode != nullptr && std::strcmp(mode, "off") != 0;
}

// Of the same version as the one that berth was built for; else says so in `message`. What is of
// another one could not be loaded, or worse.
bool is_ours(void* libtorch, char* message, std::size_t size) noexcept {
  void* version = ::dlsym(RTLD_DEFAULT, "aoti_torch_abi_version");
  if (version == nullptr) version = ::dlsym(libtorch, "aoti_torch_abi_version");
  const std::uint64_t loaded =
      version == nullptr ? 0 : reinterpret_cast<std::uint64_t (*)()>(version)() >> 48;
  if (loaded == ((std::uint64_t{TORCH_VERSION_MAJOR} << 8) | TORCH_VERSION_MINOR)) return true;
  std::snprintf(message, size,
                "berth was built for libtorch %d.%d, %d.%d is loaded: build it with that one",
                TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, static_cast<int>(loaded >> 8),
                static_cast<int>(loaded & 0xff));
  return false;
}

// Loads the allocator. 0, or an exit code of berth's and a message. `libtorch` may be null where it
// is not known.
int bring_in(void* libtorch, char* message, std::size_t size) noexcept {
  over.store(true);
  if (libtorch != nullptr && !is_ours(libtorch, message, size)) return 2;
  void* const loaded = next_dlopen()(allocator_path, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const reason = ::dlerror();
    std::snprintf(message, size, "cannot load %s: %s", kAllocator,
                  reason == nullptr ? "no reason given" : reason);
    return 4;
  }
  void* const adapter = ::dlsym(loaded, "berth_torch_adapter");
  const berth_torch_table* const table =
      reinterpret_cast<decltype(&berth_torch_adapter)>(adapter)();
  if (std::strcmp(table->version, BERTH_VERSION) != 0 || table->size != sizeof(berth_torch_table)) {
    std::snprintf(message, size,
                  "%s is of berth %s, with a table of %llu bytes; this is berth %s, "
                  "with one of %zu",
                  kAllocator, table->version, static_cast<unsigned long long>(table->size),
                  BERTH_VERSION, sizeof(berth_torch_table));
    return 4;
  }
  allocator.store(table);
  return 0;
}

// Nobody could catch here; and somebody set BERTH_MODE to have it followed.
void install_or_end(void* libtorch) noexcept {
  char message[1024] = "";
  int exit_code = bring_in(libtorch, message, sizeof message);
  if (exit_code == 0) exit_code = allocator.load()->install(nullptr, 1, message, sizeof message);
  if (exit_code <= 1) return;
  if (exit_code > 4) exit_code = 4;
  std::fprintf(stderr, "berth: %s\n", message);
  std::_Exit(exit_code);
}

// Whether a library lies in a folder of libtorch, ROOT/lib or ROOT; then `path` is that of its CUDA
// part. Not where Python's torch loads what libtorch needs, which comes first.
bool in_libtorch(const char* file, char (&path)[PATH_MAX]) noexcept {
  const char* const slash = std::strrchr(file, '/');
  if (slash == nullptr || std::strcmp(slash, "/libtorch_global_deps.so") == 0) return false;
  for (const char* const folder : {"", "lib/"}) {
    const int length = std::snprintf(path, sizeof path, "%.*s/%s%s", static_cast<int>(slash - file),
                                     file, folder, kLibtorch);
    if (length > 0 && length < PATH_MAX && ::access(path, F_OK) == 0) return true;
  }
  return false;
}

// The program is about to load a library.
void watch(const char* file) noexcept {
  if (file == nullptr || over.load(std::memory_order_relaxed) || !wanted()) return;
  char path[PATH_MAX];
  if (!in_libtorch(file, path) || over.exchange(true) || serves_others()) return;
  void* const libtorch = next_dlopen()(path, RTLD_NOW | RTLD_LOCAL);
  if (libtorch == nullptr)
    over.store(false);  // what it needs may come yet
  else
    install_or_end(libtorch);
}

__attribute__((constructor)) void start() noexcept {
  Dl_info here;
  char path[PATH_MAX];
  if (::dladdr(reinterpret_cast<void*>(&start), &here) == 0 ||
      ::realpath(here.dli_fname, path) == nullptr)
    return;
  const char* const slash = std::strrchr(path, '/');
  std::snprintf(allocator_path, sizeof allocator_path, "%.*s/%s", static_cast<int>(slash - path),
                path, kAllocator);
  if (!wanted()) return;
  if (void* const libtorch = next_dlopen()(kLibtorch, RTLD_NOW | RTLD_NOLOAD))
    install_or_end(libtorch);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// The program's calls come here. The last call must stay a jump: dlopen looks at who calls it.
__attribute__((optimize("O2"))) void* dlopen(const char* file, int mode) noexcept {
  watch(file);
  return next_dlopen()(file, mode);
}

// 0, or an exit code of berth's and a message of at most `size` bytes with its end.
#if BERTH_CUDA
int berth_torch_install_cuda(char* message, std::size_t size) {
#else
int berth_torch_install_cpu(char* message, std::size_t size) {
#endif
  if (allocator.load() == nullptr) {
    void* const libtorch = next_dlopen()(kLibtorch, RTLD_NOW | RTLD_NOLOAD);
    const int exit_code = bring_in(libtorch, message, size);
    if (exit_code != 0) return exit_code;
  }
  const int answer = allocator.load()->install(nullptr, 0, message, size);
  return answer == 1 ? 0 : answer;  // off: nothing to do
}

void berth_torch_mark_step() {
  if (const auto* const there = allocator.load()) there->mark_step();
}

// Counters of a device as a JSON object, cut to `size` bytes with the end; returns the bytes of all
// of it, 0 where there is no memory for it, and before berth is installed.
#if BERTH_CUDA
std::size_t berth_torch_cuda_stats(int device, char* text, std::size_t size) {
#else
std::size_t berth_torch_cpu_stats(int device, char* text, std::size_t size) {
#endif
  const auto* const there = allocator.load();
  return there == nullptr ? 0 : there->stats_json(device, text, size);
}

}  // extern "C"
#pragma GCC visibility pop
