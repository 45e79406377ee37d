#pragma once

#include "csrc/device/address_table.h"
#include "csrc/device/forwarding_device.h"

namespace berth {

// A device that notes all that it reserves under its number.
class NotingDevice final : public ForwardingDevice {
 public:
  // `device` and `table` outlive it.
  NotingDevice(Device& device, AddressTable& table, int number)
      : ForwardingDevice(device), table_(table), number_(number) {}

  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    const Status status = device_.reserve(size, alignment, base);
    if (status.ok()) table_.note(*base, size, number_);
    return status;
  }

 private:
  AddressTable& table_;
  const int number_;
};

}  // namespace berth
