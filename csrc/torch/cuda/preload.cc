// The shared library libberth_torch_cuda.so, which a program gets by LD_PRELOAD or ctypes. It
// brings libberth_torch_cuda_allocator.so, which lies beside it and does the work, into the program
// as soon as that has a libtorch: at once where it is linked to one, else when it loads its first
// library from a folder of one, as Python does at `import torch`. So libtorch is found by the
// program and not by a run path, and processes without one, such as a shell that a program starts,
// load next to nothing.
//
// By LD_PRELOAD that happens where BERTH_MODE is set, and installs berth. Links neither libtorch
// nor C++'s library.
#include <dlfcn.h>
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

constexpr char kAllocator[] = "libberth_torch_cuda_allocator.so";
constexpr char kLibtorch[] = "libtorch_cuda.so";

char allocator_path[PATH_MAX];
std::atomic<bool> over{false};  // the allocator was brought in, or is being so
std::atomic<void*> allocator{nullptr};

Dlopen next_dlopen() noexcept {
  static std::atomic<void*> next{nullptr};
  void* found = next.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = ::dlsym(RTLD_NEXT, "dlopen");
    next.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Dlopen>(found);
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

// 0, or an exit code of berth's and a message. `libtorch` may be null where it is not known.
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
  allocator.store(loaded);
  return 0;
}

// Nobody could catch here; and somebody set BERTH_MODE to have it followed.
void bring_in_or_end(void* libtorch) noexcept {
  char message[1024] = "";
  const int exit_code = bring_in(libtorch, message, sizeof message);
  if (exit_code == 0) return;
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
  if (!in_libtorch(file, path) || over.exchange(true)) return;
  void* const libtorch = next_dlopen()(path, RTLD_NOW | RTLD_LOCAL);
  if (libtorch == nullptr)
    over.store(false);  // what it needs may come yet
  else
    bring_in_or_end(libtorch);
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
    bring_in_or_end(libtorch);
}

// A function of the allocator's; null where that is not there.
template <class Function>
Function* find(Function*, const char* name) noexcept {
  void* const loaded = allocator.load();
  return loaded == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(loaded, name));
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
int berth_torch_install_cuda(char* message, std::size_t size) {
  if (allocator.load() == nullptr) {
    void* const libtorch = next_dlopen()(kLibtorch, RTLD_NOW | RTLD_NOLOAD);
    const int exit_code = bring_in(libtorch, message, size);
    if (exit_code != 0) return exit_code;
  }
  return find(&berth_torch_install_cuda, "berth_torch_install_cuda")(message, size);
}

void berth_torch_mark_step() {
  if (auto* const mark = find(&berth_torch_mark_step, "berth_torch_mark_step")) mark();
}

// Counters of a GPU as a JSON object, cut to `size` bytes with the end; returns the bytes of all of
// it, 0 where there is no memory for it, and before berth is installed.
std::size_t berth_torch_cuda_stats(int device, char* text, std::size_t size) {
  auto* const ask = find(&berth_torch_cuda_stats, "berth_torch_cuda_stats");
  return ask == nullptr ? 0 : ask(device, text, size);
}

}  // extern "C"
#pragma GCC visibility pop
