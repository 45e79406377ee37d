#pragma once

#include "csrc/core/bytes.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>

namespace berth::torch::step {

// The host memory of spills, within what is allowed: copies of tensors that are away, copies of
// tensors that are there, what schedules copy beside them, and spare memory for the next tensors of
// its size. Its caller has the first three; here they are counted. Not thread-safe.
class SpillMemory {
 public:
  struct Copy {
    std::unique_ptr<std::byte[]> plain;  // of the CPU
    at::Tensor pinned;                   // of a device
    Bytes bytes = 0;                     // 0: there is none
  };

  // So many bytes, or as many as were allowed before.
  void allow(Bytes bytes) noexcept;
  [[nodiscard]] Bytes allowed() const noexcept { return allowed_; }
  // Of tensors that are away, now and at most.
  [[nodiscard]] Bytes away() const noexcept { return away_; }
  [[nodiscard]] Bytes away_peak() const noexcept { return away_peak_; }
  // What schedules have copied.
  [[nodiscard]] Bytes scheduled() const noexcept { return scheduled_; }
  void add_scheduled(Bytes bytes) noexcept { scheduled_ += bytes; }
  void drop_scheduled(Bytes bytes) noexcept { scheduled_ -= bytes; }
  // Whether there is room for so much more. Spare memory goes for it, the oldest first.
  [[nodiscard]] bool has(Bytes bytes);
  // Spare memory of that size whose last copy was on that stream; none where there is none.
  // O(spares).
  [[nodiscard]] Copy take_spare(Bytes bytes, const std::optional<c10::Stream>& stream);

  // A copy of so many bytes is all that there is of a tensor from now on.
  void leave(Bytes bytes) noexcept;
  // The same for the copy of a tensor that was there.
  void leave_again(Bytes bytes) noexcept;
  // A tensor is there again, beside its copy.
  void come_back(Bytes bytes) noexcept;
  // A tensor is gone that was away. Its copy, last used on that stream, is spare from now on.
  void end_away(Copy copy, const std::optional<c10::Stream>& last);
  // The same for the copy of a tensor that is there.
  void end_copy(Copy copy, const std::optional<c10::Stream>& last);
  // The copy of a tensor that is there goes, its memory with it.
  void drop_copy(Copy copy);

 private:
  struct Spare {
    Copy copy;
    std::optional<c10::Stream> stream;
  };
  void keep(Copy copy, const std::optional<c10::Stream>& last);
  void drop_oldest();

  Bytes allowed_ = 0, away_ = 0, away_peak_ = 0;
  Bytes copied_ = 0;          // copies of tensors that are there
  Bytes scheduled_ = 0;       // copies that schedules make
  std::deque<Spare> spares_;  // the oldest first
  Bytes spare_bytes_ = 0;
};

}  // namespace berth::torch::step
