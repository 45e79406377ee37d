#include "csrc/plan/folder.h"

#include "csrc/core/file.h"
#include "csrc/plan/file.h"
#include "tests/catch.h"
#include "tests/plan/plans.h"
#include "tests/support/temporary_folder.h"

#include <berth/error.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

using namespace berth;
using namespace berth::test;

namespace {

namespace fs = std::filesystem;
using Access = PlanFolder::Access;

trace::Program program_of(const std::string& tag, std::uint32_t rank = 0) {
  return {.torch_version = "2.11.0",
          .device_name = "cpu",
          .device_bytes = Bytes{8} << 30,
          .world_size = 8,
          .rank = rank,
          .tag = tag};
}

// Two requests of one size and the step's own, `gap` bytes apart.
Plan plan_for(Bytes own, Bytes gap = 0, const trace::Program& program = program_of("")) {
  Plan plan = plan_of({sequence(0, {{0, 64, 3}, {64 + gap, own, 2}, {64 + gap, 64, 1}})});
  plan.sequences[0].slots[2].offset = plan.arena_bytes;
  fit(plan);
  plan.program = program;
  return plan;
}

// The same with a second kind of step, which leaves it after the first request.
Plan plan_for_two(Bytes own, Bytes other) {
  Plan plan = plan_for(own);
  plan.sequences[0].slots[0].length = 1;
  plan.sequences.push_back(branch(0, 0, 1, {{0, other, 1}}));
  return fit(plan);
}

// So many kinds of steps of one request, the last of them of `last` bytes.
Plan plan_for_many(std::size_t kinds, Bytes last) {
  std::vector<Sequence> sequences = {sequence(0, {{0, 1000, 1}})};
  for (std::size_t k = 1; k < kinds; ++k)
    sequences.push_back(branch(0, 0, 0, {{0, k + 1 == kinds ? last : 1000 + k, 1}}));
  Plan plan = plan_of(std::move(sequences));
  plan.program = program_of("");
  return plan;
}

PlanFolder folder_at(const std::string& path, const trace::Program& program = program_of(""),
                     Access access = Access::kWrite, PlanFolder::Limits limits = {}) {
  return PlanFolder(path, program, 64, access, limits);
}

std::set<std::string> files_in(const std::string& path) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path))
    names.insert(entry.path().filename().string());
  return names;
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// So many seconds ago it was read and written last.
void age(const std::string& path, std::int64_t seconds) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  const timespec then{info.st_mtime - seconds, 0};
  const timespec times[2] = {then, then};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

// Runs `body(i)` in so many processes that start together; whether all came to its end.
template <class Body>
bool in_processes(int count, const Body& body) {
  int gate[2];
  REQUIRE(::pipe(gate) == 0);
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      char byte = 0;
      (void)!::read(gate[0], &byte, 1);  // until the parent opens the gate
      try {
        body(i);
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  bool all = true;
  for (const pid_t child : children) {
    int status = 1;
    all &= ::waitpid(child, &status, 0) == child && status == 0;
  }
  return all;
}

}  // namespace

TEST_CASE("A plan kept in a folder is found by its program and read back", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder / "plans");
  REQUIRE(plans.list().plans.empty());
  plans.keep(plan_for(1000));
  const PlanFolder::Listing listing = plans.list();
  REQUIRE(listing.plans.size() == 1);
  REQUIRE(listing.problems.empty());
  REQUIRE(listing.plans[0].head == head_of(plan_for(1000)));
  REQUIRE(listing.plans[0].head.kinds.at(0).first == std::vector<Bytes>{64, 1000, 64});
  REQUIRE(plans.read(listing.plans[0]) == plan_for(1000));
}

TEST_CASE("A head tells each kind of step by its first requests", "[plan][folder]") {
  const PlanHead head = head_of(plan_for_two(1000, 2000));
  REQUIRE(head.kind_count == 2);
  REQUIRE(head.kinds[0].first == std::vector<Bytes>{64, 1000, 64});
  REQUIRE(head.kinds[1].first == std::vector<Bytes>{64, 2000});
  REQUIRE(head.kinds[1].requests == 2);
  std::vector<Place> many(1000, {0, 64, 1});
  REQUIRE(head_of(plan_of({sequence(0, many)})).kinds[0].first.size() == PlanHead::kMostFirst);
}

