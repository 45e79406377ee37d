#include "csrc/trace/pickle.h"

#include "csrc/core/check.h"
#include "csrc/trace/csv.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

namespace berth {
namespace {

using Value = Pickle::Value;

// The upper four bits of a Value say what the others are.
enum class Tag : std::uint64_t {
  kNone,
  kFalse,
  kTrue,
  kInteger,   // 60 bits, signed
  kWide,      // index: an integer from 2^59 on
  kNegative,  // index: one below -2^59
  kFloat,     // index, as all below
  kText,
  kList,
  kTuple,
  kDict
};

constexpr int kTagShift = 60;
constexpr std::uint64_t kPayload = (std::uint64_t{1} << kTagShift) - 1;
constexpr std::int64_t kMostInline = (std::int64_t{1} << (kTagShift - 1)) - 1;

constexpr Value make(Tag tag, std::uint64_t payload = 0) {
  return {static_cast<std::uint64_t>(tag) << kTagShift | (payload & kPayload)};
}
constexpr Tag tag_of(Value value) { return static_cast<Tag>(value.bits >> kTagShift); }
constexpr std::uint64_t payload_of(Value value) { return value.bits & kPayload; }

// What Python would do at these, and we do not.
std::string_view name_of_code(unsigned char code) {
  switch (code) {
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x82:
    case 0x83:
    case 0x84:
      return "EXT";
    case 'P':
    case 'Q':
      return "PERSID";
    default:
      return {};
  }
}

std::string_view name_of_foreign(unsigned char code) {
  switch (code) {
    case 0x8F:
    case 0x90:
    case 0x91:
      return "a set";
    case 0x97:
    case 0x98:
      return "a buffer that is kept elsewhere";
    default:
      return {};
  }
}

}  // namespace

class Unpickler {
 public:
  Unpickler(std::span<const std::byte> data, const std::string& name)
      : begin_(reinterpret_cast<const unsigned char*>(data.data())),
        at_(begin_),
        end_(begin_ + data.size()),
        name_(name) {}

  Pickle parse() {
    while (!step()) {
    }
    if (at_ != end_) fail(fmt::format("{} bytes follow its end", end_ - at_));
    return std::move(pickle_);
  }

 private:
  using Container = Pickle::Container;

  [[noreturn]] void fail(std::string_view problem) const {
    throw Error(ErrorKind::kInput,
                fmt::format("'{}' is damaged at byte {}: {}", name_, code_at_ - begin_, problem));
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(ErrorKind::kInput,
                fmt::format("'{}' is refused: at byte {} it {}; a memory snapshot is data alone",
                            name_, code_at_ - begin_, what));
  }

  // --- Bytes ---

  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  std::uint64_t number(std::size_t bytes) {
    if (left() < bytes) fail("it ends within a number");
    std::uint64_t value = 0;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&value, at_, bytes);
    at_ += bytes;
    return value;
  }

  std::string_view bytes(std::uint64_t count) {
    if (count > left()) fail(fmt::format("it announces {} bytes, {} are left", count, left()));
    const std::string_view text(reinterpret_cast<const char*>(at_), count);
    at_ += count;
    return text;
  }

  std::string_view line() {
    const void* const end = std::memchr(at_, '\n', left());
    if (end == nullptr) fail("it ends within a line");
    const auto* const stop = static_cast<const unsigned char*>(end);
    const std::string_view text = bytes(static_cast<std::uint64_t>(stop - at_));
    ++at_;
    return text;
  }

  // --- Values ---

  void push(Value value) {
    if (stack_.size() >= Pickle::kMaxValues) too_many();
    stack_.push_back(value);
  }

  [[noreturn]] void too_many() const {
    fail(fmt::format("it holds more than the limit of {} values", Pickle::kMaxValues));
  }

  // The stack above the last mark, which goes too.
  [[nodiscard]] std::size_t pop_mark() {
    if (marks_.empty()) fail("it closes what it did not open");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  void need(std::size_t count) const {
    if (stack_.size() - floor() < count) fail("it uses a value that is not there");
  }

  Value pop() {
    need(1);
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }

  void push_integer(std::int64_t value) {
    if (value >= -kMostInline && value <= kMostInline) {
      push(make(Tag::kInteger, static_cast<std::uint64_t>(value)));
    } else {
      pickle_.wide_.push_back(static_cast<std::uint64_t>(value));
      push(make(value < 0 ? Tag::kNegative : Tag::kWide, pickle_.wide_.size() - 1));
    }
  }

  void push_natural(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(kMostInline)) {
      push(make(Tag::kInteger, value));
    } else {
      pickle_.wide_.push_back(value);
      push(make(Tag::kWide, pickle_.wide_.size() - 1));
    }
  }

