#include "csrc/standin/entry.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace berth::standin {
namespace {

using Kind = Accesses::Kind;

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Where one end of a copy is: known to the runtime, or memory of the program that it knows nothing
// of.
struct End {
  bool known = false;
  bool on_device = false;
  bool fits = true;
};

End end_of(const Machine& machine, const void* pointer, std::size_t size) {
  const Allocation* found = machine.space.holding(address_of(pointer));
  if (found == nullptr) return {};
  // Neighbouring pieces of one virtual range may be mapped one by one.
  std::uintptr_t reached = found->end();
  while (reached < address_of(pointer) + size && found->kind == Allocation::Kind::kMapped) {
    found = machine.space.at(reached);
    if (found == nullptr) break;
    reached = found->end();
  }
  return {true, found == nullptr || found->on_device(), reached >= address_of(pointer) + size};
}

// What a GPU of 2 TB/s takes, by the clock of events: autotuners repeat until they have measured
// long enough.
std::uint64_t clock_us(std::size_t size) { return 1 + (size >> 21); }

// Zeros. Whole pages are given back to the host, which reads zeros there afterwards.
void clear(void* pointer, std::size_t size) {
  constexpr std::size_t kPage = 4096, kWorthIt = std::size_t{1} << 16;
  const std::uintptr_t begin = (address_of(pointer) + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (address_of(pointer) + size) / kPage * kPage;
  if (size < kWorthIt || end <= begin ||
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE) != 0) {
    std::memset(pointer, 0, size);
    return;
  }
  std::memset(pointer, 0, begin - address_of(pointer));
  std::memset(reinterpret_cast<void*>(end), 0, address_of(pointer) + size - end);
}

bool wants_device(int kind, bool destination) {
  return kind == kDeviceToDevice || kind == (destination ? kHostToDevice : kDeviceToHost);
}

// One rectangle of bytes, a row for a plain copy.
struct Rectangle {
  std::byte* to;
  std::size_t to_pitch;
  const std::byte* from;
  std::size_t from_pitch;
  std::size_t width, height;

  [[nodiscard]] std::size_t span(std::size_t pitch) const {
    return height == 0 ? 0 : pitch * (height - 1) + width;
  }

  void move() const {
    for (std::size_t row = 0; row < height; ++row)
      std::memmove(to + row * to_pitch, from + row * from_pitch, width);
  }
};

// Follows what is known of the bytes on the device through a copy, and counts what the host reads.
// Whether the host is to be fed, since it reads what nobody knows.
bool note_values(Machine& machine, const Rectangle& area, const End& to, const End& from,
                 bool moves) {
  const bool from_device = from.known && from.on_device;
  const bool to_device = to.known && to.on_device;
  if (!machine.options.feeds_values && (!from_device || to_device)) return false;
  const std::size_t to_span = area.span(area.to_pitch);
  const bool known =
      !from_device || machine.known.holds(address_of(area.from), area.span(area.from_pitch));
  if (to_device) {
    if (moves && known)
      machine.known.add(address_of(area.to), to_span);
    else
      machine.known.remove(address_of(area.to), to_span);
    return false;
  }
  if (!from_device) return false;
  ++machine.reads.copies;
  if (!moves) ++machine.reads.skipped;
  if (!machine.options.feeds_values || known) return false;
  ++machine.reads.unknown;
  machine.reads.bytes += area.width * area.height;
  return moves;
}

// Queues a copy. Pageable memory of the host is read before the call returns, and written before it
// returns; only pinned memory is copied asynchronously.
Status copy(Entry& entry, const StreamPointer& stream, Rectangle area, int kind, bool synchronous) {
  Machine& machine = entry.machine;
  if (kind < kHostToHost || kind > kByAddress) return kInvalidValue;
  if (synchronous) {
    if (const Status status = machine.refuse_during_capture(); status != kSuccess) return status;
  }
  const std::size_t to_span = area.span(area.to_pitch);
  const std::size_t from_span = area.span(area.from_pitch);
  if (to_span == 0) return kSuccess;
  machine.use(stream->device);
  const End to = end_of(machine, area.to, to_span);
  const End from = end_of(machine, area.from, from_span);
  const bool wrong = (to.known && !to.fits) || (from.known && !from.fits) ||
                     (wants_device(kind, true) && !to.known) ||
                     (wants_device(kind, false) && !from.known);
  if (wrong) return kInvalidValue;

  Operation operation{.kind = Operation::Kind::kCopy,
                      .name = "cudaMemcpy",
                      .clock_us = clock_us(area.width * area.height)};
  if (from.known) operation.accesses.push_back({address_of(area.from), from_span, Kind::kRead});
  if (to.known) operation.accesses.push_back({address_of(area.to), to_span, Kind::kWrite});
  const bool moves = area.width * area.height <= machine.options.copy_limit;
  const bool fed = note_values(machine, area, to, from, moves);
  if (fed) {
    operation.work = [area, element = fed_element(), value = machine.options.value] {
      for (std::size_t row = 0; row < area.height; ++row)
        feed(area.to + row * area.to_pitch, area.width, element, value);
    };
  } else if (moves) {
    if (!from.known && to.known && !stream->capture) {
      auto staged = std::make_shared<std::vector<std::byte>>(area.from, area.from + from_span);
      operation.work = [area, staged]() mutable {
        area.from = staged->data();
        area.move();
      };
    } else {
      operation.work = [area] { area.move(); };
    }
  }
  const Status status = machine.enqueue(entry.lock, *stream, std::move(operation));
  if (status != kSuccess || stream->capture) return status;
  if (synchronous || !to.known) {
    const VectorClock clock = stream->clock;
    machine.drain(entry.lock, *stream, stream->enqueued);
    machine.host_knows(clock);
  }
  return kSuccess;
}

// Queues what `set` does to `size` bytes.
template <class Set>
Status fill(StreamHandle handle, const char* name, const void* pointer, std::size_t size, Set set) {
  return on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    Machine& machine = entry.machine;
    if (size == 0) return kSuccess;
    const End to = end_of(machine, pointer, size);
    if (!to.known || !to.fits) return kInvalidValue;
    Operation operation{.kind = Operation::Kind::kMemset, .name = name, .clock_us = clock_us(size)};
    operation.accesses.push_back({address_of(pointer), size, Kind::kWrite});
    const bool moves = size <= machine.options.copy_limit;
    if (moves) operation.work = set;
    if (machine.options.feeds_values && to.on_device) {
      if (moves)
        machine.known.add(address_of(pointer), size);
      else
        machine.known.remove(address_of(pointer), size);
    }
    return machine.enqueue(entry.lock, *stream, std::move(operation));
  });
}

