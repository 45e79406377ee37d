#include "csrc/torch/room.h"

#include <atomic>

namespace berth::torch {

namespace {
std::atomic<RoomMaker*> current{nullptr};
}  // namespace

void set_room_maker(RoomMaker& maker) noexcept { current.store(&maker, std::memory_order_release); }

RoomMaker* room_maker() noexcept { return current.load(std::memory_order_acquire); }

}  // namespace berth::torch
