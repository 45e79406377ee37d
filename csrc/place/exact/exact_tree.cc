#include "csrc/place/exact/exact_tree.h"

#include "csrc/core/checksum.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>

namespace berth::place {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
// Failed states are kept up to this, and only where finding out took some nodes.
constexpr std::size_t kMaxFailedWords = std::size_t{1} << 22;
constexpr std::uint64_t kWorthRemembering = 4;

}  // namespace

ExactTree::ExactTree(const ExactPart& part, const ExactRules& rules)
    : part_(part), rules_(rules), count_(static_cast<std::uint32_t>(part.items.size())) {
  const std::uint32_t m = part.sections;
  low_.resize(count_);
  earliest_.resize(count_);
  offsets_.resize(count_);
  passed_.resize(count_);
  ranks_.resize(count_);
  factors_.resize(count_);
  neighbours_.resize(count_);
  walls_of_item_.resize(count_);
  earlier_twin_.assign(count_, kNone);
  later_twin_.assign(count_, kNone);
  sections_.resize(m);
  least_.resize(m);
  walls_of_section_.resize(m);
  const auto overlap = [&](const auto& a, const auto& b) {
    return (a.first < b.last && b.first < a.last) ||
           (part.ring && ((a.first + m < b.last) || (b.first + m < a.last)));
  };
  for (Index32 i = 0; i < count_; ++i) {
    const ExactPart::Item& own = part.items[i];
    sizes_.push_back(own.size);
    has_limits_ |= own.align > 1;
    for_sections(own.first, own.last, [&](std::uint32_t x) { sections_[x].need += own.size; });
    for (Index32 j = 0; j < count_; ++j) {
      if (j != i && overlap(own, part.items[j])) neighbours_[i].push_back(j);
    }
    for (const auto& wall : part.walls) {
      if (overlap(own, wall)) walls_of_item_[i].emplace_back(wall.begin, wall.end);
    }
    std::sort(walls_of_item_[i].begin(), walls_of_item_[i].end());
    has_limits_ |= !walls_of_item_[i].empty();
  }
  for (const auto& wall : part.walls) {
    for_sections(wall.first, wall.last, [&](std::uint32_t x) {
      sections_[x].need += wall.end - wall.begin;
      walls_of_section_[x].emplace_back(wall.begin, wall.end);
    });
  }
  for (auto& walls : walls_of_section_) std::sort(walls.begin(), walls.end());
  for (Section& section : sections_) section.floor = part.start;
  first_sections_ = sections_;
  if (!rules.twins) return;
  std::vector<Index32> order(count_);
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](Index32 i) {
    const auto& item = part.items[i];
    return std::tie(item.first, item.last, item.size, item.align);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](Index32 a, Index32 b) { return key(a) < key(b); });
  for (std::size_t k = 1; k < order.size(); ++k) {
    if (key(order[k - 1]) != key(order[k])) continue;
    earlier_twin_[order[k]] = order[k - 1];
    later_twin_[order[k - 1]] = order[k];
  }
}

// The lowest legal offset from `low` on.
ExactTree::Value ExactTree::fit(Index32 i, Value low) const noexcept {
  const Value align = part_.items[i].align;
  Value at = (low + align - 1) / align * align;
  for (const auto& [begin, end] : walls_of_item_[i]) {
    if (end <= at) continue;
    if (at + sizes_[i] <= begin) break;
    at = (end + align - 1) / align * align;
  }
  return at;
}

