#include "csrc/core/bytes.h"

#include "tests/catch.h"

using namespace berth;

TEST_CASE("Sizes are printed with one decimal and a binary unit", "[bytes]") {
  REQUIRE(format_bytes(0) == "0 B");
  REQUIRE(format_bytes(1023) == "1023 B");
  REQUIRE(format_bytes(1024) == "1.0 KiB");
  REQUIRE(format_bytes(Bytes{2} << 30) == "2.0 GiB");
  REQUIRE(format_bytes((Bytes{1} << 20) - 1) == "1.0 MiB");
}

TEST_CASE("Sizes are read with binary and decimal units", "[bytes]") {
  REQUIRE(parse_bytes("1048576") == 1048576);
  REQUIRE(parse_bytes("64KiB") == 65536);
  REQUIRE(parse_bytes("64k") == 65536);
  REQUIRE(parse_bytes(" 2.5 GiB ") == (Bytes{5} << 29));
  REQUIRE(parse_bytes("80GB") == 80000000000);
}

TEST_CASE("Texts that are no size are refused", "[bytes]") {
  for (const char* text :
       {"", "B", "-1", "1.2.3", "10XiB", "12 apples", "99999999999999999999", "8000PiB", "1e9"}) {
    CAPTURE(text);
    REQUIRE_FALSE(parse_bytes(text).has_value());
  }
}

TEST_CASE("Sums and products beyond the largest size are nothing", "[bytes]") {
  REQUIRE(checked_add(kMaxBytes, 0) == kMaxBytes);
  REQUIRE_FALSE(checked_add(kMaxBytes, 1).has_value());
  REQUIRE_FALSE(checked_add(1, ~Bytes{0}).has_value());
  REQUIRE(checked_multiply(kMaxBytes / 2, 2) == kMaxBytes);
  REQUIRE_FALSE(checked_multiply(kMaxBytes / 2 + 1, 2).has_value());
}

TEST_CASE("Aligning rounds to multiples of a power of two", "[bytes]") {
  REQUIRE(align_up(0, 64) == 0);
  REQUIRE(align_up(1, 64) == 64);
  REQUIRE(align_up(64, 64) == 64);
  REQUIRE(align_down(127, 64) == 64);
  REQUIRE_FALSE(is_power_of_two(0));
  REQUIRE_FALSE(is_power_of_two(96));
}
