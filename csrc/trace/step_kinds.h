#pragma once

#include "csrc/trace/run_log.h"
#include "csrc/trace/step.h"
#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace berth {

// One kind of step of one lane: what lies between two marks, told from others by the sizes of its
// requests, and by how much of them outlives it: of micro-batches whose gradients are summed the
// first leaves them alive, and the others free theirs.
//
// Of many kinds that differ in their sizes only, as with inputs of many lengths, one is made: a
// bucket. Each of its requests has the largest size that came, and the least. Of what is more than
// kTrusted times what came twice it has nothing: one step that is far larger than all others makes
// no room for itself.
//
// Time is counted in ticks as in step.h: the k-th request of a step is born at tick k.
struct StepKind {
  struct Request {
    Bytes bytes = 0;           // as asked; in a bucket the most that was, but for what came once
    Bytes least = 0;           // in a bucket less than that; else equal
    Bytes most = 0;            // of a bucket: the most that one step asked
    std::uint32_t length = 0;  // ticks that it lives within its step, at most
    // Of one that outlives its step, ticks of the later ones that it lives into or through: those
    // up to their release, at most, and those behind that.
    std::uint32_t wrapped = 0, behind = 0;
    std::uint16_t seen = 0;    // how often its end is known
    std::uint16_t beyond = 0;  // and was behind the next request in its place
    bool outlives = false;     // its step
    // False: it has no place in a plan, as it is there still when it comes again.
    [[nodiscard]] bool planned() const noexcept { return beyond * kTolerated <= seen; }
    // One in this many may be, and is left to chance: an output that is kept now and then.
    static constexpr std::uint32_t kTolerated = 10;
  };
  static_assert(sizeof(Request) == 48);
  static constexpr Bytes kTrusted = 2;

  std::uint64_t lane = 0;  // trace::Lane::key
  std::uint64_t hash = 0;  // of its requests (see kind_hash()); of a bucket 0
  std::uint64_t seen = 0;  // steps
  // The tick at which a step frees most of what earlier ones left it, and so many bytes. Kinds that
  // begin with more or fewer requests before they do the same have it at different ticks. A kind
  // that frees none of it while others do, as an evaluation does, has it at its end.
  std::uint32_t release = 0;
  Bytes released = 0;
  Bytes outliving = 0;  // bytes of its requests that outlive it
  Bytes load = 0;       // most bytes of it alive at one time; of a bucket, of one of its steps
  std::vector<Request> requests;

  [[nodiscard]] bool bucket() const noexcept { return hash == 0; }
};

// The running hash of the sizes of a step's requests, which starts at 0: what a kind is told by.
[[nodiscard]] std::uint64_t kind_hash(std::uint64_t before, Bytes bytes) noexcept;

// The most bytes of what is planned of one step that live at one time, with what the step before
// left it, or without all that crosses a mark.
[[nodiscard]] Bytes load_of(const StepKind& kind, bool with_crossing = true);

// The steps between the marks of a cycle, as kinds without what is known of their requests.
[[nodiscard]] std::vector<StepKind> steps_of(const Step& cycle);

// The kinds of steps of a run, learnt piece by piece.
//
// Kept are kinds that were seen twice, with what is known of their lifetimes: kMostKinds of them,
// kMostRequests in all (48 MiB); beyond that those go that serve the fewest requests. Where more
// than kMostOfShape steps of a lane differ, but have equally many requests, one bucket stands for
// all of that many requests; where there is one already, beside it, of kMostBesideBucket: the
// shortest inputs often take other kernels, and are few. Not where it would need kMostLoss times
// what the largest of them does: then they are no sizes of one step (two threads that take turns at
// will). Where steps turn out to be others in a row (step_parts.h) the parts are the kinds. Not
// thread-safe.
class StepKinds {
 public:
  static constexpr std::size_t kMostKinds = 64;
  static constexpr std::size_t kMostRequests = std::size_t{1} << 20;
  static constexpr std::size_t kMostOfShape = 8, kMostBesideBucket = 2;
  static constexpr double kMostLoss = 1.5;

  // Takes a piece of a run, cut at the marks of the lane that has most: all that lies between two
  // of O(entries).
  void learn(const Trace& trace);

  // A bucket of `requests` requests was asked for more than it has at one of them, twice.
  void grow(std::uint64_t lane, std::size_t requests, std::size_t index, Bytes bytes) noexcept;

  [[nodiscard]] std::span<const StepKind> kinds() const noexcept { return kinds_; }
  // Whether all of the cycle's lane are steps of it.
  [[nodiscard]] bool are_steps_of(const Step& cycle) const;

 private:
  // Cuts the marked lane's steps into their parts, where it has come to that.
  void divide(const trace::LaneLog& log, std::uint64_t lane, std::vector<trace::Tick>& bounds);
  void merge(StepKind&& kind);
  void make_buckets();
  void forget();

  std::vector<StepKind> kinds_;
  bool divides_ = false;
};

}  // namespace berth