  // Two's complement, little end first.
  void push_long(std::string_view digits) {
    std::uint64_t value = 0;
    const std::size_t size = digits.size();
    if (size > 9 || (size == 9 && digits[8] != 0))
      fail(fmt::format("it has an integer of {} bytes, 8 are read", size));
    std::memcpy(&value, digits.data(), std::min<std::size_t>(size, 8));
    const bool negative = size > 0 && size < 9 && (digits[size - 1] & 0x80) != 0;
    if (negative && size < 8) value |= ~std::uint64_t{0} << (8 * size);
    if (negative) {
      push_integer(static_cast<std::int64_t>(value));
    } else {
      push_natural(value);
    }
  }

  // "123", "-5", of INT "01" for True too, of LONG with an L behind.
  void push_decimal(std::string_view text, bool with_booleans) {
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (with_booleans && (text == "01" || text == "00")) {
      push(make(text == "01" ? Tag::kTrue : Tag::kFalse));
      return;
    }
    if (text.ends_with('L')) text.remove_suffix(1);
    const char* const first = text.data();
    const char* const last = first + text.size();
    std::int64_t value = 0;
    std::uint64_t natural = 0;
    if (const auto [stop, error] = std::from_chars(first, last, value);
        error == std::errc{} && stop == last) {
      push_integer(value);
    } else if (const auto [end, too] = std::from_chars(first, last, natural);
               too == std::errc{} && end == last) {
      push_natural(natural);
    } else {
      fail(fmt::format("'{}' is no integer of 64 bits", csv::printable(text)));
    }
  }

  void push_float(double value) {
    pickle_.floats_.push_back(value);
    push(make(Tag::kFloat, pickle_.floats_.size() - 1));
  }

  void push_text(std::string_view text) {
    const auto [it, unknown] = pickle_.text_index_.try_emplace(text, pickle_.texts_.size());
    if (unknown) pickle_.texts_.push_back(text);
    push(make(Tag::kText, it->second));
  }

