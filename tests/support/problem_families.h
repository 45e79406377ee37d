#pragma once

#include <berth/place.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

// Families of problems of one lane that are hard for some planner; each from a seed.
namespace berth::test {

// Rows are lower, upper, size.
inline Problem line(std::initializer_list<std::array<std::uint64_t, 3>> rows) {
  Problem problem;
  for (const auto& [lower, upper, size] : rows)
    problem.buffers.push_back({.size = size, .birth = lower, .length = upper - lower});
  return problem;
}

// The smallest problem known whose optimum, 7, lies above its max load, 6.
inline Problem above_max_load() {
  return line({{0, 1, 4}, {0, 4, 1}, {2, 3, 2}, {2, 7, 3}, {3, 10, 1}, {4, 5, 2}, {7, 8, 4}});
}

// Every section is filled to the same load: such problems exceed it most often. Rows in random
// order. No lifetime is longer than `longest` ticks; 0: half of all.
inline Problem filled_problem(std::uint64_t seed, std::uint64_t ticks, Bytes load,
                              std::uint64_t longest = 0) {
  if (longest == 0) longest = ticks / 2;
  std::mt19937_64 random(seed);
  Problem problem;
  std::vector<Bytes> left(ticks, load);
  for (std::uint64_t t = 0; t < ticks; ++t) {
    while (left[t] > 0) {
      std::uint64_t end = t + 1;
      Bytes room = left[t];
      const std::uint64_t length = 1 + random() % longest;
      while (end < ticks && end - t < length && left[end] > 0) room = std::min(room, left[end++]);
      const Bytes size = random() % 3 == 0 ? room : 1 + random() % room;
      for (std::uint64_t x = t; x < end; ++x) left[x] -= size;
      problem.buffers.push_back({.size = size, .birth = t, .length = end - t});
    }
  }
  std::shuffle(problem.buffers.begin(), problem.buffers.end(), random);
  return problem;
}

// A family of problems of about `count` buffers, sizes in bytes.
struct ProblemFamily {
  const char* name;
  // The optimum is max load times this; 0: not known.
  double optimum;
  Problem (*make)(std::uint64_t count, std::uint64_t seed);
};

namespace families {

// Lifetimes nested in one another, the longest the largest (or the smallest).
inline Problem pyramid(std::uint64_t count, std::uint64_t) {
  Problem problem;
  for (std::uint64_t i = 0; i < count; ++i)
    problem.buffers.push_back({.size = count - i, .birth = i, .length = 2 * (count - i)});
  return problem;
}

inline Problem pyramid_upside_down(std::uint64_t count, std::uint64_t) {
  Problem problem;
  for (std::uint64_t i = 0; i < count; ++i)
    problem.buffers.push_back({.size = 1 + i, .birth = i, .length = 2 * (count - i)});
  return problem;
}

// One more is born at each tick as the oldest dies.
inline Problem staircase(std::uint64_t count, std::uint64_t) {
  Problem problem;
  for (std::uint64_t i = 0; i < count; ++i)
    problem.buffers.push_back({.size = 64, .birth = i, .length = 10});
  return problem;
}

inline Problem staircase_of_sizes(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem problem;
  for (std::uint64_t i = 0; i < count; ++i)
    problem.buffers.push_back({.size = 1 + random() % 100, .birth = i, .length = 10});
  return problem;
}

// On a line as many places are enough as are alive at once.
inline Problem equal_sizes(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem problem;
  for (std::uint64_t i = 0; i < count; ++i) {
    problem.buffers.push_back(
        {.size = 512, .birth = random() % (2 * count), .length = 1 + random() % 200});
  }
  return problem;
}

inline Problem all_alive(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem problem;
  for (std::uint64_t i = 0; i < count; ++i) {
    problem.buffers.push_back({.size = 1 + random() % 1'000'000,
                               .birth = random() % count,
                               .length = count + random() % count});
  }
  return problem;
}

// One in twenty is a giant, the others have 4 bytes.
inline Problem crumbs(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem problem;
  for (std::uint64_t i = 0; i < count; ++i) {
    problem.buffers.push_back({.size = i % 20 == 0 ? Bytes{1 + random() % 16} << 20 : 4,
                               .birth = random() % (2 * count),
                               .length = 1 + random() % 100});
  }
  return problem;
}

// Sizes are powers of two, and the larger live the shorter: all of one area, at aligned births.
inline Problem dyadic(std::uint64_t count, std::uint64_t) {
  Problem problem;
  unsigned levels = 1;
  while ((std::uint64_t{2} << levels) - 1 <= count) ++levels;
  for (unsigned level = 0; level < levels; ++level) {
    const std::uint64_t length = std::uint64_t{1} << (levels - 1 - level);
    for (std::uint64_t k = 0; k < std::uint64_t{1} << level; ++k)
      problem.buffers.push_back({.size = Bytes{1} << level, .birth = k * length, .length = length});
  }
  return problem;
}

// The same, several of each level, born at any tick.
inline Problem dyadic_shifted(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr unsigned kLevels = 10;
  Problem problem;
  const std::uint64_t ticks = 8 * count;
  for (std::uint64_t i = 0; i < count; ++i) {
    const unsigned level = static_cast<unsigned>(random() % kLevels);
    problem.buffers.push_back({.size = Bytes{1} << level,
                               .birth = random() % ticks,
                               .length = std::uint64_t{8} << (kLevels - 1 - level)});
  }
  return problem;
}

// A comb, again and again: every other block dies, and a quarter as many of twice the size take the
// bytes of the dead. Robson's adversary, which makes an allocator that cannot look ahead waste
// most.
inline Problem comb(std::uint64_t count, std::uint64_t) {
  std::uint64_t blocks = 4;
  while (4 * blocks + 1 <= 3 * count / 4) blocks *= 4;
  Problem problem;
  std::vector<std::size_t> survivors;
  std::uint64_t tick = 0;
  for (Bytes size = 1; blocks > 0; blocks /= 4, size *= 2) {
    for (std::uint64_t k = 0; k < blocks; ++k) {
      if (k % 2 == 1) survivors.push_back(problem.buffers.size());
      problem.buffers.push_back({.size = size, .birth = tick + k, .length = blocks - k});
    }
    tick += blocks;
  }
  for (const std::size_t i : survivors) problem.buffers[i].length = tick - problem.buffers[i].birth;
  return problem;
}

// On a circle: whole ones, all but one tick, one tick.
inline Problem arcs(std::uint64_t count, std::uint64_t) {
  const std::uint64_t ticks = std::max<std::uint64_t>(count / 3, 2);
  Problem problem{.lanes = {{.period = ticks}}};
  for (std::uint64_t i = 0; i < ticks; ++i) {
    // The one tick that an arc leaves is that of the next arc of one tick, of the same size.
    problem.buffers.push_back({.size = 1 + i % 7, .birth = i, .length = ticks});
    problem.buffers.push_back({.size = 1 + i % 5, .birth = (i + 1) % ticks, .length = ticks - 1});
    problem.buffers.push_back({.size = 1 + i % 5, .birth = i, .length = 1});
  }
  return problem;
}

// Arcs of two thirds of a circle, evenly spread: all conflict, but only two at a tick.
inline Problem thirds(std::uint64_t count, std::uint64_t) {
  Problem problem{.lanes = {{.period = 6}}};
  for (std::uint64_t i = 0; i < count / 3 * 3; ++i)
    problem.buffers.push_back({.size = 1, .birth = i % 3 * 2, .length = 4});
  return problem;
}

// Sums that no double holds: 2^61 bytes in all.
inline Problem huge(std::uint64_t count, std::uint64_t) {
  Problem problem;
  const Bytes size = (Bytes{1} << 61) / count;
  for (std::uint64_t i = 0; i < count; ++i)
    problem.buffers.push_back({.size = size + i, .birth = i, .length = count / 5});
  return problem;
}

// Every section full: by few large ones, or by some dozen.
inline Problem filled_large(std::uint64_t count, std::uint64_t seed) {
  return filled_problem(seed, std::max<std::uint64_t>(count * 5 / 8, 4), 50, 12);
}

inline Problem filled_small(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr Bytes kLoad = 1'000'000;
  Problem problem;
  std::vector<Bytes> left(count, kLoad);
  for (std::uint64_t t = 0; problem.buffers.size() < count; ++t) {
    while (left[t] > 0) {
      std::uint64_t end = t + 1;
      Bytes size = 1 + random() % (kLoad / 8);
      if (left[t] < size + kLoad / 64) size = left[t];
      const std::uint64_t length = 1 + random() % 16;
      while (end < count && end - t < length && left[end] >= size) ++end;
      for (std::uint64_t x = t; x < end; ++x) left[x] -= size;
      problem.buffers.push_back({.size = size, .birth = t, .length = end - t});
    }
  }
  return problem;
}

// A rectangle of time and bytes cut into pieces, so that they fit it: rows in random order.
inline Problem cut_rectangle(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  struct Piece {
    std::uint64_t first, last;
    Bytes begin, end;
  };
  std::vector<Piece> pieces = {{0, 16 * count, 0, 1'000'000}};
  while (pieces.size() < count) {
    const std::size_t i = random() % pieces.size();
    Piece& piece = pieces[i];
    Piece other = piece;
    // The longer side, measured by that of the whole.
    const std::uint64_t ticks = piece.last - piece.first;
    const Bytes bytes = piece.end - piece.begin;
    if (ticks >= 2 && (ticks * 1'000'000 > bytes * 16 * count || bytes < 2)) {
      piece.last = other.first = piece.first + 1 + random() % (ticks - 1);
    } else if (bytes >= 2) {
      piece.end = other.begin = piece.begin + 1 + random() % (bytes - 1);
    } else {
      continue;
    }
    pieces.push_back(other);
  }
  Problem problem;
  for (const Piece& piece : pieces) {
    problem.buffers.push_back({.size = piece.end - piece.begin,
                               .birth = piece.first,
                               .length = piece.last - piece.first});
  }
  std::shuffle(problem.buffers.begin(), problem.buffers.end(), random);
  return problem;
}

// The smallest problem above max load, again and again; the end of one meets the next. Each
// needs 7.
inline Problem sevens(std::uint64_t count, std::uint64_t) {
  Problem problem;
  const Problem seven = above_max_load();
  for (std::uint64_t k = 0; k < count / 7; ++k) {
    for (Buffer buffer : seven.buffers) {
      buffer.birth += 9 * k;
      problem.buffers.push_back(buffer);
    }
  }
  return problem;
}

}  // namespace families

inline const std::vector<ProblemFamily>& problem_families() {
  static const std::vector<ProblemFamily> families = {
      {"pyramid", 1, families::pyramid},
      {"pyramid upside down", 1, families::pyramid_upside_down},
      {"staircase", 1, families::staircase},
      {"staircase, any sizes", 0, families::staircase_of_sizes},
      {"equal sizes", 1, families::equal_sizes},
      {"all alive at once", 1, families::all_alive},
      {"giants and 4-byte crumbs", 0, families::crumbs},
      {"powers of two", 1, families::dyadic},
      {"powers of two, any births", 0, families::dyadic_shifted},
      {"comb", 1, families::comb},
      {"arcs of T, T - 1, 1", 1, families::arcs},
      {"arcs of 2T / 3", 1.5, families::thirds},
      {"sums past 2^53", 0, families::huge},
      {"every section full, large buffers", 0, families::filled_large},
      {"every section full, small buffers", 0, families::filled_small},
      {"a rectangle cut at random", 1, families::cut_rectangle},
      {"seven buffers above max load", 7.0 / 6, families::sevens}};
  return families;
}

}  // namespace berth::test
