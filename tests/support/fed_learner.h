#pragma once

#include "csrc/core/checksum.h"
#include "csrc/runtime/learner.h"
#include "tests/support/small_step.h"

#include <memory>
#include <optional>
#include <vector>

namespace berth::test {

// A learner that gets its chunks whenever it wants them, as run_errands() would bring them.
struct FedLearner {
  FedLearner() {
    learner.start();
    feed();
  }
  void feed() {
    if (learner.has_waste()) (void)learner.take_waste();
    while (learner.wants_chunk()) {
      std::shared_ptr<RunRecord::Chunk> chunk = RunRecord::make_chunk();
      learner.supply(chunk);
    }
  }
  // A request that is freed at once.
  void request(Bytes bytes, LaneKey lane = 0) {
    learner.request(++last, bytes, lane, 0);
    learner.free(last);
    feed();
  }
  // Returns from where to search, where that is worth it.
  std::optional<std::uint64_t> step(const std::vector<Operation>& operations, LaneKey lane = 0) {
    struct Memory {
      FedLearner& fed;
      LaneKey lane;
      void* allocate(Bytes bytes) {
        fed.learner.request(++fed.last, bytes, lane, 0);
        fed.feed();
        return reinterpret_cast<void*>(fed.last);
      }
      void free(void* block) { fed.learner.free(reinterpret_cast<trace::BlockId>(block)); }
    };
    run_step(operations, Memory{*this, lane});
    const std::optional<Learner::Find> find = learner.mark(lane);
    feed();
    if (find) last_search = find->search;
    return find ? std::optional(find->from) : std::nullopt;
  }
  Learner::Excerpt excerpt(std::uint64_t from) {
    Learner::Excerpt result;
    learner.excerpt(from, result);
    return result;
  }
  // Searches by period, in vain, until it gives up or `requests` of random sizes were made.
  unsigned search_in_vain(std::uint64_t requests, std::uint64_t seed = 1) {
    unsigned searches = 0;
    for (std::uint64_t i = 0; i < requests && learner.records(); ++i) {
      request(1 + hash_combine(seed, i) % 100000);
      if (!learner.worth_searching()) continue;
      ++searches;
      learner.searching(Learner::Search::kByPeriod);
      learner.in_vain();
      feed();
    }
    return searches;
  }

  Learner learner;
  Learner::Search last_search = Learner::Search::kAtMarks;
  trace::BlockId last = 0;
};

}  // namespace berth::test