TEST_CASE(
    "What a cycle has between its marks are kinds of steps, and it covers none in other turns",
    "[plan][folder]") {
  // One, one, two: of 1000 bytes and of 2000.
  Plan cycle = plan_of({sequence(
      0, {{0, 1000, 1}, {0, 64, 1}, {0, 1000, 1}, {0, 64, 1}, {0, 2000, 1}, {0, 64, 1}})});
  cycle.sequences[0].marks = {0, 2, 4};
  const PlanHead head = head_of(cycle);
  REQUIRE(head.cycle);
  REQUIRE(head.kind_count == 2);
  REQUIRE(head.kinds[0].first == std::vector<Bytes>{1000, 64});
  REQUIRE(head.kinds[1].first == std::vector<Bytes>{2000, 64});
  const PlanHead one = head_of(plan_of({sequence(0, {{0, 1000, 1}, {0, 64, 1}})}));
  REQUIRE(head.covers(one));
  REQUIRE_FALSE(one.covers(head));
  const PlanHead turns = head_of(plan_of(
      {sequence(0, {{0, 1000, 1}, {0, 64, 1}}), branch(0, 0, 0, {{0, 2000, 1}, {0, 64, 1}})}));
  REQUIRE(turns.covers(head));
  REQUIRE_FALSE(head.covers(turns));
}

TEST_CASE("A head tells a few of many kinds of steps, and nothing is known to cover them",
          "[plan][folder]") {
  constexpr std::size_t kMany = PlanHead::kMostKinds + 1;
  const Plan one = plan_for_many(kMany, 5000), other = plan_for_many(kMany, 7000);
  const Plan few = plan_for_many(kMany - 1, 1000 + kMany - 2);
  const PlanHead head = head_of(one);
  CHECK(head.kinds.size() == PlanHead::kMostKinds);
  CHECK(head.kind_count == kMany);
  CHECK(head_of(few).kinds == head.kinds);
  CHECK(head.covers(head_of(few)));
  CHECK_FALSE(head_of(few).covers(head));
  CHECK_FALSE(head_of(other).covers(head));
  // Each has a kind that the other has not, and no head tells it.
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder / "plans");
  plans.keep(few);
  plans.keep(one);
  plans.keep(other);
  CHECK(plans.list().plans.size() == 2);
  for (const PlanFolder::Found& found : plans.list().plans) {
    const Plan plan = plans.read(found);
    CHECK((plan == one || plan == other));
  }
}

TEST_CASE("A step begins at its mark wherever the plan does", "[plan][folder]") {
  Plan plan = plan_of({sequence(0, {{0, 100, 1}, {0, 200, 1}, {0, 300, 1}})});
  plan.sequences[0].marks = {2};
  REQUIRE(head_of(plan).kinds.at(0).first == std::vector<Bytes>{300, 100, 200});
}

TEST_CASE("A head is of the lane with the most slots", "[plan][folder]") {
  const PlanHead head = head_of(golden_plan());
  REQUIRE(head.kinds.size() == 2);
  REQUIRE(head.kinds[0].lane_key == 77);
  REQUIRE(head.kinds[1].first == std::vector<Bytes>{64, 30, 64});
}

TEST_CASE("Plans of another torch or device or tag are not found", "[plan][folder]") {
  const TemporaryFolder folder;
  folder_at(folder.path()).keep(plan_for(1000));
  trace::Program other = program_of("");
  SECTION("torch") { other.torch_version = "2.12.0"; }
  SECTION("device") { other.device_name = "NVIDIA H100 80GB HBM3"; }
  SECTION("tag") { other.tag = "nightly"; }
  const PlanFolder::Listing listing = folder_at(folder.path(), other).list();
  REQUIRE(listing.plans.empty());
  REQUIRE(listing.opened == 0);
}

TEST_CASE("Ranks that do the same share a plan", "[plan][folder]") {
  const TemporaryFolder folder;
  for (std::uint32_t rank = 0; rank < 8; ++rank)
    folder_at(folder.path(), program_of("", rank)).keep(plan_for(1000, 0, program_of("", rank)));
  REQUIRE(files_in(folder.path()).size() == 1);
  REQUIRE(folder_at(folder.path(), program_of("", 7)).list().plans.size() == 1);
}

TEST_CASE("A rank tries its own plan before those of others", "[plan][folder]") {
  const TemporaryFolder folder;
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    folder_at(folder.path()).keep(plan_for(1000 + rank, 0, program_of("", rank)));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const auto listing = folder_at(folder.path(), program_of("", rank)).list();
    REQUIRE(listing.plans.size() == 4);
    REQUIRE(listing.plans[0].head.program.rank == rank);
  }
}

