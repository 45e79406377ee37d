#include "csrc/standin/fat_binaries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace berth::standin {
namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kFatMagic = 0xba55ed50;
constexpr std::size_t kFewPerLibrary = 16;
constexpr std::size_t kMostParts = 256;

// The layouts are those that cuobjdump shows.
struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* binary;
  const void* unused;
};

struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t bytes;  // behind the header
};

struct FatPart {
  enum : std::uint16_t { kPtx = 1, kElf = 2 };
  std::uint16_t kind;
  std::uint16_t version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t unused[3];
  std::uint32_t architecture;
};
static_assert(sizeof(FatPart) == 32);

struct Library {
  std::uintptr_t begin = 0, end = 0;
  std::size_t seen = 0;
  LibraryCode code;
};

struct Libraries {
  std::mutex mutex;
  std::vector<Library> list;

  static Libraries& get() {
    static auto* const libraries = new Libraries;
    return *libraries;
  }

  // That an address lies in. Asking the loader is slow, and thousands of kernels are registered.
  Library& with(std::uintptr_t address) {
    const auto known = std::ranges::find_if(
        list, [&](const Library& one) { return one.begin <= address && address < one.end; });
    if (known != list.end()) return *known;
    struct Search {
      std::uintptr_t address;
      Library found;
    } search{address, {}};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
          auto& wanted = *static_cast<Search*>(data);
          std::uintptr_t begin = UINTPTR_MAX, end = 0;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            begin = std::min<std::uintptr_t>(begin, info->dlpi_addr + segment.p_vaddr);
            end =
                std::max<std::uintptr_t>(end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
          }
          if (wanted.address < begin || wanted.address >= end) return 0;
          wanted.found.begin = begin;
          wanted.found.end = end;
          wanted.found.code.library = info->dlpi_name;
          return 1;
        },
        &search);
    return list.emplace_back(std::move(search.found));
  }
};

}  // namespace

bool LibraryCode::runs_on(const GpuModel& gpu) const {
  const auto major = static_cast<std::uint32_t>(gpu.major);
  const auto own = major * 10 + static_cast<std::uint32_t>(gpu.minor);
  return std::ranges::any_of(compiled,
                             [&](std::uint32_t one) { return one / 10 == major && one <= own; }) ||
         std::ranges::any_of(translated, [&](std::uint32_t one) { return one <= own; });
}

std::uint32_t LibraryCode::version_on(const GpuModel& gpu) const {
  const auto major = static_cast<std::uint32_t>(gpu.major);
  const auto own = major * 10 + static_cast<std::uint32_t>(gpu.minor);
  std::uint32_t best = 0;
  for (const std::uint32_t one : compiled)
    if (one / 10 == major && one <= own) best = std::max(best, one);
  if (best == 0)
    for (const std::uint32_t one : translated)
      if (one <= own) best = std::max(best, one);
  return best == 0 ? own : best;
}

void add_code(const void* fat_binary, LibraryCode& code) {
  if (fat_binary == nullptr) return;
  FatHeader header;
  std::memcpy(&header, fat_binary, sizeof header);
  if (header.magic != kFatMagic || header.header_bytes < sizeof header) return;
  const char* const begin = static_cast<const char*>(fat_binary) + header.header_bytes;
  std::uint64_t at = 0;
  for (std::size_t parts = 0; parts < kMostParts; ++parts) {
    FatPart part;
    if (header.bytes < sizeof part || at > header.bytes - sizeof part) return;
    std::memcpy(&part, begin + at, sizeof part);
    if (part.header_bytes < sizeof part || part.bytes > header.bytes) return;
    if (part.kind == FatPart::kElf) code.compiled.insert(part.architecture);
    if (part.kind == FatPart::kPtx) code.translated.insert(part.architecture);
    at += part.header_bytes + part.bytes;
  }
}

void note_fat_binary(const void* wrapper) {
  if (wrapper == nullptr) return;
  Wrapper known;
  std::memcpy(&known, wrapper, sizeof known);
  if (known.magic != kWrapperMagic) return;
  Libraries& libraries = Libraries::get();
  const std::lock_guard lock(libraries.mutex);
  Library& library = libraries.with(reinterpret_cast<std::uintptr_t>(wrapper));
  if (++library.seen <= kFewPerLibrary) add_code(known.binary, library.code);
}

std::uint32_t code_version(const void* kernel, const GpuModel& gpu) {
  Libraries& libraries = Libraries::get();
  const std::lock_guard lock(libraries.mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(kernel);
  for (const Library& library : libraries.list)
    if (library.begin <= address && address < library.end) return library.code.version_on(gpu);
  return LibraryCode{}.version_on(gpu);
}

std::vector<LibraryCode> registered_code() {
  Libraries& libraries = Libraries::get();
  const std::lock_guard lock(libraries.mutex);
  std::vector<LibraryCode> all;
  for (const Library& library : libraries.list) all.push_back(library.code);
  return all;
}

}  // namespace berth::standin