int fill_bytes(StreamHandle stream, void* pointer, int value, std::size_t size) {
  return remember(fill(stream, "cudaMemset", pointer, size, [=] {
    if ((value & 0xff) == 0) {
      clear(pointer, size);
    } else {
      std::memset(pointer, value, size);
    }
  }));
}

int copy_bytes(StreamHandle handle, Rectangle area, int kind, bool synchronous) {
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    return copy(entry, stream, area, kind, synchronous);
  });
}

Rectangle row(void* to, const void* from, std::size_t size) {
  return {static_cast<std::byte*>(to), size, static_cast<const std::byte*>(from), size, size, 1};
}

}  // namespace

extern "C" {

int cudaMemcpy(void* to, const void* from, std::size_t size, int kind) {
  BERTH_STANDIN_ENTER();
  return copy_bytes(kDefaultStream, row(to, from, size), kind, true);
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t size, int kind, StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  return copy_bytes(stream, row(to, from, size), kind, false);
}

int cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                        std::size_t size, StreamHandle handle) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    if (!entry.machine.valid_device(to_device) || !entry.machine.valid_device(from_device))
      return kInvalidDevice;
    return copy(entry, stream, row(to, from, size), kDeviceToDevice, false);
  });
}

int cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                      std::size_t width, std::size_t height, int kind, StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  if (width > to_pitch || width > from_pitch) return remember(kInvalidValue);
  const Rectangle area{static_cast<std::byte*>(to),
                       to_pitch,
                       static_cast<const std::byte*>(from),
                       from_pitch,
                       width,
                       height};
  return copy_bytes(stream, area, kind, false);
}

int cudaMemset(void* pointer, int value, std::size_t size) {
  BERTH_STANDIN_ENTER();
  return fill_bytes(kDefaultStream, pointer, value, size);
}

int cudaMemsetAsync(void* pointer, int value, std::size_t size, StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  return fill_bytes(stream, pointer, value, size);
}

int cuMemsetD32Async(std::uintptr_t address, unsigned value, std::size_t count,
                     StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  auto* words = reinterpret_cast<unsigned*>(address);
  return fill(stream, "cuMemsetD32Async", words, count * sizeof(unsigned),
              [=] { std::fill_n(words, count, value); });
}

int cuStreamWriteValue32_v2(StreamHandle stream, std::uintptr_t address, unsigned value,
                            unsigned /*flags*/) {
  return cuMemsetD32Async(address, value, 1, stream);
}

}  // extern "C"
}  // namespace berth::standin
