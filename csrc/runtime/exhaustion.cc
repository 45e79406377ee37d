#include "csrc/runtime/exhaustion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace berth {
namespace {

constexpr std::size_t kMostGroups = 4, kMostRanges = 4;  // that are named

// Bytes of [first, last) on whole pages.
Bytes on_whole_pages(Bytes first, Bytes last, Bytes page) {
  const Bytes from = (first + page - 1) / page * page, to = last / page * page;
  return from < to ? to - from : 0;
}

std::string blocks(std::uint64_t count) {
  return count == 1 ? "1 block" : fmt::format("{} blocks", count);
}

}  // namespace

void Exhaustion::add_block(Bytes size, Bytes requested, std::uint32_t tag) {
  Group& group = groups_[{tag, requested}];
  ++group.count;
  group.bytes += size;
}

void Exhaustion::add(const Stretch& stretch, bool arena) {
  Range& range = ranges_.emplace_back(Range{stretch.base, stretch.size, 0, arena});
  for (const Stretch::Piece& piece : stretch.pieces) {
    switch (piece.kind) {
      case Stretch::Piece::Kind::kLive:
        range.live += piece.size;
        break;
      case Stretch::Piece::Kind::kWaiting:
        waiting_ += piece.size;
        break;
      case Stretch::Piece::Kind::kHole: {
        const auto first = reinterpret_cast<Bytes>(piece.pointer);
        holes_ += piece.size;
        largest_hole_ = std::max(largest_hole_, piece.size);
        stuck_ += piece.size - on_whole_pages(first, first + piece.size, page_bytes_);
        break;
      }
    }
  }
}

std::string Exhaustion::holders() const {
  std::vector<std::pair<std::pair<std::uint32_t, Bytes>, Group>> most(groups_.begin(),
                                                                      groups_.end());
  std::stable_sort(most.begin(), most.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text;
  Group rest;
  for (std::size_t i = 0; i < most.size(); ++i) {
    const auto& [key, group] = most[i];
    if (i >= kMostGroups) {
      rest.count += group.count;
      rest.bytes += group.bytes;
      continue;
    }
    text += fmt::format("{}{} of {}{} ({})", text.empty() ? "" : ", ", blocks(group.count),
                        format_bytes(key.second),
                        key.first == 0 ? "" : fmt::format(", tag {}", key.first),
                        format_bytes(group.bytes));
  }
  if (rest.count != 0)
    text += fmt::format(", {} of other sizes ({})", blocks(rest.count), format_bytes(rest.bytes));
  return text;
}

std::string Exhaustion::ranges() const {
  std::vector<Range> most = ranges_;
  std::stable_sort(most.begin(), most.end(),
                   [](const Range& a, const Range& b) { return a.size > b.size; });
  std::string text;
  for (std::size_t i = 0; i < std::min(most.size(), kMostRanges); ++i)
    text += fmt::format("{}{} {} at {}, {} live", text.empty() ? "" : "; ",
                        most[i].arena ? "arena" : "pool", format_bytes(most[i].size),
                        fmt::ptr(most[i].base), format_bytes(most[i].live));
  if (most.size() > kMostRanges) text += fmt::format("; {} more", most.size() - kMostRanges);
  return text;
}

std::string Exhaustion::text() const {
  const std::string under =
      limit == 0 ? std::string()
                 : fmt::format(" under the limit of {} (BERTH_MEMORY_LIMIT, or a memory fraction)",
                               format_bytes(limit));
  std::string text = fmt::format(
      "{}: asked {} for lane {}; reserved {} of {}, live {} (planned {}, pool "
      "{}), {}",
      failure.empty() ? "out of memory on " + device + under : failure, format_bytes(asked), lane,
      format_bytes(reserved), format_bytes(limit == 0 ? total : limit), format_bytes(live),
      format_bytes(planned_live), format_bytes(live - planned_live),
      format_bytes(left) + (limit == 0 ? " free on the device" : " left of the limit"));
  if (holes_ != 0)
    text += fmt::format(
        "\n  holes: {}, the largest {}; {} of them on pages that also hold blocks and cannot move",
        format_bytes(holes_), format_bytes(largest_hole_), format_bytes(stuck_));
  if (waiting_ != 0)
    text += fmt::format("\n  freed, but work of other streams or a captured graph may use it: {}",
                        format_bytes(waiting_));
  if (!groups_.empty()) text += "\n  most of the pool: " + holders();
  if (!ranges_.empty()) text += "\n  ranges: " + ranges();
  if (plan_arena != 0)
    text +=
        fmt::format("\n  the plan's arena: {}, {} of it held{}", format_bytes(plan_arena),
                    format_bytes(arena_held),
                    arena_held >= plan_arena
                        ? ""
                        : fmt::format(": it needs {} more", format_bytes(plan_arena - arena_held)));
  return text;
}

}  // namespace berth
