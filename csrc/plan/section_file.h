#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace berth {

// The frame of a plan file: typed sections between a header and a checksum of everything. Layout
// and numbers are in `plans/README.md`.
inline constexpr std::string_view kPlanMagic = "BERTHPLN";
inline constexpr std::uint32_t kPlanFormat = 1;
// Offsets are multiples of the plan's alignment, which the arena's base is aligned to as well.
inline constexpr std::uint32_t kAlignmentRule = 1;
// A slot has the bytes asked for, rounded up to the plan's alignment.
inline constexpr std::uint32_t kRoundingRule = 1;
inline constexpr Bytes kMaxPlanFileBytes = Bytes{512} << 20;

enum class SectionType : std::uint32_t {
  kSummary = 1,
  kLayout = 2,
  kActions = 3,   // reserved: copies and recomputation at a tick
  kSchedule = 4,  // the only one of its file
  kGraph = 5,     // the same
};

struct Section {
  SectionType type{};
  bool required = true;  // a reader that does not know it must refuse the file
  std::span<const std::byte> content;
};

// The file of these sections, in this order. Throws Error(kUsage) above kMaxPlanFileBytes.
[[nodiscard]] std::vector<std::byte> write_sections(const std::vector<Section>& sections);

// What a file is by its first bytes, of which 36 are enough: the type of its first section. Nothing
// for what does not begin as a plan file. Whether the file is damaged is not asked.
[[nodiscard]] std::optional<SectionType> first_section(std::span<const std::byte> head) noexcept;
inline constexpr std::size_t kFirstSectionBytes = 36;

// The sections of a file that `known` names; others are ignored, or, where required, refused.
// Contents lie in `file`, at multiples of 8. Throws Error(kInput), naming `name` and the reason,
// for what is no plan file, a newer format, damage, other rules, and tables that do not fit.
[[nodiscard]] std::vector<Section> read_sections(std::span<const std::byte> file,
                                                 std::span<const SectionType> known,
                                                 const std::string& name);

// Of those the ones that lie whole within the first bytes of a file. Whether the file is damaged is
// not known: for what is only a hint until all of it is read.
[[nodiscard]] std::vector<Section> read_first_sections(std::span<const std::byte> head,
                                                       std::span<const SectionType> known,
                                                       const std::string& name);

}  // namespace berth
