#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::python {

template <class Value>
using View = nanobind::ndarray<nanobind::numpy, const Value, nanobind::ndim<1>>;

// A member of each row of a table, as a NumPy array that copies nothing, is read-only and keeps
// `owner`, which holds the rows, alive. The size of a row is a multiple of that of the member.
template <class Row, class Value>
View<Value> column(const std::vector<Row>& rows, Value Row::*member, nanobind::handle owner) {
  static_assert(sizeof(Row) % sizeof(Value) == 0);
  static const Value kNothing{};
  const Value* const first = rows.empty() ? &kNothing : &(rows.front().*member);
  const std::size_t shape[] = {rows.size()};
  const std::int64_t strides[] = {static_cast<std::int64_t>(sizeof(Row) / sizeof(Value))};
  return View<Value>(first, 1, shape, owner, strides);
}

template <class Owner, class Rows>
Owner& owner_of(Rows Owner::*, nanobind::handle self) {
  return nanobind::cast<Owner&>(self);
}

// For a property of a class whose instances hold rows: the column of `member`, kept alive by
// `self`.
template <auto rows, class Row, class Value>
auto column_of(Value Row::*member) {
  return
      [member](nanobind::handle self) { return column(owner_of(rows, self).*rows, member, self); };
}

// The same of a plain list.
template <class Value>
View<Value> view(const std::vector<Value>& values, nanobind::handle owner) {
  static const Value kNothing{};
  const std::size_t shape[] = {values.size()};
  return View<Value>(values.empty() ? &kNothing : values.data(), 1, shape, owner);
}

}  // namespace berth::python
