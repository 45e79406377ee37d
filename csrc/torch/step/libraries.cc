#include "csrc/torch/step/libraries.h"

#include "csrc/core/setup_mutex.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <mutex>
#include <string_view>

namespace berth::torch::step {

namespace {

// Those that come with libtorch, and this one.
constexpr std::array<std::string_view, 4> kOwn = {"libtorch", "libc10", "libshm", "libberth"};

// The names that a library gives to others or takes from them; empty where it has no such table.
std::string_view names_in(const dl_phdr_info& library) {
  std::string_view names;
  for (int n = 0; n < library.dlpi_phnum; ++n) {
    const ElfW(Phdr)& part = library.dlpi_phdr[n];
    if (part.p_type != PT_DYNAMIC) continue;
    ElfW(Addr) at = 0;
    std::size_t size = 0;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(library.dlpi_addr + part.p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) at = entry->d_un.d_ptr;
      if (entry->d_tag == DT_STRSZ) size = entry->d_un.d_val;
    }
    if (at == 0) continue;
    if (at < library.dlpi_addr) at += library.dlpi_addr;  // not every loader does so
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    names = {reinterpret_cast<const char*>(at), size};
  }
  return names;
}

bool has_any(std::string_view names, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return names.find(part) != std::string_view::npos;
  });
}

struct Known {
  SetupMutex mutex;
  unsigned long long loaded = 0;  // libraries so far, when they were looked at
  Libraries libraries;
};

int count_loaded(dl_phdr_info* first, std::size_t, void* count) {
  *static_cast<unsigned long long*>(count) = first->dlpi_adds;
  return 1;
}

int look(dl_phdr_info* library, std::size_t, void* found) {
  std::string_view path = library->dlpi_name;
  path.remove_prefix(path.rfind('/') + 1);
  if (std::ranges::any_of(kOwn, [&](std::string_view own) { return path.starts_with(own); }))
    return 0;
  const std::string_view names = names_in(*library);
  auto& [begin_profiles, start_threads] = *static_cast<Libraries*>(found);
  begin_profiles |= has_any(names, {"enableProfiler", "13RecordProfileC"});
  start_threads |= has_any(names, {"_ZN2at", "_ZNK2at", "N3c10"}) &&
                   has_any(names, {"_M_start_thread", "pthread_create", "GOMP_parallel"});
  return 0;
}

}  // namespace

Libraries libraries() {
  static auto* const known = new Known;
  const std::lock_guard lock(known->mutex);
  unsigned long long loaded = 0;
  (void)dl_iterate_phdr(count_loaded, &loaded);
  if (loaded != known->loaded) {
    known->loaded = loaded;
    known->libraries = {};
    (void)dl_iterate_phdr(look, &known->libraries);
  }
  return known->libraries;
}

}  // namespace berth::torch::step
