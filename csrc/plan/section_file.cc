#include "csrc/plan/section_file.h"

#include "csrc/core/check.h"
#include "csrc/core/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace berth {
namespace {

static_assert(std::endian::native == std::endian::little, "plan files are little-endian");

struct Header {
  char magic[8];
  std::uint32_t format;
  std::uint32_t alignment_rule;
  std::uint32_t rounding_rule;
  std::uint32_t section_count;
  std::uint64_t file_bytes;
};
static_assert(sizeof(Header) == 32);

constexpr std::uint32_t kRequired = 1;  // the one flag there is
struct SectionEntry {
  std::uint32_t type;
  std::uint32_t flags;
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(sizeof(SectionEntry) == 24);

constexpr Bytes kChecksumBytes = 8;
constexpr Bytes kSectionAlignment = 8;
constexpr std::uint32_t kMaxSections = 64;

template <class Value>
Value load(std::span<const std::byte> data, std::size_t offset) {
  Value value;
  std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

template <class Value>
void store(std::vector<std::byte>& data, std::size_t offset, const Value& value) {
  std::memcpy(data.data() + offset, &value, sizeof value);
}

}  // namespace

std::vector<std::byte> write_sections(const std::vector<Section>& sections) {
  std::vector<SectionEntry> entries;
  Bytes end = sizeof(Header) + sections.size() * sizeof(SectionEntry);
  for (const Section& section : sections) {
    const Bytes offset = align_up(end, kSectionAlignment);
    entries.push_back({static_cast<std::uint32_t>(section.type), section.required ? kRequired : 0,
                       offset, section.content.size()});
    end = offset + section.content.size();
  }
  const Bytes size = end + kChecksumBytes;
  BERTH_CHECK(size <= kMaxPlanFileBytes, kUsage, "a plan file of {}, the limit is {}",
              format_bytes(size), format_bytes(kMaxPlanFileBytes));

  std::vector<std::byte> file(size);
  Header header{.magic = {},
                .format = kPlanFormat,
                .alignment_rule = kAlignmentRule,
                .rounding_rule = kRoundingRule,
                .section_count = static_cast<std::uint32_t>(sections.size()),
                .file_bytes = size};
  std::copy(kPlanMagic.begin(), kPlanMagic.end(), header.magic);
  store(file, 0, header);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    store(file, sizeof(Header) + i * sizeof(SectionEntry), entries[i]);
    std::copy(sections[i].content.begin(), sections[i].content.end(),
              file.begin() + static_cast<std::ptrdiff_t>(entries[i].offset));
  }
  store(file, end, checksum(std::span(file).first(end)));
  return file;
}

namespace {

// What a file says of itself before its content: a plan file of this format.
Header read_header(std::span<const std::byte> file, const std::string& name) {
  constexpr std::size_t kFormatEnd = kPlanMagic.size() + sizeof(std::uint32_t);
  BERTH_CHECK(file.size() >= kFormatEnd &&
                  std::memcmp(file.data(), kPlanMagic.data(), kPlanMagic.size()) == 0,
              kInput, "'{}' is not a plan file", name);
  // Before the checksum, whose place another format may change.
  const auto format = load<std::uint32_t>(file, kPlanMagic.size());
  BERTH_CHECK(format == kPlanFormat, kInput, "'{}' has plan format {}, this berth reads format {}",
              name, format, kPlanFormat);
  BERTH_CHECK(file.size() >= sizeof(Header) + kChecksumBytes, kInput,
              "'{}' is damaged: {} bytes are less than a header", name, file.size());
  return load<Header>(file, 0);
}

void check_rules(const Header& header, const std::string& name) {
  BERTH_CHECK(header.alignment_rule == kAlignmentRule, kInput,
              "'{}' was made under alignment rule {}, this berth has rule {}", name,
              header.alignment_rule, kAlignmentRule);
  BERTH_CHECK(header.rounding_rule == kRoundingRule, kInput,
              "'{}' was made under rounding rule {}, this berth has rule {}", name,
              header.rounding_rule, kRoundingRule);
  BERTH_CHECK(header.section_count <= kMaxSections, kInput,
              "'{}' is malformed: {} sections, the limit is {}", name, header.section_count,
              kMaxSections);
}

// Calls visit(index, entry) for each section of a file of `size` bytes, of which `file` are the
// first.
template <class Visit>
void for_each_section(std::span<const std::byte> file, const Header& header, Bytes size,
                      const std::string& name, const Visit& visit) {
  const Bytes end = size - kChecksumBytes;
  Bytes free = sizeof(Header) + header.section_count * sizeof(SectionEntry);
  BERTH_CHECK(free <= end && free <= file.size(), kInput,
              "'{}' is malformed: {} sections in {} bytes", name, header.section_count, size);
  for (std::uint32_t i = 0; i < header.section_count; ++i) {
    const auto entry = load<SectionEntry>(file, sizeof(Header) + i * sizeof(SectionEntry));
    BERTH_CHECK(entry.offset >= free && entry.offset % kSectionAlignment == 0 &&
                    entry.offset <= end && entry.bytes <= end - entry.offset,
                kInput, "'{}' is malformed: section {} has {} bytes at {}, free are [{}, {})", name,
                i, entry.bytes, entry.offset, free, end);
    free = entry.offset + entry.bytes;
    visit(i, entry);
  }
}

bool is_known(std::span<const SectionType> known, std::uint32_t type) {
  return std::find(known.begin(), known.end(), static_cast<SectionType>(type)) != known.end();
}

}  // namespace

std::optional<SectionType> first_section(std::span<const std::byte> head) noexcept {
  static_assert(kFirstSectionBytes == sizeof(Header) + sizeof(SectionEntry::type));
  if (head.size() < kFirstSectionBytes ||
      std::memcmp(head.data(), kPlanMagic.data(), kPlanMagic.size()) != 0)
    return std::nullopt;
  return static_cast<SectionType>(load<std::uint32_t>(head, sizeof(Header)));
}

std::vector<Section> read_sections(std::span<const std::byte> file,
                                   std::span<const SectionType> known, const std::string& name) {
  const Header header = read_header(file, name);
  BERTH_CHECK(header.file_bytes == file.size(), kInput,
              "'{}' is damaged: it has {} bytes and should have {}", name, file.size(),
              header.file_bytes);
  const Bytes end = file.size() - kChecksumBytes;
  BERTH_CHECK(load<std::uint64_t>(file, end) == checksum(file.first(end)), kInput,
              "'{}' is damaged: its checksum differs", name);
  check_rules(header, name);
  std::vector<Section> sections;
  for_each_section(
      file, header, file.size(), name, [&](std::uint32_t index, const SectionEntry& entry) {
        const bool required = (entry.flags & kRequired) != 0;
        const auto type = static_cast<SectionType>(entry.type);
        if (!is_known(known, entry.type)) {
          BERTH_CHECK(!required, kInput,
                      "'{}' needs a newer berth: section {} of type {} is required and not known",
                      name, index, entry.type);
          return;
        }
        for (const Section& other : sections) {
          BERTH_CHECK(other.type != type, kInput, "'{}' is malformed: two sections of type {}",
                      name, entry.type);
        }
        sections.push_back({type, required, file.subspan(entry.offset, entry.bytes)});
      });
  return sections;
}

std::vector<Section> read_first_sections(std::span<const std::byte> head,
                                         std::span<const SectionType> known,
                                         const std::string& name) {
  const Header header = read_header(head, name);
  check_rules(header, name);
  BERTH_CHECK(header.file_bytes >= head.size() && header.file_bytes <= kMaxPlanFileBytes, kInput,
              "'{}' is damaged: it has {} bytes and should have {}", name, head.size(),
              header.file_bytes);
  std::vector<Section> sections;
  for_each_section(
      head, header, header.file_bytes, name, [&](std::uint32_t, const SectionEntry& entry) {
        if (!is_known(known, entry.type) || entry.offset + entry.bytes > head.size()) return;
        sections.push_back({static_cast<SectionType>(entry.type), (entry.flags & kRequired) != 0,
                            head.subspan(entry.offset, entry.bytes)});
      });
  return sections;
}

}  // namespace berth