TEST_CASE("Of plans for the same requests the smallest stays", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for(1000, 128));
  plans.keep(plan_for(1000));
  REQUIRE(plans.list().plans.at(0).head.arena_bytes == plan_for(1000).arena_bytes);
  REQUIRE(files_in(folder.path()).size() == 1);
  plans.keep(plan_for(1000, 64));
  REQUIRE(plans.list().plans.at(0).head.arena_bytes == plan_for(1000).arena_bytes);
  REQUIRE(files_in(folder.path()).size() == 1);
}

TEST_CASE("Of plans for the same requests the one that serves most stays and comes back",
          "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  const Plan good = plan_for(1000, 128);
  // The largest block, or all of them, are left to the pool: a smaller arena, or none.
  Plan bad = plan_for(1000);
  bad.sequences[0].slots[1].offset = Slot::kUnplanned;
  bad.sequences[0].slots[2].offset = 64;
  fit(bad);
  REQUIRE(bad.arena_bytes < good.arena_bytes);
  Plan none = bad;
  for (Slot& slot : none.sequences[0].slots) slot.offset = Slot::kUnplanned;
  fit(none);
  const auto kept = [&] {
    REQUIRE(files_in(folder.path()).size() == 1);
    return plans.read(plans.list().plans.at(0));
  };
  for (const Plan& other : {bad, none}) {
    plans.keep(good);
    plans.keep(other);
    REQUIRE(kept() == good);
  }
  fs::remove(folder / *files_in(folder.path()).begin());
  plans.keep(none);
  REQUIRE(files_in(folder.path()).empty());
  plans.keep(bad);
  REQUIRE(kept() == bad);
  plans.keep(good);
  REQUIRE(kept() == good);
}

TEST_CASE("A plan of more kinds of steps leaves one that serves more of a kind", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  const Plan one = plan_for(1000);
  Plan two = plan_for_two(1000, 2000);
  SECTION("where it leaves a block of it to the pool") {
    two.sequences[0].slots[2].offset = Slot::kUnplanned;
    fit(two);
    for (int i = 0; i < 2; ++i) {
      plans.keep(one);
      plans.keep(two);
      REQUIRE(files_in(folder.path()).size() == 2);
    }
  }
  SECTION("but not where it leaves blocks of others to the pool") {
    two.sequences[1].slots[0].offset = Slot::kUnplanned;
    fit(two);
    plans.keep(one);
    plans.keep(two);
    REQUIRE(files_in(folder.path()).size() == 1);
    REQUIRE(plans.read(plans.list().plans.at(0)) == two);
  }
}

TEST_CASE("A head tells how many bytes a plan serves of each kind", "[plan][folder]") {
  Plan two = plan_for_two(1000, 2000);
  const PlanHead all = head_of(two);
  REQUIRE(all.kinds.at(0).planned_bytes == 64 + 1024 + 64);
  REQUIRE(all.kinds.at(1).planned_bytes == 64 + 2048);
  REQUIRE(all.planned_bytes == 2 * 64 + 1024 + 64 + 2048);
  two.sequences[0].slots[1].offset = Slot::kUnplanned;
  const PlanHead some = head_of(fit(two));
  REQUIRE(some.kinds.at(0).planned_bytes == 2 * 64);
  REQUIRE(some.kinds.at(1) == all.kinds.at(1));
  REQUIRE(all.plans_as_much_as(some));
  REQUIRE_FALSE(some.plans_as_much_as(all));
  // Of two equal steps in turns the one that is served less; and what other lanes do.
  Plan turns = plan_of({sequence(0, {{0, 64, 1}, {64, 100, 1}, {0, 64, 1}, {64, 100, 1}}),
                        sequence(1, {{192, 64, 1}})});
  turns.sequences[0].marks = {0, 2};
  REQUIRE(head_of(turns).kinds.at(0).planned_bytes == 64 + 128 + 64);
  turns.sequences[0].slots[3].offset = Slot::kUnplanned;
  REQUIRE(head_of(fit(turns)).kinds.at(0).planned_bytes == 64 + 64);
  REQUIRE(head_of(turns).planned_bytes == 64 + 64);
}

