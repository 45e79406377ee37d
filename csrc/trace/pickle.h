#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace berth {

// The data of a Python pickle, protocols 0 to 5: None, booleans, integers, floats, texts, bytes,
// lists, tuples and dictionaries, which is what PyTorch's memory snapshots are made of.
//
// It runs nothing and looks nothing up. What would do so in Python (GLOBAL, REDUCE, BUILD, INST,
// OBJ, NEWOBJ, EXT, persistent ids) is refused by name, with what it would call. Nothing is
// recursive, so no nesting is too deep. A length that exceeds the bytes that follow it is refused
// before memory is taken: what parse() takes is at most some 40 bytes for each of the input, and
// kMaxValues values in all.
//
// A Value is a number of 8 bytes that is good for its pickle only. Equal texts are equal values.
// Values may contain themselves, as in Python: who walks them by depth must not trust it to end.
//
// Immutable once parsed. Points into the data, which must outlive it.
class Pickle {
 public:
  static constexpr std::size_t kMaxValues = std::size_t{1} << 29;

  enum class Type : std::uint8_t { kNone, kBool, kInteger, kFloat, kText, kList, kTuple, kDict };
  struct Value {
    std::uint64_t bits = 0;
    friend bool operator==(Value, Value) = default;
  };

  // Throws Error(kInput) that names the file, the byte and the reason.
  [[nodiscard]] static Pickle parse(std::span<const std::byte> data, const std::string& name);

  Pickle(Pickle&&) = default;
  Pickle& operator=(Pickle&&) = default;

  [[nodiscard]] Value root() const noexcept { return root_; }
  [[nodiscard]] static Type type(Value value) noexcept;

  // Nothing where the value is of another type or exceeds what is returned.
  [[nodiscard]] std::optional<std::uint64_t> natural(Value value) const noexcept;
  [[nodiscard]] std::optional<std::int64_t> integer(Value value) const noexcept;
  [[nodiscard]] std::optional<bool> boolean(Value value) const noexcept;
  [[nodiscard]] std::optional<std::string_view> text(Value value) const noexcept;  // or bytes

  // Of a list or tuple its members, of a dictionary key and value by turns, of others none.
  [[nodiscard]] std::span<const Value> members(Value value) const noexcept;

  // The number of a list, tuple or dictionary, below containers(). Requires that it is one.
  [[nodiscard]] static std::size_t number(Value value) noexcept;
  [[nodiscard]] std::size_t containers() const noexcept { return containers_.size(); }

  // The value that equals a text, where the pickle has it. To be asked once, for at().
  [[nodiscard]] std::optional<Value> find(std::string_view text) const;
  // The value under `key` in a dictionary; nothing where it is not there or `dict` is none.
  [[nodiscard]] std::optional<Value> at(Value dict, std::optional<Value> key) const noexcept;

 private:
  friend class Unpickler;
  Pickle() = default;

  struct Container {
    Value* data = nullptr;
    std::uint32_t count = 0, room = 0;
  };

  Value root_;
  std::vector<Container> containers_;
  std::vector<std::unique_ptr<Value[]>> memory_;
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, std::uint64_t> text_index_;
  std::deque<std::string> own_texts_;  // those that are written with escapes
  std::vector<std::uint64_t> wide_;    // integers of 64 bits that no Value holds
  std::vector<double> floats_;
};

// Whether a file that begins so may be a pickle: those of protocol 2 on say so, of the older ones
// those that are a dictionary or a list.
[[nodiscard]] bool begins_as_pickle(std::span<const std::byte> head) noexcept;

}  // namespace berth