  // Of protocol 0: what is written as "\n" or "A" becomes the character, as UTF-8.
  void push_escaped(std::string_view text, bool raw) {
    const auto as_it_is = [&](char c) { return c != '\\' && (!raw || (c & 0x80) == 0); };
    if (std::all_of(text.begin(), text.end(), as_it_is)) return push_text(text);
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        if (raw) {  // Latin 1
          append_utf8(plain, static_cast<unsigned char>(text[i]));
        } else {
          plain += text[i];
        }
        continue;
      }
      const char kind = text[i + 1];
      const std::size_t digits = kind == 'u' ? 4 : kind == 'U' ? 8 : kind == 'x' && !raw ? 2 : 0;
      unsigned long code = 0;
      const char* const first = text.data() + i + 2;
      if (digits != 0 && text.size() - i - 2 >= digits &&
          std::from_chars(first, first + digits, code, 16).ptr == first + digits) {
        append_utf8(plain, code);
        i += 1 + digits;
      } else if (raw) {
        plain += '\\';
      } else {
        constexpr std::string_view kFrom = "ntr", kTo = "\n\t\r";
        const std::size_t which = kFrom.find(kind);
        plain += which == std::string_view::npos ? kind : kTo[which];
        ++i;
      }
    }
    push_text(pickle_.own_texts_.emplace_back(std::move(plain)));
  }

  static void append_utf8(std::string& text, unsigned long code) {
    const auto add = [&](unsigned long byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xC0 | code >> 6);
      add(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      add(0xE0 | code >> 12);
      add(0x80 | (code >> 6 & 0x3F));
      add(0x80 | (code & 0x3F));
    } else {
      add(0xF0 | (code >> 18 & 0x07));
      add(0x80 | (code >> 12 & 0x3F));
      add(0x80 | (code >> 6 & 0x3F));
      add(0x80 | (code & 0x3F));
    }
  }

  // --- Containers ---

  void push_container(Tag tag, std::span<const Value> values = {}) {
    const std::size_t index = pickle_.containers_.size();
    pickle_.containers_.emplace_back();
    extend(pickle_.containers_.back(), values);
    push(make(tag, index));
  }

  // A tuple of what lies above `mark`, and so on, in its place.
  void gather(Tag tag, std::size_t mark) {
    const std::vector<Value> values(stack_.begin() + static_cast<std::ptrdiff_t>(mark),
                                    stack_.end());
    if (tag == Tag::kDict && values.size() % 2 != 0) fail("a key has no value");
    stack_.resize(mark);
    push_container(tag, values);
  }

  // Moves what lies above `mark` into the container below it.
  void fill(Tag tag, std::size_t mark) {
    if (mark <= floor()) fail("it fills what is not there");
    const Value into = stack_[mark - 1];
    if (tag_of(into) != tag)
      fail(tag == Tag::kList ? "it appends to what is no list"
                             : "it sets in what is no dictionary");
    const std::span<const Value> values(stack_.data() + mark, stack_.size() - mark);
    if (tag == Tag::kDict && values.size() % 2 != 0) fail("a key has no value");
    extend(pickle_.containers_[payload_of(into)], values);
    stack_.resize(mark);
  }

  void extend(Container& container, std::span<const Value> values) {
    if (values.empty()) return;
    const std::size_t count = container.count + values.size();
    if (count > container.room) {
      const std::size_t room = container.count == 0
                                   ? count
                                   : std::max<std::size_t>(count, 2 * std::size_t{container.room});
      Value* const data = take(room);
      std::copy_n(container.data, container.count, data);
      container.data = data;
      container.room = static_cast<std::uint32_t>(room);
    }
    std::copy(values.begin(), values.end(), container.data + container.count);
    container.count = static_cast<std::uint32_t>(count);
  }

  Value* take(std::size_t count) {
    constexpr std::size_t kChunk = std::size_t{1} << 17;
    taken_ += count;
    if (taken_ > Pickle::kMaxValues) too_many();
    if (count > kChunk / 8) {
      // Before the chunk that is being filled, which stays the last.
      pickle_.memory_.push_back(std::make_unique_for_overwrite<Value[]>(count));
      return pickle_.memory_.back().get();
    }
    if (count > chunk_left_) {
      pickle_.memory_.push_back(std::make_unique_for_overwrite<Value[]>(kChunk));
      chunk_ = pickle_.memory_.back().get();
      chunk_left_ = kChunk;
    }
    Value* const data = chunk_;
    chunk_ += count;
    chunk_left_ -= count;
    return data;
  }

  // --- Memo ---

  void put(std::uint64_t index) {
    need(1);
    // A writer counts its entries, and each takes bytes of the file.
    if (index >= static_cast<std::uint64_t>(end_ - begin_))
      fail(fmt::format("its memo has no room for entry {}", index));
    if (index >= memo_.size()) memo_.resize(index + 1, make(Tag::kNone, kPayload));
    memo_[index] = stack_.back();
  }

  void get(std::uint64_t index) {
    if (index >= memo_.size() || memo_[index] == make(Tag::kNone, kPayload))
      fail(fmt::format("it uses entry {} of its memo, which is not there", index));
    push(memo_[index]);
  }

  std::uint64_t line_number() {
    const std::string_view text = line();
    std::uint64_t value = 0;
    const char* const last = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc{} || stop != last)
      fail(fmt::format("'{}' is no entry of its memo", csv::printable(text)));
    return value;
  }

  // --- What would run code ---

  [[noreturn]] void refuse_global(std::string_view module, std::string_view name) const {
    refuse(fmt::format("would call '{}.{}'", csv::printable(module), csv::printable(name)));
  }

  [[noreturn]] void refuse_stack_global() {
    std::string_view names[2];
    for (std::size_t i = 0; i < 2; ++i) {
      if (stack_.size() >= 2 - i)
        names[i] = pickle_.text(stack_[stack_.size() - 2 + i]).value_or("?");
    }
    refuse_global(names[0], names[1]);
  }

  // --- The machine ---

  // One instruction. True at the end.
  bool step() {
    code_at_ = at_;
    if (at_ == end_) fail("it ends before it says so");
    const unsigned char code = *at_++;
    switch (code) {
      case 0x80: {  // PROTO
        const std::uint64_t protocol = number(1);
        BERTH_CHECK(protocol <= 5, kInput,
                    "'{}' is a pickle of protocol {}, this berth reads 0 to 5", name_, protocol);
        break;
      }
      case 0x95: {  // FRAME
        const std::uint64_t size = number(8);
        if (size > left()) fail(fmt::format("it announces {} bytes, {} are left", size, left()));
        break;
      }
      case '.': {  // STOP
        if (stack_.size() != 1 || !marks_.empty()) fail("it ends with unfinished values");
        pickle_.root_ = stack_.back();
        return true;
      }
      case 'N':
        push(make(Tag::kNone));
        break;
      case 0x88:
        push(make(Tag::kTrue));
        break;
      case 0x89:
        push(make(Tag::kFalse));
        break;
      case 'K':  // BININT1
        push_natural(number(1));
        break;
      case 'M':  // BININT2
        push_natural(number(2));
        break;
      case 'J':  // BININT
        push_integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4))));
        break;
      case 0x8A:  // LONG1
        push_long(bytes(number(1)));
        break;
      case 0x8B:  // LONG4
        push_long(bytes(number(4)));
        break;
      case 'I':
        push_decimal(line(), true);
        break;
      case 'L':
        push_decimal(line(), false);
        break;
      case 'G': {  // BINFLOAT, big end first
        const std::uint64_t bits = __builtin_bswap64(number(8));
        push_float(std::bit_cast<double>(bits));
        break;
      }
      case 'F': {
        const std::string_view text = line();
        double value = 0;
        const char* const last = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), last, value);
        if (error != std::errc{} || stop != last)
          fail(fmt::format("'{}' is no number", csv::printable(text)));
        push_float(value);
        break;
      }
      case 'X':  // BINUNICODE
      case 'B':  // BINBYTES
      case 'T':  // BINSTRING
        push_text(bytes(number(4)));
        break;
      case 0x8C:  // SHORT_BINUNICODE
      case 'C':   // SHORT_BINBYTES
      case 'U':   // SHORT_BINSTRING
        push_text(bytes(number(1)));
        break;
      case 0x8D:  // BINUNICODE8
      case 0x8E:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        push_text(bytes(number(8)));
        break;
      case 'V':  // UNICODE
        push_escaped(line(), true);
        break;
      case 'S': {  // STRING, in quotes
        std::string_view text = line();
        if (text.size() < 2 || text.front() != text.back() ||
            (text.front() != '\'' && text.front() != '"'))
          fail("a text has no quotes");
        push_escaped(text.substr(1, text.size() - 2), false);
        break;
      }
      case '(':
        marks_.push_back(stack_.size());
        break;
      case ']':
        push_container(Tag::kList);
        break;
      case '}':
        push_container(Tag::kDict);
        break;
      case ')':
        push_container(Tag::kTuple);
        break;
      case 'l':
        gather(Tag::kList, pop_mark());
        break;
      case 'd':
        gather(Tag::kDict, pop_mark());
        break;
      case 't':
        gather(Tag::kTuple, pop_mark());
        break;
      case 0x85:  // TUPLE1, TUPLE2, TUPLE3
      case 0x86:
      case 0x87: {
        const std::size_t count = code - 0x84u;
        need(count);
        gather(Tag::kTuple, stack_.size() - count);
        break;
      }
      case 'a':  // APPEND
        need(2);
        fill(Tag::kList, stack_.size() - 1);
        break;
      case 'e':  // APPENDS
        fill(Tag::kList, pop_mark());
        break;
      case 's':  // SETITEM
        need(3);
        fill(Tag::kDict, stack_.size() - 2);
        break;
      case 'u':  // SETITEMS
        fill(Tag::kDict, pop_mark());
        break;
      case '0':  // POP
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
        } else {
          (void)pop();
        }
        break;
      case '1':  // POP_MARK
        stack_.resize(pop_mark());
        break;
      case '2':  // DUP
        need(1);
        push(stack_.back());
        break;
      case 0x94:  // MEMOIZE
        put(memo_.size());
        break;
      case 'q':
        put(number(1));
        break;
      case 'r':
        put(number(4));
        break;
      case 'p':
        put(line_number());
        break;
      case 'h':
        get(number(1));
        break;
      case 'j':
        get(number(4));
        break;
      case 'g':
        get(line_number());
        break;
      case 'c':
      case 'i': {  // GLOBAL, INST
        const std::string_view module = line();
        refuse_global(module, line());
      }
      case 0x93:
        refuse_stack_global();
      default:
        if (const auto name = name_of_code(code); !name.empty())
          refuse(fmt::format("would run code ({})", name));
        if (const auto name = name_of_foreign(code); !name.empty())
          refuse(fmt::format("has {}", name));
        fail(fmt::format("0x{:02X} is no instruction of a pickle", code));
    }
    return false;
  }

  const unsigned char* begin_;
  const unsigned char* at_;
  const unsigned char* end_;
  const unsigned char* code_at_ = nullptr;
  const std::string& name_;
  Pickle pickle_;
  std::vector<Value> stack_, memo_;
  std::vector<std::size_t> marks_;
  Value* chunk_ = nullptr;
  std::size_t chunk_left_ = 0, taken_ = 0;
};