TEST_CASE("A plan of more kinds of steps takes the place of those that it covers",
          "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  Plan one = plan_for(1000);
  plans.keep(one);
  plans.keep(plan_for(3000));
  plans.keep(plan_for_two(1000, 2000));
  REQUIRE(files_in(folder.path()).size() == 2);
  plans.keep(one);
  REQUIRE(files_in(folder.path()).size() == 2);
  const auto listing = plans.list();
  REQUIRE(std::any_of(listing.plans.begin(), listing.plans.end(), [](const auto& found) {
    return found.head == head_of(plan_for_two(1000, 2000));
  }));
}

TEST_CASE("A plan that is kept or read again counts as used now", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for(1000));
  const auto found = plans.list().plans.at(0);
  const std::string file = folder / found.file;
  const auto used = [&] {
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    return info.st_mtime;
  };
  const auto written = used();
  age(file, 1000);
  SECTION("kept") {
    plans.keep(plan_for(1000));
    REQUIRE(used() >= written);
  }
  SECTION("read") {
    (void)plans.read(found);
    REQUIRE(used() >= written);
  }
  SECTION("but not by who only reads") {
    (void)folder_at(folder.path(), program_of(""), Access::kRead).read(found);
    REQUIRE(used() == written - 1000);
  }
}

TEST_CASE("Who only reads writes nothing and misses a folder that is not there", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder reader = folder_at(folder / "plans", program_of(""), Access::kRead);
  REQUIRE_THROWS_WITH(reader.list(), "there is no folder of plans at '" + folder / "plans" + "'");
  reader.keep(plan_for(1000));
  REQUIRE(files_in(folder.path()).empty());
}

TEST_CASE("Beyond its limits a folder loses what was used longest ago", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder::Limits limits;
  SECTION("of plans") { limits.plans = 3; }
  SECTION("of bytes") { limits.bytes = 4 * serialize_plan(plan_for(1000)).size(); }
  PlanFolder plans = folder_at(folder.path(), program_of(""), Access::kWrite, limits);
  std::vector<std::string> names;
  for (int i = 0; i < 6; ++i) {
    const std::set<std::string> before = files_in(folder.path());
    plans.keep(plan_for(1000 + static_cast<Bytes>(i), 0, program_of(i % 2 == 0 ? "" : "other")));
    for (const std::string& name : files_in(folder.path())) {
      if (before.contains(name)) continue;
      names.push_back(name);
      age(folder / name, 1000 - 100 * i);
    }
  }
  REQUIRE(names.size() == 6);
  const std::set<std::string> left = files_in(folder.path());
  REQUIRE(left.size() == 3);
  for (int i = 3; i < 6; ++i) REQUIRE(left.contains(names[static_cast<std::size_t>(i)]));
}

TEST_CASE("What is not a plan of ours is left alone", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path(), program_of(""), Access::kWrite, {.plans = 1});
  plans.keep(plan_for(1000));
  const std::string ours = *files_in(folder.path()).begin();
  const std::string like_ours = "berth-0123456789abcdef-0123456789abcdef-0123456789abcdef.plan";
  const std::string their_temporary = ours + ".12.0.tmp.old";
  for (const std::string& name :
       {std::string("notes.txt"), std::string("my.plan"), like_ours, their_temporary}) {
    write_text(folder / name, "buy milk\n");
    age(folder / name, 1'000'000);
  }
  fs::create_directory(folder / "berth-0123456789abcdef-0123456789abcdef-0123456789abcde0.plan");
  write_plan(folder / "mine.plan", plan_for(5000));
  age(folder / "mine.plan", 1'000'000);
  const std::set<std::string> before = files_in(folder.path());
  plans.keep(plan_for(2000));
  std::set<std::string> after = files_in(folder.path());
  REQUIRE(after.size() == before.size());
  REQUIRE_FALSE(after.contains(ours));
  for (const std::string& name : before)
    if (name != ours) REQUIRE(after.contains(name));
}

TEST_CASE("What a writer left half written long ago goes", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for(1000));
  const std::string ours = *files_in(folder.path()).begin();
  write_text(folder / (ours + ".12.0.tmp"), "BERTHPLN");
  write_text(folder / (ours + ".13.0.tmp"), "BERTHPLN");
  age(folder / (ours + ".12.0.tmp"), 100'000);
  plans.keep(plan_for(2000));
  REQUIRE_FALSE(fs::exists(folder / (ours + ".12.0.tmp")));
  REQUIRE(fs::exists(folder / (ours + ".13.0.tmp")));
}

