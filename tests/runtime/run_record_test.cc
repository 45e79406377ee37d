#include "csrc/runtime/run_record.h"

#include "tests/catch.h"

#include <vector>

using namespace berth;

namespace {

void supply(RunRecord& record) {
  while (record.wants_chunk()) {
    std::shared_ptr<RunRecord::Chunk> chunk = RunRecord::make_chunk();
    record.supply(chunk);
  }
}

void add(RunRecord& record, std::uint64_t count) {
  bool added = true;
  for (std::uint64_t i = 0; i < count; ++i) {
    added = added && record.add({.id = record.end()});
    supply(record);
  }
  REQUIRE(added);
}

std::vector<trace::BlockId> ids(const RunRecord::Share& share) {
  std::vector<trace::BlockId> result;
  share.for_each([&](const RunRecord::Entry& entry) { result.push_back(entry.id); });
  return result;
}

}  // namespace

TEST_CASE("A record without chunks loses entries and says so", "[runtime][learn]") {
  RunRecord record;
  REQUIRE_FALSE(record.add({}));
  REQUIRE(record.end() == 0);
}

TEST_CASE("A record keeps the newest entries within its limit", "[runtime][learn]") {
  RunRecord record;
  supply(record);
  add(record, 3 * RunRecord::kMostEntries);
  REQUIRE(record.chunk_count() == RunRecord::kMostChunks);
  REQUIRE(record.end() == 3 * RunRecord::kMostEntries);
  const std::uint64_t kept = record.end() - record.begin();
  REQUIRE(kept <= RunRecord::kMostEntries);
  REQUIRE(kept >= RunRecord::kMostEntries - 3 * RunRecord::kChunkEntries);
  RunRecord::Share share;
  record.share(0, share);
  REQUIRE(share.size() == kept);
  REQUIRE(ids(share).front() == record.begin());
  REQUIRE(ids(share).back() == record.end() - 1);
}

TEST_CASE("A share stays as it is while the record goes on", "[runtime][learn]") {
  RunRecord record;
  supply(record);
  add(record, 10000);
  RunRecord::Share share;
  record.share(5000, share);
  const std::vector<trace::BlockId> before = ids(share);
  REQUIRE(before.size() == 5000);
  REQUIRE(before.front() == 5000);
  add(record, 2 * RunRecord::kMostEntries);
  REQUIRE(ids(share) == before);
  REQUIRE(record.chunk_count() == RunRecord::kMostChunks);
}

TEST_CASE("Chunks of dropped entries are used again", "[runtime][learn]") {
  RunRecord record;
  supply(record);
  add(record, 10 * RunRecord::kChunkEntries);
  const std::size_t chunks = record.chunk_count();
  record.drop_before(record.end());
  REQUIRE(record.begin() == record.end());
  add(record, 9 * RunRecord::kChunkEntries);
  REQUIRE(record.chunk_count() == chunks);
}
