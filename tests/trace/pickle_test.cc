#include "csrc/trace/pickle.h"

#include "csrc/core/check.h"
#include "tests/catch.h"
#include "tests/support/pickled.h"

using namespace std::string_literals;
using berth::Error;
using berth::ErrorKind;
using berth::Pickle;
using Catch::Matchers::Contains;
namespace pickled = berth::test::pickled;

namespace {

Pickle parse(const std::string& data) {
  return Pickle::parse(std::as_bytes(std::span(data)), "x.pickle");
}

// What parse() says of it.
std::string refusal(const std::string& data) {
  try {
    (void)parse(data);
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "";
}

// pickle.dumps(_, protocol) in Python 3.11, protocols 0 to 5, of
//   {'a': [1, -1, 2**40, -2**40, 2**63, None, True, False, 1.5, '\u00e9\n', 255, 65535, 70000],
//    't': (1, (2,), (1, 2, 3, 4)), 'e': ([], {}, ())}
const std::string kWritten[] = {
    "(dp0\x0AVa\x0Ap1\x0A(lp2\x0AI1\x0A"
    "aI-1\x0A"
    "aL1099511627776L\x0A"
    "aL-1099511627776L"
    "\x0A"
    "aL9223372036854775808L\x0A"
    "aNaI01\x0A"
    "aI00\x0A"
    "aF1.5\x0A"
    "aV\xE9\x5Cu000a\x0Ap3"
    "\x0A"
    "aI255\x0A"
    "aI65535\x0A"
    "aI70000\x0A"
    "asVt\x0Ap4\x0A(I1\x0A(I2\x0Atp5\x0A(I1\x0AI2"
    "\x0AI3\x0AI4\x0Atp6\x0Atp7\x0AsVe\x0Ap8\x0A((lp9\x0A(dp10\x0A(ttp11\x0As."s,
    "}q\x00(X\x01\x00\x00\x00"
    "aq\x01]q\x02(K\x01J\xFF\xFF\xFF\xFFL1099511627776L\x0AL-109951"
    "1627776L\x0AL9223372036854775808L\x0ANI01\x0AI00\x0AG\x3F\xF8\x00\x00\x00\x00\x00\x00X"
    "\x03\x00\x00\x00\xC3\xA9\x0Aq\x03K\xFFM\xFF\xFFJp\x11\x01\x00"
    "eX\x01\x00\x00\x00tq\x04("
    "K\x01(K\x02tq\x05(K\x01K\x02K\x03K\x04tq\x06tq\x07X\x01\x00\x00\x00"
    "eq\x08(]q\x09}q\x0A"
    ")tq\x0Bu."s,
    "\x80\x02}q\x00(X\x01\x00\x00\x00"
    "aq\x01]q\x02(K\x01J\xFF\xFF\xFF\xFF\x8A\x06\x00\x00"
    "\x00\x00\x00\x01\x8A\x06\x00\x00\x00\x00\x00\xFF\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x80"
    "\x00N\x88\x89G\x3F\xF8\x00\x00\x00\x00\x00\x00X\x03\x00\x00\x00\xC3\xA9\x0Aq\x03K\xFFM"
    "\xFF\xFFJp\x11\x01\x00"
    "eX\x01\x00\x00\x00tq\x04K\x01K\x02\x85q\x05(K\x01K\x02K\x03K\x04"
    "tq\x06\x87q\x07X\x01\x00\x00\x00"
    "eq\x08]q\x09}q\x0A)\x87q\x0Bu."s,
    "\x80\x03}q\x00(X\x01\x00\x00\x00"
    "aq\x01]q\x02(K\x01J\xFF\xFF\xFF\xFF\x8A\x06\x00\x00"
    "\x00\x00\x00\x01\x8A\x06\x00\x00\x00\x00\x00\xFF\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x80"
    "\x00N\x88\x89G\x3F\xF8\x00\x00\x00\x00\x00\x00X\x03\x00\x00\x00\xC3\xA9\x0Aq\x03K\xFFM"
    "\xFF\xFFJp\x11\x01\x00"
    "eX\x01\x00\x00\x00tq\x04K\x01K\x02\x85q\x05(K\x01K\x02K\x03K\x04"
    "tq\x06\x87q\x07X\x01\x00\x00\x00"
    "eq\x08]q\x09}q\x0A)\x87q\x0Bu."s,
    "\x80\x04\x95m\x00\x00\x00\x00\x00\x00\x00}\x94(\x8C\x01"
    "a\x94]\x94(K\x01J\xFF\xFF\xFF"
    "\xFF\x8A\x06\x00\x00\x00\x00\x00\x01\x8A\x06\x00\x00\x00\x00\x00\xFF\x8A\x09\x00\x00\x00"
    "\x00\x00\x00\x00\x80\x00N\x88\x89G\x3F\xF8\x00\x00\x00\x00\x00\x00\x8C\x03\xC3\xA9\x0A"
    "\x94K\xFFM\xFF\xFFJp\x11\x01\x00"
    "e\x8C\x01t\x94K\x01K\x02\x85\x94(K\x01K\x02K\x03K\x04t"
    "\x94\x87\x94\x8C\x01"
    "e\x94]\x94}\x94)\x87\x94u."s,
    "\x80\x05\x95m\x00\x00\x00\x00\x00\x00\x00}\x94(\x8C\x01"
    "a\x94]\x94(K\x01J\xFF\xFF\xFF"
    "\xFF\x8A\x06\x00\x00\x00\x00\x00\x01\x8A\x06\x00\x00\x00\x00\x00\xFF\x8A\x09\x00\x00\x00"
    "\x00\x00\x00\x00\x80\x00N\x88\x89G\x3F\xF8\x00\x00\x00\x00\x00\x00\x8C\x03\xC3\xA9\x0A"
    "\x94K\xFFM\xFF\xFFJp\x11\x01\x00"
    "e\x8C\x01t\x94K\x01K\x02\x85\x94(K\x01K\x02K\x03K\x04t"
    "\x94\x87\x94\x8C\x01"
    "e\x94]\x94}\x94)\x87\x94u."s,
};

}  // namespace

TEST_CASE("What Python pickles by any protocol reads as the same data", "[trace][pickle]") {
  for (const std::string& data : kWritten) {
    const Pickle pickle = parse(data);
    const Pickle::Value root = pickle.root();
    REQUIRE(Pickle::type(root) == Pickle::Type::kDict);
    const auto all = pickle.members(*pickle.at(root, pickle.find("a")));
    REQUIRE(all.size() == 13);
    REQUIRE(*pickle.integer(all[0]) == 1);
    REQUIRE(*pickle.integer(all[1]) == -1);
    REQUIRE_FALSE(pickle.natural(all[1]).has_value());
    REQUIRE(*pickle.natural(all[2]) == std::uint64_t{1} << 40);
    REQUIRE(*pickle.integer(all[3]) == -(std::int64_t{1} << 40));
    REQUIRE(*pickle.natural(all[4]) == std::uint64_t{1} << 63);
    REQUIRE_FALSE(pickle.integer(all[4]).has_value());
    REQUIRE(Pickle::type(all[5]) == Pickle::Type::kNone);
    REQUIRE(*pickle.boolean(all[6]));
    REQUIRE_FALSE(*pickle.boolean(all[7]));
    REQUIRE(Pickle::type(all[8]) == Pickle::Type::kFloat);
    REQUIRE(*pickle.text(all[9]) == "\xC3\xA9\n");
    REQUIRE(*pickle.integer(all[12]) == 70000);
    const auto tuple = pickle.members(*pickle.at(root, pickle.find("t")));
    REQUIRE(tuple.size() == 3);
    REQUIRE(pickle.members(tuple[2]).size() == 4);
    for (const Pickle::Value empty : pickle.members(*pickle.at(root, pickle.find("e"))))
      REQUIRE(pickle.members(empty).empty());
    REQUIRE_FALSE(pickle.find("b").has_value());
  }
}

TEST_CASE("A pickle that would run code is refused by the name of what it would call",
          "[trace][pickle]") {
  REQUIRE_THAT(refusal("cos\nsystem\n(S'id'\ntR."), Contains("would call 'os.system'"));
  REQUIRE_THAT(refusal("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."),
               Contains("would call 'posix.system'"));
  REQUIRE_THAT(refusal("(S'id'\nios\nsystem\n."), Contains("would call 'os.system'"));
  REQUIRE_THAT(refusal("(NNo."), Contains("would run code (OBJ)"));
  REQUIRE_THAT(refusal("N)R."), Contains("would run code (REDUCE)"));
  REQUIRE_THAT(refusal("N}b."), Contains("would run code (BUILD)"));
  REQUIRE_THAT(refusal("N)\x81."), Contains("would run code (NEWOBJ)"));
  REQUIRE_THAT(refusal("N)}\x92."), Contains("would run code (NEWOBJ_EX)"));
  REQUIRE_THAT(refusal("\x82\x01."), Contains("would run code (EXT)"));
  REQUIRE_THAT(refusal("Pname\n."), Contains("would run code (PERSID)"));
  REQUIRE_THAT(refusal("NQ."), Contains("would run code (PERSID)"));
  REQUIRE_THAT(refusal("\x80\x04\x8f."), Contains("has a set"));
  // Whatever it is hidden in, and with control characters in its name.
  REQUIRE_THAT(refusal(pickled::file(pickled::list({pickled::number(1), "cos\nsys\x1btem\n"}))),
               Contains("would call 'os.sys?tem'"));
  REQUIRE_THAT(refusal("\x93."), Contains("would call '.'"));
}

TEST_CASE("A pickle nested a million deep costs its bytes and no stack", "[trace][pickle]") {
  constexpr std::size_t kDepth = 1'000'000;
  const Pickle lists = parse(std::string(kDepth, ']') + std::string(kDepth - 1, 'a') + ".");
  Pickle::Value value = lists.root();
  std::size_t depth = 1;
  for (; !lists.members(value).empty(); ++depth) value = lists.members(value)[0];
  REQUIRE(depth == kDepth);
  REQUIRE(parse(std::string(kDepth, '(') + std::string(kDepth, 't') + ".").containers() == kDepth);
  REQUIRE_THAT(refusal(std::string(kDepth, '(')), Contains("it ends before it says so"));
}

TEST_CASE("A pickle that announces terabytes is refused before memory is taken",
          "[trace][pickle]") {
  const std::string terabytes = pickled::bytes_of(std::uint64_t{1} << 42, 8);
  for (const std::string code : {"\x95", "\x8D", "\x8E", "\x96"})
    REQUIRE_THAT(refusal("\x80\x04" + code + terabytes + "x."),
                 Contains("it announces 4398046511104 bytes, 2 are left"));
  const std::string gigabytes = pickled::bytes_of(0xFFFFFFFF, 4);
  for (const std::string code : {"X", "B", "T", "\x8B"})
    REQUIRE_THAT(refusal("\x80\x02" + code + gigabytes + "x."), Contains("4294967295 bytes"));
  REQUIRE_THAT(refusal("Nr" + gigabytes + "."), Contains("its memo has no room"));
  REQUIRE_THAT(refusal("Np99999999999\n."), Contains("its memo has no room"));
  // A list that doubles what it holds at each line holds references, not copies.
  std::string doubled = "]q"s + '\0';
  for (int i = 0; i < 100; ++i) doubled += "](h"s + '\0' + "h"s + '\0' + "eq"s + '\0';
  REQUIRE(parse("](" + doubled + "e.").containers() < 300);
}

TEST_CASE("A pickle that is cut at any byte is damaged", "[trace][pickle]") {
  for (const std::string& data : kWritten) {
    for (std::size_t size = 0; size < data.size(); ++size)
      REQUIRE_THAT(refusal(data.substr(0, size)), Contains("'x.pickle' is damaged at byte"));
    REQUIRE_THAT(refusal(data + "more"), Contains("4 bytes follow its end"));
  }
}

TEST_CASE("A pickle whose instructions do not fit each other is damaged", "[trace][pickle]") {
  for (const char* data : {"t.",
                           "e.",
                           "a.",
                           "Na.",
                           "]Na0.",
                           "NNs.",
                           "}Ns.",
                           "(}Nu.",
                           "0.",
                           "2.",
                           "(]N",
                           "h\x01.",
                           "g5\n.",
                           "gx\n.",
                           "NN.",
                           "(N.",
                           ".",
                           "I1x\n.",
                           "I99999999999999999999999\n.",
                           "Fx\n.",
                           "Sx\n.",
                           "\xFF.",
                           "N(Ne.",
                           "(NNa.",
                           "](1e.",
                           "\x86.",
                           "(N\x87."}) {
    CAPTURE(data);
    REQUIRE_THAT(refusal(data), Contains("is damaged at byte"));
  }
  REQUIRE_THAT(refusal("\x80\x06N."), Contains("protocol 6, this berth reads 0 to 5"));
  REQUIRE_THAT(refusal("\x8a\x0a"s + std::string(10, 'x') + "."), Contains("10 bytes, 8 are read"));
}

TEST_CASE("A pickle may hold itself, and the last of equal keys counts", "[trace][pickle]") {
  const Pickle itself = parse("]q"s + '\0' + "h"s + '\0' + "a.");
  REQUIRE(itself.members(itself.root())[0] == itself.root());
  const std::string data =
      pickled::file(pickled::dict({{"key", pickled::number(1)}, {"key", pickled::number(2)}}));
  const Pickle twice = parse(data);
  REQUIRE(*twice.integer(*twice.at(twice.root(), twice.find("key"))) == 2);
  REQUIRE_FALSE(twice.at(twice.root(), std::nullopt).has_value());
  REQUIRE_FALSE(twice.at(Pickle::Value{}, twice.find("key")).has_value());
}