TEST_CASE("A plan of another name is found where it has a head", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for(1000));
  fs::rename(folder / *files_in(folder.path()).begin(), folder / "best.plan");
  write_plan(folder / "headless.plan", plan_for(2000));
  const PlanFolder::Listing listing = plans.list();
  REQUIRE(listing.plans.size() == 1);
  REQUIRE(plans.read(listing.plans[0]) == plan_for(1000));
}

TEST_CASE("A program opens no more than its own plans and a bounded number of those",
          "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path(), program_of(""), Access::kWrite, {.plans = 2000});
  const int own = GENERATE(3, 256, 700);
  plans.keep(plan_for(1000));
  const std::string file = *files_in(folder.path()).begin();
  for (int i = 1; i < 1000; ++i)
    fs::create_hard_link(
        folder / file, folder / fmt::format("{}{:016x}{}", i < own ? file.substr(0, 23) : "berth-",
                                            i, file.substr(i < own ? 39 : 22)));
  REQUIRE(files_in(folder.path()).size() == 1000);
  const PlanFolder::Listing listing = plans.list();
  REQUIRE(listing.plans.size() == std::min<std::size_t>(static_cast<std::size_t>(own), 512));
  REQUIRE(listing.opened == listing.plans.size());
  REQUIRE(listing.read <= Bytes{8} << 20);
}

TEST_CASE("A damaged plan is refused and another is kept beside it or in its place",
          "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for(1000));
  const auto found = plans.list().plans.at(0);
  std::vector<std::byte> bytes = read_file(folder / found.file, Bytes{1} << 20);
  bytes[bytes.size() - 20] ^= std::byte{1};
  write_file_atomically(folder / found.file, bytes);
  REQUIRE(plans.list().plans.size() == 1);
  REQUIRE_THROWS_WITH(plans.read(found), Catch::Matchers::Contains("is damaged"));
  SECTION("a larger one") { plans.keep(plan_for(1000, 64)); }
  SECTION("the same") { plans.keep(plan_for(1000)); }
  bool whole = false;
  for (const auto& other : plans.list().plans) {
    try {
      (void)plans.read(other);
      whole = true;
    } catch (const Error&) {
    }
  }
  REQUIRE(whole);
}

TEST_CASE("A plan with any bit flipped is written anew by who learns it", "[plan][folder]") {
  const TemporaryFolder folder;
  folder_at(folder.path()).keep(plan_for_two(1000, 2000));
  const std::string file = folder / *files_in(folder.path()).begin();
  const std::vector<std::byte> good = read_file(file, Bytes{1} << 20);
  for (std::size_t bit = 0; bit < 8 * good.size(); bit += 3) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    write_file_atomically(file, bad);
    folder_at(folder.path()).keep(plan_for_two(1000, 2000));
    CAPTURE(bit);
    REQUIRE(read_file(file, Bytes{1} << 20) == good);
  }
}

TEST_CASE("A head with any bit flipped leads to a refusal or to no plan", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for_two(1000, 2000));
  const std::string file = folder / *files_in(folder.path()).begin();
  const std::vector<std::byte> good = read_file(file, Bytes{1} << 20);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    const int fd = ::open(file.c_str(), O_WRONLY | O_TRUNC);
    REQUIRE(::write(fd, bad.data(), bad.size()) == static_cast<ssize_t>(bad.size()));
    ::close(fd);
    for (const auto& found : plans.list().plans)
      REQUIRE_THROWS_AS(folder_at(folder.path()).read(found), Error);
  }
}

TEST_CASE("A head that is cut anywhere is no plan", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for(1000));
  const std::string file = folder / *files_in(folder.path()).begin();
  const Bytes size = fs::file_size(file);
  for (Bytes left = size; left-- > 0;) {
    fs::resize_file(file, left);
    for (const auto& found : plans.list().plans)
      REQUIRE_THROWS_AS(folder_at(folder.path()).read(found), Error);
  }
}

TEST_CASE("A plan whose head is that of another is refused", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  const PlanHead other = head_of(plan_for(2000));
  write_file_atomically(folder / "forged.plan", serialize_plan(plan_for(1000), &other));
  REQUIRE_THROWS_WITH(plans.read(plans.list().plans.at(0)),
                      Catch::Matchers::Contains("its head is not that of its requests"));
}

