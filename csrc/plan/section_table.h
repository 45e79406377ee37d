#pragma once

#include "csrc/core/check.h"
#include "csrc/plan/section_file.h"

#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

// FlatBuffers tables in the sections of a plan file, read without trust.
namespace berth {

// The root table of a section, checked: nothing that it leads to lies outside of it, and no more
// than `max_tables`. Throws Error(kInput) that names the file.
template <class Table>
[[nodiscard]] const Table& root_table(const std::vector<Section>& sections, SectionType type,
                                      std::size_t max_tables, const std::string& name) {
  const auto section = std::find_if(sections.begin(), sections.end(),
                                    [&](const Section& one) { return one.type == type; });
  BERTH_CHECK(section != sections.end(), kInput, "'{}' is malformed: it has no section of type {}",
              name, static_cast<std::uint32_t>(type));
  const auto* data = reinterpret_cast<const std::uint8_t*>(section->content.data());
  flatbuffers::Verifier verifier(data, section->content.size(), /*max_depth=*/64,
                                 static_cast<flatbuffers::uoffset_t>(max_tables));
  BERTH_CHECK(verifier.VerifyBuffer<Table>(nullptr), kInput,
              "'{}' is malformed: section of type {} does not hold together", name,
              static_cast<std::uint32_t>(type));
  return *flatbuffers::GetRoot<Table>(data);
}

// FlatBuffers checks where vectors lie, not where their elements do; ours lie where they can be
// read.
template <class Element>
void check_place(const flatbuffers::Vector<Element>& vector, const std::string& name) {
  constexpr std::size_t kAlignment = alignof(std::remove_cv_t<std::remove_pointer_t<Element>>);
  const auto place = reinterpret_cast<std::uintptr_t>(vector.Data());
  BERTH_CHECK(vector.size() == 0 || place % kAlignment == 0, kInput,
              "'{}' is malformed: numbers of {} bits at no multiple of {}", name, 8 * kAlignment,
              kAlignment);
}

// The content of a finished builder. The builder keeps it.
[[nodiscard]] inline std::span<const std::byte> table_content(
    const flatbuffers::FlatBufferBuilder& builder) {
  return {reinterpret_cast<const std::byte*>(builder.GetBufferPointer()), builder.GetSize()};
}

// FlatBuffers reads numbers where they are: bytes that start anywhere are copied to a better place.
[[nodiscard]] inline std::span<const std::byte> aligned(std::span<const std::byte> data,
                                                        std::vector<std::byte>& copy) {
  if (reinterpret_cast<std::uintptr_t>(data.data()) % alignof(std::uint64_t) == 0) return data;
  copy.assign(data.begin(), data.end());
  return copy;
}

}  // namespace berth
