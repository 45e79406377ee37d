#include "csrc/plan/file.h"

#include "csrc/core/checksum.h"
#include "csrc/core/file.h"
#include "csrc/plan/generated/plan_generated.h"
#include "csrc/plan/lookup.h"
#include "csrc/plan/section_file.h"
#include "csrc/plan/verify.h"
#include "tests/catch.h"
#include "tests/plan/plans.h"
#include "tests/support/temporary_folder.h"

#include <berth/error.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

using namespace berth;
using namespace berth::test;

namespace {

using File = std::vector<std::byte>;

std::string refusal(const File& file) {
  try {
    (void)parse_plan(file, "x.plan");
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "none";
}

template <class Value>
void store(File& file, std::size_t offset, Value value) {
  std::memcpy(file.data() + offset, &value, sizeof value);
}

// Makes the frame whole again, so that what is wrong inside is found by what looks inside.
File repaired(File file) {
  const std::size_t end = file.size() - 8;
  store(file, 24, std::uint64_t{file.size()});
  store(file, end, checksum(std::span(file).first(end)));
  return file;
}

File with(std::size_t offset, std::uint32_t value) {
  File file = serialize_plan(golden_plan());
  store(file, offset, value);
  return repaired(file);
}

// A file of the small plan's sections and more.
File with_section(std::uint32_t type, bool required) {
  const File file = serialize_plan(golden_plan());
  const SectionType known[] = {SectionType::kSummary, SectionType::kLayout};
  std::vector<Section> sections = read_sections(file, known, "x.plan");
  sections.push_back({static_cast<SectionType>(type), required, std::span(file).first(100)});
  return write_sections(sections);
}

// A file whose layout is made by hand, as no plan of ours would be.
File with_layout(const std::function<void(flatbuffers::FlatBufferBuilder&)>& make) {
  const File file = serialize_plan(golden_plan());
  const SectionType known[] = {SectionType::kSummary, SectionType::kLayout};
  std::vector<Section> sections = read_sections(file, known, "x.plan");
  flatbuffers::FlatBufferBuilder builder;
  make(builder);
  sections[1].content = {reinterpret_cast<const std::byte*>(builder.GetBufferPointer()),
                         builder.GetSize()};
  return write_sections(sections);
}

}  // namespace

TEST_CASE("A plan is read back from its file as it was written", "[plan][file]") {
  const TemporaryFolder folder;
  const Plan plan = golden_plan();
  REQUIRE(verify(plan) == std::nullopt);
  write_plan(folder / "a.plan", plan);
  REQUIRE(read_plan(folder / "a.plan") == plan);
  REQUIRE(read_file(folder / "a.plan", 10000) == serialize_plan(plan));
  REQUIRE(parse_plan(serialize_plan(Plan{}), "empty") == Plan{});
}

TEST_CASE("The golden file of plan format 1 is read and written to the byte", "[plan][file]") {
  const std::string path = std::string(BERTH_TEST_DATA) + "/format1.plan";
  REQUIRE(read_plan(path) == golden_plan());
  REQUIRE(read_file(path, 10000) == serialize_plan(golden_plan()));
}

TEST_CASE("A plan file with any bit flipped is refused", "[plan][file]") {
  const File good = serialize_plan(golden_plan());
  REQUIRE(refusal(good) == "none");
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    File bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    if (refusal(bad) == "none") FAIL("bit " << bit);
  }
}

TEST_CASE("A plan file cut anywhere or longer than it was is refused", "[plan][file]") {
  const File good = serialize_plan(golden_plan());
  for (std::size_t size = 0; size < good.size(); ++size) {
    const File cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    if (refusal(cut) == "none") FAIL("cut at " << size);
  }
  File longer = good;
  longer.push_back(std::byte{0});
  REQUIRE(refusal(longer) == "'x.plan' is damaged: it has " + std::to_string(longer.size()) +
                                 " bytes and should have " + std::to_string(good.size()));
}

TEST_CASE("What is no whole plan file is refused with its reason", "[plan][file]") {
  REQUIRE(refusal({}) == "'x.plan' is not a plan file");
  REQUIRE(refusal(File(100, std::byte{'{'})) == "'x.plan' is not a plan file");
  File file = serialize_plan(golden_plan());
  file.resize(20);
  REQUIRE(refusal(file) == "'x.plan' is damaged: 20 bytes are less than a header");
  file = serialize_plan(golden_plan());
  file[200] ^= std::byte{1};
  REQUIRE(refusal(file) == "'x.plan' is damaged: its checksum differs");
}

TEST_CASE("Another format is refused naming both versions", "[plan][file]") {
  REQUIRE(refusal(with(8, 2)) == "'x.plan' has plan format 2, this berth reads format 1");
  REQUIRE(refusal(with(8, 0)) == "'x.plan' has plan format 0, this berth reads format 1");
}

TEST_CASE("Other rules of alignment or rounding are refused", "[plan][file]") {
  REQUIRE(refusal(with(12, 2)) ==
          "'x.plan' was made under alignment rule 2, this berth has rule 1");
  REQUIRE(refusal(with(16, 3)) == "'x.plan' was made under rounding rule 3, this berth has rule 1");
}