Pickle Pickle::parse(std::span<const std::byte> data, const std::string& name) {
  return Unpickler(data, name).parse();
}

Pickle::Type Pickle::type(Value value) noexcept {
  switch (tag_of(value)) {
    case Tag::kNone:
      break;
    case Tag::kFalse:
    case Tag::kTrue:
      return Type::kBool;
    case Tag::kInteger:
    case Tag::kWide:
    case Tag::kNegative:
      return Type::kInteger;
    case Tag::kFloat:
      return Type::kFloat;
    case Tag::kText:
      return Type::kText;
    case Tag::kList:
      return Type::kList;
    case Tag::kTuple:
      return Type::kTuple;
    case Tag::kDict:
      return Type::kDict;
  }
  return Type::kNone;
}

std::optional<std::int64_t> Pickle::integer(Value value) const noexcept {
  if (tag_of(value) == Tag::kInteger)
    return static_cast<std::int64_t>(payload_of(value) << (64 - kTagShift)) >> (64 - kTagShift);
  if (tag_of(value) == Tag::kNegative) return static_cast<std::int64_t>(wide_[payload_of(value)]);
  if (tag_of(value) == Tag::kWide && wide_[payload_of(value)] >> 63 == 0)
    return static_cast<std::int64_t>(wide_[payload_of(value)]);
  return std::nullopt;
}

