#pragma once

#include "csrc/standin/api.h"
#include "csrc/standin/machine.h"

#include <memory>

namespace berth::standin {

// The machine and its lock, for the length of one entry point.
struct Entry {
  Machine& machine = Machine::get();
  Machine::Lock lock{machine.mutex};
};

}  // namespace berth::standin