TEST_CASE("An unknown section is ignored where optional and refused where required",
          "[plan][file]") {
  REQUIRE(parse_plan(with_section(9, false), "x.plan") == golden_plan());
  REQUIRE(refusal(with_section(9, true)) ==
          "'x.plan' needs a newer berth: section 2 of type 9 is required and not known");
  // The reserved one, for actions at a tick.
  REQUIRE(refusal(with_section(3, true)) ==
          "'x.plan' needs a newer berth: section 2 of type 3 is required and not known");
}

TEST_CASE("Sections that are missing or repeated or out of place are refused", "[plan][file]") {
  REQUIRE(refusal(with_section(2, true)) == "'x.plan' is malformed: two sections of type 2");
  REQUIRE(refusal(write_sections({})) == "'x.plan' is malformed: it has no section of type 1");
  REQUIRE(refusal(with(20, 65)) == "'x.plan' is malformed: 65 sections, the limit is 64");
  REQUIRE_THAT(refusal(with(20, 64)),
               Catch::Matchers::Contains("'x.plan' is malformed: 64 sections in "));
  REQUIRE_THAT(refusal(with(40, 72)),
               Catch::Matchers::Contains("'x.plan' is malformed: section 0 has ") &&
                   Catch::Matchers::Contains(" bytes at 72, free are [80, "));
  REQUIRE_THAT(refusal(with(40, 84)), Catch::Matchers::Contains(" bytes at 84, free are [80, "));
  REQUIRE_THAT(refusal(with(44, 1)), Catch::Matchers::Contains(" bytes at 4294967376, free are "));
  REQUIRE_THAT(refusal(with(52, 0xFFFFFFFF)), Catch::Matchers::Contains("section 0 has 184467440"));
  REQUIRE(refusal(with(48, 8)) ==
          "'x.plan' is malformed: section of type 1 does not hold together");
}