std::optional<std::uint64_t> Pickle::natural(Value value) const noexcept {
  if (tag_of(value) == Tag::kWide) return wide_[payload_of(value)];
  const auto number = integer(value);
  if (!number || *number < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

std::optional<bool> Pickle::boolean(Value value) const noexcept {
  if (type(value) != Type::kBool) return std::nullopt;
  return tag_of(value) == Tag::kTrue;
}

std::optional<std::string_view> Pickle::text(Value value) const noexcept {
  if (tag_of(value) != Tag::kText) return std::nullopt;
  return texts_[payload_of(value)];
}

std::span<const Pickle::Value> Pickle::members(Value value) const noexcept {
  if (tag_of(value) != Tag::kList && tag_of(value) != Tag::kTuple && tag_of(value) != Tag::kDict)
    return {};
  const Container& container = containers_[payload_of(value)];
  return {container.data, container.count};
}

std::size_t Pickle::number(Value value) noexcept { return payload_of(value); }

std::optional<Pickle::Value> Pickle::find(std::string_view text) const {
  const auto it = text_index_.find(text);
  if (it == text_index_.end()) return std::nullopt;
  return make(Tag::kText, it->second);
}

std::optional<Pickle::Value> Pickle::at(Value dict, std::optional<Value> key) const noexcept {
  if (!key || tag_of(dict) != Tag::kDict) return std::nullopt;
  const std::span<const Value> all = members(dict);
  for (std::size_t i = all.size(); i >= 2; i -= 2) {  // of equal keys the last one counts
    if (all[i - 2] == *key) return all[i - 1];
  }
  return std::nullopt;
}

bool begins_as_pickle(std::span<const std::byte> head) noexcept {
  const auto is = [&](std::size_t index, std::string_view any) {
    return index < head.size() && any.find(static_cast<char>(head[index])) != any.npos;
  };
  if (is(0, "\x80")) return head.size() >= 2 && std::to_integer<int>(head[1]) <= 0x20;
  // Protocol 0 opens with a mark, 1 with an empty container; both then put it into the memo.
  return (is(0, "(") && is(1, "dl") && is(2, "p")) || (is(0, "}]") && is(1, "q"));
}

}  // namespace berth