TEST_CASE("A head that claims more than its plan serves is refused", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  PlanHead head = head_of(plan_for(1000));
  bool legal = false;
  SECTION("of a kind") { ++head.kinds[0].planned_bytes; }
  SECTION("of all") { ++head.planned_bytes; }
  SECTION("but one of before these were written is not") {
    head.planned_bytes = head.kinds[0].planned_bytes = 0;
    legal = true;
  }
  write_file_atomically(folder / "forged.plan", serialize_plan(plan_for(1000), &head));
  const auto found = plans.list().plans.at(0);
  if (legal) {
    REQUIRE(plans.read(found) == plan_for(1000));
  } else {
    REQUIRE_THROWS_WITH(plans.read(found),
                        Catch::Matchers::Contains("its head is not that of its requests"));
  }
}

TEST_CASE("A plan that another rank writes anew before it is read is read", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder / "plans/");
  plans.keep(plan_for(1000));
  const auto found = plans.list().plans.at(0);
  fs::remove(folder / ("plans/" + found.file));
  const Plan other = plan_for(1000, 0, program_of("", 5));
  folder_at(folder / "plans").keep(other);
  REQUIRE(fs::exists(folder / ("plans/" + found.file)));
  REQUIRE(plans.read(found) == other);
}

TEST_CASE("A plan that cannot be opened is named and the others are found", "[plan][folder]") {
  const TemporaryFolder folder;
  PlanFolder plans = folder_at(folder.path());
  plans.keep(plan_for(1000));
  std::string name = *files_in(folder.path()).begin();
  name[name.size() - 6] = name[name.size() - 6] == '0' ? '1' : '0';
  fs::create_directory(folder / name);
  const PlanFolder::Listing listing = plans.list();
  REQUIRE(listing.plans.size() == 1);
  REQUIRE(listing.problems.size() == 1);
  REQUIRE_THAT(listing.problems[0], Catch::Matchers::Contains("is not a regular file"));
}

TEST_CASE("A folder that cannot be made or read is one error", "[plan][folder]") {
  const TemporaryFolder folder;
  write_text(folder / "file", "");
  PlanFolder plans = folder_at(folder / "file/plans");
  REQUIRE_THROWS_WITH(plans.keep(plan_for(1000)),
                      Catch::Matchers::Contains("cannot make the folder of plans"));
  REQUIRE_THROWS_WITH(folder_at(folder / "file").list(),
                      Catch::Matchers::Contains("cannot read the folder of plans"));
}

TEST_CASE("On a full disk nothing is left of a plan", "[plan][folder]") {
  const TemporaryFolder folder;
  folder_at(folder.path()).keep(plan_for(1000));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      folder_at(folder.path()).keep(plan_for(2000));
      ::_exit(1);
    } catch (const Error& error) {
      ::_exit(error.kind() == ErrorKind::kSystem ? 0 : 1);
    }
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(files_in(folder.path()).size() == 1);
  REQUIRE(folder_at(folder.path()).list().plans.size() == 1);
}

TEST_CASE("Eight processes that keep their plans at once leave the smallest, whole",
          "[plan][folder]") {
  const TemporaryFolder folder;
  const std::string path = folder / "plans";
  REQUIRE(in_processes(8, [&](int i) {
    for (int round = 0; round < 8; ++round) {
      PlanFolder plans = folder_at(path, program_of("", static_cast<std::uint32_t>(i)));
      plans.keep(plan_for(1000, 64 * static_cast<Bytes>((i + round) % 8)));
      for (const auto& found : plans.list().plans) {
        try {
          (void)plans.read(found);
        } catch (const Error&) {
          if (fs::exists(path + "/" + found.file)) throw;  // else a smaller one took its place
        }
      }
    }
  }));
  REQUIRE(files_in(path).size() == 1);
  PlanFolder plans = folder_at(path);
  REQUIRE(plans.read(plans.list().plans.at(0)).arena_bytes == plan_for(1000).arena_bytes);
}

TEST_CASE("Processes of many programs keep to the folder's limit", "[plan][folder]") {
  const TemporaryFolder folder;
  REQUIRE(in_processes(8, [&](int i) {
    for (int round = 0; round < 5; ++round)
      folder_at(folder.path(), program_of(""), Access::kWrite, {.plans = 16})
          .keep(plan_for(static_cast<Bytes>(1000 + 100 * i + round)));
  }));
  const std::size_t left = files_in(folder.path()).size();
  REQUIRE(left <= 16);
  REQUIRE(left >= 1);
  REQUIRE(folder_at(folder.path()).list().plans.size() == left);
}