void ExactTree::set_ranks(const Piece& piece) {
  keys_.clear();
  for (std::uint32_t k = 0; k < piece.count; ++k) {
    const Index32 i = items_[piece.items + k];
    const ExactPart::Item& item = part_.items[i];
    const double w = factors_[i] * static_cast<double>(item.length);
    const double a = w * static_cast<double>(item.size);
    Value load = 0;
    for_sections(item.first, item.last,
                 [&](std::uint32_t x) { load = std::max(load, sections_[x].need); });
    const double t = factors_[i] * static_cast<double>(load);
    switch (rank_) {
      case Rank::kTAW:
        keys_.push_back({{t, a, w}, i});
        break;
      case Rank::kTWA:
        keys_.push_back({{t, w, a}, i});
        break;
      default:
        keys_.push_back({{w, a, t}, i});
    }
  }
  std::sort(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  for (std::uint32_t k = 0; k < piece.count; ++k) ranks_[keys_[k].second] = k;
}

// What can be placed next. False: the piece is known not to fit.
bool ExactTree::enter(const Piece& piece) {
  if (rules_.failed && piece.count > 2 && knows_failed(piece)) return false;
  Frame frame;
  frame.piece = piece;
  frame.items_end = items_.size();
  frame.candidates = candidates_.size();
  frame.saved_items = saved_items_.size();
  frame.saved_sections = saved_sections_.size();
  frame.pieces = pieces_.size();
  const Index32* const items = items_.data() + piece.items;
  Value below = kPlaced;  // something must start lower than the least top
  for (std::uint32_t k = 0; k < piece.count; ++k)
    below = std::min(below, low_[items[k]] + sizes_[items[k]]);
  for (std::uint32_t k = 0; k < piece.count; ++k) {
    const Index32 i = items[k];
    if (low_[i] >= below || passed_[i] != 0) continue;
    if (earlier_twin_[i] != kNone && low_[earlier_twin_[i]] != kPlaced) continue;
    candidates_.push_back(i);
  }
  std::sort(candidates_.begin() + static_cast<std::ptrdiff_t>(frame.candidates), candidates_.end(),
            [&](Index32 a, Index32 b) {
              return std::tie(low_[a], ranks_[a]) < std::tie(low_[b], ranks_[b]);
            });
  frame.candidate_count = static_cast<std::uint32_t>(candidates_.size() - frame.candidates);
  saved_items_.resize(frame.saved_items + piece.count);
  saved_sections_.resize(frame.saved_sections + (piece.end - piece.begin));
  save(frame);
  frames_.push_back(frame);
  return true;
}

void ExactTree::save(const Frame& frame) {
  const Piece& piece = frame.piece;
  for (std::uint32_t k = 0; k < piece.count; ++k) {
    const Index32 i = items_[piece.items + k];
    saved_items_[frame.saved_items + k] = {low_[i], passed_[i]};
  }
  std::size_t to = frame.saved_sections;
  for_sections(piece.begin, piece.end,
               [&](std::uint32_t x) { saved_sections_[to++] = sections_[x]; });
}

void ExactTree::restore(const Frame& frame) {
  const Piece& piece = frame.piece;
  for (std::uint32_t k = 0; k < piece.count; ++k) {
    const Index32 i = items_[piece.items + k];
    const Saved& saved = saved_items_[frame.saved_items + k];
    low_[i] = saved.low;
    passed_[i] = saved.passed;
  }
  std::size_t from = frame.saved_sections;
  for_sections(piece.begin, piece.end,
               [&](std::uint32_t x) { sections_[x] = saved_sections_[from++]; });
}

// Puts item i at its low. False: what is left cannot fit.
bool ExactTree::place(Frame& frame, Index32 i) {
  const Value top = low_[i] + sizes_[i];
  const ExactPart::Item& own = part_.items[i];
  bool fits = top <= part_.capacity;
  for_sections(own.first, own.last, [&](std::uint32_t x) {
    // Walls that lie below the top are among the need.
    fits &= low_[i] + sections_[x].need <= part_.capacity || !walls_of_section_[x].empty();
  });
  if (!fits) return false;
  for_sections(own.first, own.last, [&](std::uint32_t x) { sections_[x].need -= sizes_[i]; });
  offsets_[i] = low_[i];
  low_[i] = kPlaced;
  passed_[i] = 0;
  for (const Index32 j : neighbours_[i]) {
    if (low_[j] >= top) continue;
    low_[j] = has_limits_ ? fit(j, top) : top;
    passed_[j] = 0;
  }
  // The unplaced, behind the frame's own.
  const Piece& piece = frame.piece;
  items_.resize(frame.items_end);
  for (std::uint32_t k = 0; k < piece.count; ++k) {
    const Index32 j = items_[piece.items + k];
    if (j != i) items_.push_back(j);
  }
  return tighten(items_.data() + frame.items_end, piece.count - 1, piece);
}

// Decides that item i does not stay at its low. False: nothing can lift it.
bool ExactTree::pass(Frame& frame, Index32 i) {
  for (; i != kNone; i = later_twin_[i]) passed_[i] = low_[i] != kPlaced ? 1 : 0;
  const Piece& piece = frame.piece;
  if (!tighten(items_.data() + piece.items, piece.count, piece)) return false;
  save(frame);
  return true;
}

// Lifts the floors of the sections to the least offset that their unplaced items can get.
bool ExactTree::tighten(const Index32* items, std::uint32_t count, const Piece& piece) {
  Value next = kPlaced;  // offset of the next to be placed, at least
  for (std::uint32_t k = 0; k < count; ++k) {
    if (passed_[items[k]] == 0) next = std::min(next, low_[items[k]]);
  }
  if (next == kPlaced) return count == 0;
  for_sections(piece.begin, piece.end, [&](std::uint32_t x) { least_[x] = kPlaced; });
  for (std::uint32_t k = 0; k < count; ++k) {
    const Index32 i = items[k];
    Value at = std::max(low_[i], next);
    if (passed_[i] != 0 && rules_.look_ahead) {
      const Value top = low_[i] + sizes_[i];
      at = kPlaced;
      for (const Index32 j : neighbours_[i]) {
        if (low_[j] < top) at = std::min(at, std::max(low_[j], next) + sizes_[j]);
      }
      if (at == kPlaced) return false;
      if (has_limits_) at = fit(i, at);
    }
    if (at + sizes_[i] > part_.capacity) return false;
    const ExactPart::Item& item = part_.items[i];
    for_sections(item.first, item.last,
                 [&](std::uint32_t x) { least_[x] = std::min(least_[x], at); });
  }
  return lift_floors(piece);
}

bool ExactTree::lift_floors(const Piece& piece) {
  bool fits = true;
  for_sections(piece.begin, piece.end, [&](std::uint32_t x) {
    Section& section = sections_[x];
    if (least_[x] == kPlaced) return;
    section.floor = std::max(section.floor, least_[x]);
    const auto& walls = walls_of_section_[x];
    for (; section.wall < walls.size() && walls[section.wall].first < section.floor; ++section.wall)
      section.need -= walls[section.wall].second - walls[section.wall].first;
    fits &= section.floor + section.need <= part_.capacity;
  });
  return fits;
}

// The pieces that the unplaced items behind the frame's own fall into.
void ExactTree::split(Frame& frame) {
  pieces_.resize(frame.pieces);
  frame.next_piece = 0;
  const std::uint32_t m = part_.sections;
  const std::size_t first = frame.items_end;
  const auto count = static_cast<std::uint32_t>(items_.size() - first);
  if (count == 0) {
    frame.piece_count = 0;
    return;
  }
  Piece whole = frame.piece;
  whole.items = first;
  whole.count = count;
  // Sections count on from where the piece begins.
  const auto begin_of = [&](Index32 i) {
    const std::uint32_t at = part_.items[i].first;
    return at < whole.begin ? at + m : at;
  };
  const auto end_of = [&](Index32 i) {
    return begin_of(i) + (part_.items[i].last - part_.items[i].first);
  };
  if (!rules_.split) {
    pieces_.push_back(whole);
    frame.piece_count = 1;
    return;
  }
  if (whole.ring) {
    // Cut it where nothing crosses, if there is such a place.
    std::uint32_t reach = 0;
    for (std::size_t k = first; k < items_.size(); ++k) reach = std::max(reach, end_of(items_[k]));
    reach = reach > m ? reach - m : 0;
    std::size_t cut = items_.size();
    for (std::size_t k = first; k < items_.size(); ++k) {
      if (begin_of(items_[k]) >= reach) {
        cut = k;
        break;
      }
      reach = std::max(reach, end_of(items_[k]));
    }
    if (cut == items_.size()) {
      pieces_.push_back(whole);
      frame.piece_count = 1;
      return;
    }
    whole.ring = false;
    whole.begin = part_.items[items_[cut]].first;
    whole.end = whole.begin + m;
    std::rotate(items_.begin() + static_cast<std::ptrdiff_t>(first),
                items_.begin() + static_cast<std::ptrdiff_t>(cut), items_.end());
  }
  Piece piece = whole;
  piece.count = 0;
  const auto finish = [&](std::size_t k) {
    if (k > piece.items) {
      piece.count = static_cast<std::uint32_t>(k - piece.items);
      pieces_.push_back(piece);
    }
    piece.items = k;
  };
  std::uint32_t reach = begin_of(items_[first]);
  for (std::size_t k = first; k < items_.size(); ++k) {
    const std::uint32_t begin = begin_of(items_[k]);
    if (begin >= reach) {
      piece.end = reach;
      finish(k);
      piece.begin = begin;
    }
    reach = std::max(reach, end_of(items_[k]));
  }
  piece.end = reach;
  finish(items_.size());
  frame.piece_count = static_cast<std::uint32_t>(pieces_.size() - frame.pieces);
  if (frame.piece_count == 1) return;
  // The tightest first: it fails soonest.
  const auto slack = [&](const Piece& p) {
    Value most = 0;
    for_sections(p.begin, p.end, [&](std::uint32_t x) {
      if (sections_[x].need > 0) most = std::max(most, sections_[x].floor + sections_[x].need);
    });
    return most;
  };
  std::stable_sort(pieces_.begin() + static_cast<std::ptrdiff_t>(frame.pieces), pieces_.end(),
                   [&](const Piece& a, const Piece& b) { return slack(a) > slack(b); });
  for (std::size_t p = frame.pieces; p < pieces_.size(); ++p) {
    if (pieces_[p].count > 1) set_ranks(pieces_[p]);
  }
}

void ExactTree::make_key(const Piece& piece) {
  key_.clear();
  for (std::uint32_t k = 0; k < piece.count; ++k) {
    const Index32 i = items_[piece.items + k];
    key_.push_back(std::uint64_t{i} << 1 | passed_[i]);
    key_.push_back(static_cast<std::uint64_t>(low_[i]));
  }
}

bool ExactTree::knows_failed(const Piece& piece) {
  if (failed_.empty()) return false;
  make_key(piece);
  const auto [begin, end] = failed_.equal_range(checksum(std::as_bytes(std::span(key_))));
  return std::any_of(begin, end, [&](const auto& entry) {
    const auto [at, size] = entry.second;
    return size == key_.size() &&
           std::equal(key_.begin(), key_.end(),
                      failed_keys_.begin() + static_cast<std::ptrdiff_t>(at));
  });
}

// Requires the state that the piece was entered with.
void ExactTree::remember_failed(const Piece& piece) {
  if (failed_keys_.size() + 2 * piece.count > kMaxFailedWords) return;
  make_key(piece);
  failed_.emplace(checksum(std::as_bytes(std::span(key_))),
                  std::pair{failed_keys_.size(), key_.size()});
  failed_keys_.insert(failed_keys_.end(), key_.begin(), key_.end());
}

// Places the next candidate that leaves the rest a chance. False: there is none.
bool ExactTree::try_candidates(Frame& frame) {
  while (frame.next_candidate < frame.candidate_count && left_ > 0) {
    --left_;
    ++frame.nodes;
    const Index32 i = candidates_[frame.candidates + frame.next_candidate++];
    if (place(frame, i)) {
      split(frame);
      return true;
    }
    restore(frame);
    if (!pass(frame, i)) frame.next_candidate = frame.candidate_count;
  }
  return false;
}

// Back to the parent. What its piece was entered with is what is left, but for what was passed.
void ExactTree::leave(bool solved) {
  const Frame& frame = frames_.back();
  if (!solved && rules_.failed && frame.nodes >= kWorthRemembering) {
    for (std::uint32_t k = 0; k < frame.candidate_count; ++k) {
      for (Index32 i = candidates_[frame.candidates + k]; i != kNone; i = later_twin_[i])
        passed_[i] = 0;
    }
    remember_failed(frame.piece);
  }
  candidates_.resize(frame.candidates);
  pieces_.resize(frame.pieces);
  saved_items_.resize(frame.saved_items);
  saved_sections_.resize(frame.saved_sections);
  items_.resize(frame.items_end);
  const std::uint64_t nodes = frame.nodes;
  frames_.pop_back();
  if (!frames_.empty()) frames_.back().nodes += nodes;
}

// Searches the next piece of the last frame; nothing where that is another frame's work.
std::optional<bool> ExactTree::next_piece() {
  Frame& frame = frames_.back();
  const Piece piece = pieces_[frame.pieces + frame.next_piece++];
  if (piece.count > 1) return enter(piece) ? std::nullopt : std::optional(false);
  const Index32 i = items_[piece.items];
  if (passed_[i] != 0) return false;
  offsets_[i] = low_[i];
  low_[i] = kPlaced;
  return true;
}

void ExactTree::start(Rank rank, double noise, std::uint64_t seed) {
  sections_ = first_sections_;
  for (Index32 i = 0; i < count_; ++i) low_[i] = fit(i, part_.start);
  std::fill(passed_.begin(), passed_.end(), std::uint8_t{0});
  frames_.clear();
  candidates_.clear();
  pieces_.clear();
  saved_items_.clear();
  saved_sections_.clear();
  items_.resize(count_);
  std::iota(items_.begin(), items_.end(), 0);
  rank_ = rank;
  for (Index32 i = 0; i < count_; ++i) {
    const std::uint64_t bits = hash_combine(seed, i) >> 11;
    factors_[i] = 1 + noise * (static_cast<double>(bits) * 0x1p-52 - 1);
  }
  left_ = 0;
  solved_.reset();
  const Piece root{0, count_, 0, part_.sections, part_.ring};
  set_ranks(root);
  if (!tighten(items_.data(), count_, root) || !enter(root)) solved_ = false;
}

Answer ExactTree::run(std::uint64_t& nodes, const Budget* budget) {
  left_ = nodes;
  std::uint64_t rounds = 0;
  while (!frames_.empty()) {
    if (++rounds % 256 == 0 && budget != nullptr && budget->expired()) break;
    Frame& frame = frames_.back();
    if (solved_ != true) {
      bool open = true;
      if (solved_ == false) {
        restore(frame);
        open = pass(frame, candidates_[frame.candidates + frame.next_candidate - 1]);
        solved_.reset();
      }
      if (!open || !try_candidates(frame)) {
        if (open && frame.next_candidate < frame.candidate_count) break;  // no nodes are left
        leave(false);
        solved_ = false;
        continue;
      }
    }
    if (frame.next_piece < frame.piece_count) {
      solved_ = next_piece();
    } else {
      leave(true);
      solved_ = true;
    }
  }
  nodes = left_;
  if (!frames_.empty()) return Answer::kOpen;
  return *solved_ ? Answer::kFits : Answer::kRefuted;
}

}  // namespace berth::place
