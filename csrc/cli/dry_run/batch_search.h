#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace berth::cli {

// Finds the largest batch that is within a limit under each of several allocators, by running few:
// what is measured for one tells of the others, too.
//
// Need grows about as a straight line, so a try is where the line meets the limit: the line through
// one measure and what does not grow with the batch, then the one through the two measures that
// enclose the limit, or are nearest to it. From there, since need goes by pages and segments, in
// steps that double until the limit lies between two measures, and are halved at last. First all
// are found within a hundredth, then exactly, up to `few_runs`. Where more runs would be wanted
// than there are, each goes to the allocator whose answer is the least certain.
//
// Where need falls with a larger batch now and then, as segments are rounded, it is the largest of
// those measured. A program that refuses a batch may want multiples: those of a power of two that
// divides the batch that it was given are tried, and where one runs above what was refused, no
// others.
class BatchSearch {
 public:
  // What each allocator needs, in order; nothing where that cannot be known.
  using Needs = std::vector<std::optional<Bytes>>;
  // Runs the program; nothing where it refuses the batch.
  using Measure = std::function<std::optional<Needs>(std::uint64_t batch)>;

  struct Options {
    Bytes limit = 0;
    Bytes fixed = 0;          // of the need: what certainly does not grow with the batch
    unsigned most_runs = 16;  // calls of Measure, at most
    unsigned few_runs = 8;    // after which a hundredth is near enough; no more than most_runs
    std::uint64_t first = 1;  // where to begin; at least 1
    std::optional<Needs> first_needs = {};  // where that was run already
  };

  struct Answer {
    std::uint64_t largest = 0;  // that fits; 0: none does
    // The next one that was measured: too large, or refused by the program.
    std::optional<std::uint64_t> smallest_too_large, refused;
    std::uint64_t step = 1;  // of the batches that were tried
    bool exact = false;      // largest + step does not fit, or is refused
    bool flat = false;       // the need does not grow with the batch
  };

  static constexpr std::uint64_t kMostBatch = std::uint64_t{1} << 40;

  BatchSearch(const Options& options, Measure measure);

  // One for each allocator; nothing for those whose need is not known at some batch.
  [[nodiscard]] std::vector<std::optional<Answer>> find();
  [[nodiscard]] unsigned runs() const noexcept { return runs_; }
  // Whether the program ran with any batch, and the first that it refused.
  [[nodiscard]] bool ran() const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> refused() const noexcept { return first_refused_; }

 private:
  // The limit lies between them: the largest that fits, the next that does not; 0: none.
  struct Ends {
    std::uint64_t fits = 0, too_large = 0;
  };
  // How the search of one allocator goes.
  struct Course {
    bool known = true;  // at every batch that ran
    bool last_fitted = false;
    std::uint64_t last = 0;   // that moved an end
    std::uint64_t reach = 1;  // the least way to go from an end; grows while tries near it fail
  };

  [[nodiscard]] Ends ends_of(std::size_t allocator) const;
  [[nodiscard]] bool is_close(std::size_t allocator, std::uint64_t share) const;
  [[nodiscard]] bool is_flat(std::size_t allocator) const;
  // How far apart the ends are, as a share of what fits: infinity where one is not known.
  [[nodiscard]] double openness(std::size_t allocator) const;
  [[nodiscard]] std::optional<double> crossing(std::size_t allocator, const Ends& ends) const;
  [[nodiscard]] std::uint64_t next_try(std::size_t allocator) const;
  void run(std::uint64_t batch, std::size_t allocator);  // made for that one
  // What the program may want multiples of, that refused too_large: the least first.
  [[nodiscard]] std::vector<std::uint64_t> multiples(const Ends& ends) const;
  // A try that shows whether it does.
  [[nodiscard]] std::optional<std::uint64_t> try_multiple(const Ends& ends) const;
  void look_for_multiples();
  void judge(std::size_t allocator, std::uint64_t batch, bool own);

  Options options_;
  Measure measure_;
  std::map<std::uint64_t, std::optional<Needs>> known_;  // nothing: refused
  std::vector<Course> courses_;
  std::uint64_t step_ = 1;
  std::uint64_t multiple_ = 1;  // the most that it may want multiples of; 1: it wants none
  unsigned runs_ = 0;
  std::optional<std::uint64_t> first_refused_;
};

}  // namespace berth::cli
