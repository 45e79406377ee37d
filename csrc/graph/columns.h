#pragma once

#include "csrc/core/check.h"
#include "csrc/plan/section_table.h"

#include <cstddef>
#include <string>

// Columns of the tables that hold graphs and schedules.
namespace berth::graph {

// A vector of a table, taken piece by piece from its beginning; what is absent is empty.
template <class Element>
class Column {
 public:
  // Throws Error(kInput) where it has more than `limit` elements or lies where it cannot be read.
  Column(const flatbuffers::Vector<Element>* vector, const char* what, std::size_t limit,
         const std::string& file)
      : vector_(vector), what_(what), file_(file) {
    BERTH_CHECK(size() <= limit, kInput, "'{}' is malformed: {} {}, the limit is {}", file, size(),
                what, limit);
    if (vector != nullptr) check_place(*vector, file);
  }
  [[nodiscard]] std::size_t size() const noexcept {
    return vector_ == nullptr ? 0 : vector_->size();
  }

  // The next element.
  auto next() {
    BERTH_CHECK(at_ < size(), kInput, "'{}' is malformed: it has {} {}, more are named", file_,
                size(), what_);
    return vector_->Get(static_cast<flatbuffers::uoffset_t>(at_++));
  }
  // Calls visit(element) for the next `count`.
  template <class Visit>
  void next(std::size_t count, const Visit& visit) {
    BERTH_CHECK(count <= size() - at_, kInput, "'{}' is malformed: it has {} {}, more are named",
                file_, size(), what_);
    for (; count > 0; --count) visit(next());
  }
  // Throws Error(kInput) where some are left.
  void check_end() const {
    BERTH_CHECK(at_ == size(), kInput, "'{}' is malformed: {} of {} {} are nobody's", file_,
                size() - at_, size(), what_);
  }

 private:
  const flatbuffers::Vector<Element>* vector_;
  const char* what_;
  const std::string& file_;
  std::size_t at_ = 0;
};

}  // namespace berth::graph
