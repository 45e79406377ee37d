#include "csrc/standin/driver/module.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

namespace berth::standin {
namespace {

constexpr std::uint32_t kFatBinary = 0xba55ed50;
// Entries of .nv.info: a byte each of format and kind, two of size; then the symbol and the value.
constexpr unsigned kSizedFormat = 4;
constexpr unsigned kFrameSize = 0x11;
constexpr unsigned kRegisterCount = 0x2f;
// Of shared memory that kernels for compute capability 9 and later leave to the driver.
constexpr std::uint64_t kReservedShared = 1024;
constexpr std::size_t kMostSections = 1 << 20;

const char* kept(std::string_view name) {
  static auto* names = new std::set<std::string, std::less<>>;
  return names->emplace(name).first->c_str();
}

// The structure at an offset; false where the image ends before.
template <class T>
bool read(std::string_view image, std::uint64_t offset, T& value) {
  if (offset > image.size() || sizeof value > image.size() - offset) return false;
  std::memcpy(&value, image.data() + offset, sizeof value);
  return true;
}

std::string_view text_at(std::string_view image, std::uint64_t offset) {
  if (offset >= image.size()) return {};
  const char* const begin = image.data() + offset;
  return {begin, strnlen(begin, std::min<std::size_t>(image.size() - offset, 1 << 16))};
}

}  // namespace

int KernelFunction::max_threads_per_block() const {
  // A warp's registers are given out in units of 256.
  const int per_warp = std::max(1, (registers * 32 + 255) / 256) * 256;
  return std::min(1024, 65536 / per_warp * 32);
}

std::unique_ptr<Module> Module::load(const void* image, std::size_t size) {
  if (image == nullptr || size < 4) return nullptr;
  auto made = std::make_unique<Module>();
  const std::string_view bytes(static_cast<const char*>(image), size);
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (bytes.substr(0, 4) == "\177ELF") return made->read_elf(bytes) ? std::move(made) : nullptr;
  // PTX begins with a comment or a directive.
  made->any_name_ = magic == kFatBinary || bytes[0] == '/' || bytes[0] == '.' || bytes[0] == '\n';
  return made->any_name_ ? std::move(made) : nullptr;
}

KernelFunction* Module::find(std::string_view name) {
  const auto found = kernels_.find(name);
  if (found != kernels_.end()) return &found->second;
  if (!any_name_ || name.empty()) return nullptr;
  KernelFunction& made = kernels_[std::string(name)];
  made.name = kept(name);
  return &made;
}

bool Module::read_elf(std::string_view image) {
  Elf64_Ehdr header;
  if (!read(image, 0, header) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shentsize != sizeof(Elf64_Shdr)) {
    return false;
  }
  std::vector<Elf64_Shdr> sections;
  for (std::size_t i = 0; i < std::min<std::size_t>(header.e_shnum, kMostSections); ++i) {
    Elf64_Shdr section;
    if (!read(image, header.e_shoff + i * sizeof section, section)) return false;
    sections.push_back(section);
  }
  if (header.e_shstrndx >= sections.size()) return false;
  const auto name_of = [&](const Elf64_Shdr& section) {
    return text_at(image, sections[header.e_shstrndx].sh_offset + section.sh_name);
  };
  const auto section_of = [&](std::string_view name) -> const Elf64_Shdr* {
    const auto found = std::ranges::find_if(
        sections, [&](const auto& section) { return name_of(section) == name; });
    return found == sections.end() ? nullptr : &*found;
  };
  constexpr std::string_view kCode = ".text.";
  const bool reserves = section_of(".nv.shared.reserved.0") != nullptr;
  for (const Elf64_Shdr& section : sections) {
    const std::string_view section_name = name_of(section);
    if (!section_name.starts_with(kCode)) continue;
    const std::string name(section_name.substr(kCode.size()));
    KernelFunction& kernel = kernels_[name];
    kernel.name = kept(name);
    if (const Elf64_Shdr* shared = section_of(".nv.shared." + name)) {
      const std::uint64_t size = shared->sh_size;
      kernel.shared_bytes = static_cast<int>(std::min<std::uint64_t>(
          reserves && size >= kReservedShared ? size - kReservedShared : size,
          std::uint64_t{1} << 20));
    }
  }
  const Elf64_Shdr* symbols = section_of(".symtab");
  const Elf64_Shdr* information = section_of(".nv.info");
  if (symbols == nullptr || information == nullptr || symbols->sh_link >= sections.size())
    return true;
  for (std::uint64_t at = 0; at + 12 <= information->sh_size;) {
    struct {
      std::uint8_t format, kind;
      std::uint16_t size;
      std::uint32_t symbol, value;
    } entry;
    if (!read(image, information->sh_offset + at, entry)) return false;
    // The other formats hold their value in the place of the size.
    at += entry.format == kSizedFormat ? 4 + std::uint64_t{entry.size} : 4;
    if (entry.format != kSizedFormat || entry.size != 8) continue;
    Elf64_Sym symbol;
    if (!read(image, symbols->sh_offset + entry.symbol * sizeof symbol, symbol)) return false;
    const auto found =
        kernels_.find(text_at(image, sections[symbols->sh_link].sh_offset + symbol.st_name));
    if (found == kernels_.end()) continue;
    const int value = static_cast<int>(std::min<std::uint32_t>(entry.value, 1 << 20));
    if (entry.kind == kRegisterCount) found->second.registers = std::min(value, 255);
    if (entry.kind == kFrameSize) found->second.local_bytes = value;
  }
  return true;
}

}  // namespace berth::standin
