#include "csrc/pool/mobility.h"

#include "tests/catch.h"

#include <memory>
#include <random>

using namespace berth;

namespace {

constexpr Bytes kLarge = Bytes{8} << 20;

}  // namespace

TEST_CASE("Small blocks are movable and large ones temporary until more is known", "[mobility]") {
  const auto classifier = std::make_unique<MobilityClassifier>();
  REQUIRE(classifier->classify(MobilityClassifier::kSmall - 1, 0, 0) == Mobility::kMovable);
  REQUIRE(classifier->classify(MobilityClassifier::kSmall, 0, 0) == Mobility::kTemporary);
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kTemporary);
}

TEST_CASE("A kind of which nothing is ever freed is resident from the next step on", "[mobility]") {
  const auto classifier = std::make_unique<MobilityClassifier>();
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kTemporary);
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kTemporary);
  classifier->mark_step();
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kResident);
  // Another lane or tag is another kind.
  REQUIRE(classifier->classify(kLarge, 1, 0) == Mobility::kTemporary);
  REQUIRE(classifier->classify(kLarge, 0, 1) == Mobility::kTemporary);
}

TEST_CASE("A gradient that outlives one mark each step is no resident", "[mobility]") {
  const auto classifier = std::make_unique<MobilityClassifier>();
  std::uint64_t born = classifier->now();
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kTemporary);
  for (int step = 0; step < 5; ++step) {
    classifier->mark_step();
    classifier->learn(kLarge, 0, 0, born);
    REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kTemporary);
    born = classifier->now();
  }
}

TEST_CASE("A kind whose last blocks outlived two marks is resident until one does not",
          "[mobility]") {
  const auto classifier = std::make_unique<MobilityClassifier>();
  (void)classifier->classify(kLarge, 0, 0);
  const std::uint64_t born = classifier->now();
  classifier->mark_step();
  classifier->mark_step();
  classifier->learn(kLarge, 0, 0, born);
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kTemporary);
  classifier->learn(kLarge, 0, 0, born);
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kResident);
  classifier->learn(kLarge, 0, 0, classifier->now());
  REQUIRE(classifier->classify(kLarge, 0, 0) == Mobility::kTemporary);
}

TEST_CASE("More kinds than the table holds displace each other and do no harm", "[mobility]") {
  const unsigned seed = 20261121;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto classifier = std::make_unique<MobilityClassifier>();
  for (int i = 0; i < 100000; ++i) {
    const Bytes size = 1 + random() % (Bytes{4} << 20);
    const Mobility mobility = classifier->classify(size, random() % 3, 0);
    if (mobility != Mobility::kResident)
      REQUIRE((mobility == Mobility::kMovable) == (size < MobilityClassifier::kSmall));
    classifier->learn(size, random() % 3, 0, classifier->now());
    if (i % 1000 == 0) classifier->mark_step();
  }
}
