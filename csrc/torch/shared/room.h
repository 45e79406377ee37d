#pragma once

#include "csrc/core/bytes.h"

#include <c10/core/Device.h>

#include <string>

namespace berth::torch {

// Gives memory back where an allocator has none left for a request.
class RoomMaker {
 public:
  virtual ~RoomMaker() = default;
  // Frees at least `bytes` of the device, or what it can. Whether it freed any. The calling thread
  // holds no lock of an allocator.
  virtual bool make_room(c10::Device device, Bytes bytes) noexcept = 0;
  // Why the last call freed none, for an error's text; may be empty.
  [[nodiscard]] virtual std::string why_no_room() const = 0;
};

// The one of this library; null until one is set, which then lives for ever. Thread-safe.
void set_room_maker(RoomMaker& maker) noexcept;
[[nodiscard]] RoomMaker* room_maker() noexcept;

// Whether the device's allocator is berth's, which asks the room maker before it throws.
void note_asks_for_room(c10::DeviceType device) noexcept;
[[nodiscard]] bool asks_for_room(c10::DeviceType device) noexcept;

}  // namespace berth::torch
