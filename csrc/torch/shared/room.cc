#include "csrc/torch/shared/room.h"

#include <atomic>

namespace berth::torch {

namespace {
std::atomic<RoomMaker*> maker_of_process{nullptr};
}  // namespace

void set_room_maker(RoomMaker& maker) noexcept {
  maker_of_process.store(&maker, std::memory_order_release);
}

RoomMaker* room_maker() noexcept { return maker_of_process.load(std::memory_order_acquire); }

}  // namespace berth::torch
