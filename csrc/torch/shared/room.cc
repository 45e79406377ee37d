#include "csrc/torch/shared/room.h"

#include <atomic>

namespace berth::torch {

namespace {
std::atomic<RoomMaker*> current_maker{nullptr};
std::atomic<bool> asks[c10::COMPILE_TIME_MAX_DEVICE_TYPES] = {};
}  // namespace

void set_room_maker(RoomMaker& maker) noexcept {
  current_maker.store(&maker, std::memory_order_release);
}

RoomMaker* room_maker() noexcept { return current_maker.load(std::memory_order_acquire); }

void note_asks_for_room(c10::DeviceType device) noexcept { asks[static_cast<int>(device)] = true; }

bool asks_for_room(c10::DeviceType device) noexcept { return asks[static_cast<int>(device)]; }

}  // namespace berth::torch
