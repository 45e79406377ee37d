#pragma once

#include "csrc/device/device.h"

#include <memory>

namespace berth {

// The host's memory as a device: anonymous private mappings, aligned for transparent huge pages (2
// MiB, where the range is that large), pages on demand. Its lanes are synchronous: events are
// complete when recorded. A resident commit populates pages at once; move() takes 2 MiB at a time,
// where the system can (Linux 5.7); a cgroup limit (v1 and v2) counts as the total. Huge pages are
// advised for aligned 2 MiB that are committed whole, so no more becomes resident than was
// committed. Committing beyond the total is kOutOfMemory, and so is a resident commit of more than
// is available now. Ranges still held are unmapped with the device.
//
// `total_bytes` 0 asks the system; another value stands in for it, for tests and replays: then
// commit counts against it and never populates.
[[nodiscard]] std::unique_ptr<Device> make_host_device(Bytes total_bytes = 0);

}  // namespace berth