TEST_CASE("Counts are refused before anything of their size is made", "[plan][file]") {
  namespace fb = berth::plan_file;
  // A few bytes that name the same slots again and again.
  const auto repeat = [](std::size_t slots_each, std::size_t sequences) {
    return with_layout([=](flatbuffers::FlatBufferBuilder& to) {
      const std::vector<fb::Slot> slots(slots_each, fb::Slot(0, 64, 1, 0));
      const auto shared = to.CreateVectorOfStructs(slots);
      const std::vector<flatbuffers::Offset<fb::Sequence>> all(
          sequences, fb::CreateSequence(to, 0, -1, 0, 0, shared));
      to.Finish(fb::CreateLayout(to, 0, to.CreateVector(all)));
    });
  };
  REQUIRE(refusal(repeat(300, 60000)) ==
          "'x.plan' is malformed: 16777500 slots or more, the limit is 16777216");
  REQUIRE(refusal(repeat(1, 65536)) ==
          "'x.plan' holds no legal plan: the first of the strings is not the empty one");
  REQUIRE_THAT(refusal(repeat(1, 65537)), Catch::Matchers::Contains("is malformed: "));
  REQUIRE(refusal(with_layout([](flatbuffers::FlatBufferBuilder& to) {
            to.Finish(fb::CreateLayout(to, to.CreateVector(std::vector<std::uint64_t>(4097))));
          })) == "'x.plan' is malformed: 4097 lanes or more, the limit is 4096");
  REQUIRE(refusal(with_layout([](flatbuffers::FlatBufferBuilder& to) {
            const auto marks = to.CreateVector(std::vector<std::uint32_t>(1 << 20));
            const std::vector<flatbuffers::Offset<fb::Sequence>> all(
                17, fb::CreateSequence(to, 0, -1, 0, marks));
            to.Finish(fb::CreateLayout(to, 0, to.CreateVector(all)));
          })) == "'x.plan' is malformed: 17825792 marks or more, the limit is 16777216");
  REQUIRE(refusal(with_layout([](flatbuffers::FlatBufferBuilder& to) {
            const std::vector<fb::Edge> edges(262145);
            to.Finish(fb::CreateLayout(to, 0, 0, to.CreateVectorOfStructs(edges)));
          })) == "'x.plan' is malformed: 262145 edges or more, the limit is 262144");
  REQUIRE(refusal(with_layout([](flatbuffers::FlatBufferBuilder& to) {
            const std::vector<flatbuffers::Offset<flatbuffers::String>> strings(
                1000, to.CreateString(std::string(99'999, 'x')));
            to.Finish(fb::CreateLayout(to, 0, 0, 0, to.CreateVector(strings)));
          })) == "'x.plan' is malformed: 67200000 bytes of strings or more, the limit is 67108864");
}

TEST_CASE("A table whose numbers lie where they cannot be read is refused", "[plan][file]") {
  namespace fb = berth::plan_file;
  REQUIRE(refusal(with_layout([](flatbuffers::FlatBufferBuilder& to) {
            // Two numbers of 64 bits that lie as numbers of 32 bits may.
            const auto lanes = to.CreateVector(std::vector<std::uint32_t>{2, 0, 0, 0, 0});
            fb::LayoutBuilder layout(to);
            layout.add_lanes(flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>>(lanes.o - 4));
            to.Finish(layout.Finish());
          })) == "'x.plan' is malformed: numbers of 64 bits at no multiple of 8");
}

TEST_CASE("A plan whose slots overlap is refused at load and at writing", "[plan][file]") {
  const TemporaryFolder folder;
  Plan plan = golden_plan();
  plan.sequences[0].slots[1].offset = 64;
  const std::string reason =
      "slot 0 of sequence 0, 128 bytes at 0 over [0, 2), and slot 1 of sequence 0, 64 bytes at 64 "
      "over [1, 2), share bytes and live together";
  REQUIRE(refusal(serialize_plan(plan)) == "'x.plan' holds no legal plan: " + reason);
  const std::string path = folder / "a.plan";
  REQUIRE_THROWS_WITH(write_plan(path, plan),
                      "'" + path + "' is not written, the plan is not legal: " + reason);
  REQUIRE_FALSE(std::filesystem::exists(path));
}

TEST_CASE("A malformed plan is not made into bytes", "[plan][file]") {
  Plan plan = golden_plan();
  plan.sequences[0].slots[1].birth = 2;
  REQUIRE_THROWS_WITH(serialize_plan(plan),
                      "a malformed plan: slot 1 of sequence 0 is born at tick 2, its place is 1");
}

TEST_CASE("A file whose fingerprint is not that of its requests is refused", "[plan][file]") {
  File file = serialize_plan(golden_plan());
  const std::uint64_t own = fingerprint(golden_plan());
  std::size_t found = 0;
  for (std::size_t i = 0; i + 8 <= file.size(); ++i) {
    if (std::memcmp(file.data() + i, &own, 8) != 0) continue;
    store(file, i, own + 1);
    ++found;
  }
  REQUIRE(found == 1);
  REQUIRE_THAT(refusal(repaired(file)),
               Catch::Matchers::StartsWith("'x.plan' is malformed: fingerprint "));
}

TEST_CASE("A file that is missing or above the limit is refused by name", "[plan][file]") {
  const TemporaryFolder folder;
  REQUIRE_THROWS_WITH(read_plan(folder / "none.plan"), Catch::Matchers::Contains("cannot open") &&
                                                           Catch::Matchers::Contains("none.plan"));
  std::filesystem::resize_file((write_plan(folder / "huge.plan", Plan{}), folder / "huge.plan"),
                               (512u << 20) + 1);
  REQUIRE_THROWS_WITH(read_plan(folder / "huge.plan"),
                      Catch::Matchers::Contains("the limit is 512.0 MiB"));
}

TEST_CASE("Bytes that start at any address are read", "[plan][file]") {
  const File file = serialize_plan(golden_plan());
  for (std::size_t shift = 1; shift < 8; ++shift) {
    File shifted(shift);
    shifted.insert(shifted.end(), file.begin(), file.end());
    REQUIRE(parse_plan(std::span(shifted).subspan(shift), "x.plan") == golden_plan());
  }
}

TEST_CASE("Mutations behind a good checksum are refused or give a legal plan", "[plan][file]") {
  const unsigned seed = 11;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const File good = serialize_plan(golden_plan());
  std::size_t refused = 0, legal = 0;
  for (int round = 0; round < 100'000; ++round) {
    File file = good;
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Small numbers and flips find more than random bytes do.
      std::byte& byte = file[32 + random() % (file.size() - 40)];
      byte = random() % 2 == 0 ? static_cast<std::byte>(random() % 4 - 1)
                               : byte ^ (std::byte{1} << (random() % 8));
    }
    try {
      const Plan plan = parse_plan(repaired(file), "x.plan");
      REQUIRE(verify(plan) == std::nullopt);
      const PlanLookup lookup(plan);
      REQUIRE(parse_plan(serialize_plan(plan), "x.plan") == plan);
      ++legal;
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
      ++refused;
    }
  }
  CAPTURE(legal, refused);
  REQUIRE(legal > 1'000);
  REQUIRE(refused > 50'000);
}

TEST_CASE("A fingerprint names the requests and not their places", "[plan]") {
  const Plan plan = golden_plan();
  Plan other = plan;
  other.sequences[0].slots[0].offset = 512;
  other.sequences[0].slots[0].length = 1;
  other.engine = "first_fit";
  REQUIRE(fingerprint(other) == fingerprint(plan));
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan& p) { p.sequences[0].slots[0].requested = 99; },
      [](Plan& p) { std::swap(p.sequences[0].slots[0], p.sequences[0].slots[1]); },
      [](Plan& p) { p.lane_keys[1] = 6; },
      [](Plan& p) { p.sequences[1].lane = 2; },
      [](Plan& p) { p.sequences[3].fork = 0; },
      [](Plan& p) { p.sequences.pop_back(); },
  };
  for (const auto& change : changes) {
    other = plan;
    change(other);
    REQUIRE(fingerprint(other) != fingerprint(plan));
  }
}
