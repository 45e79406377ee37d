// The happens-before checker of Machine.

#include "csrc/standin/machine.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace berth::standin {
namespace {

constexpr std::size_t kMostPrinted = 10;

std::string range_text(std::uintptr_t begin, std::size_t size) {
  return fmt::format("[{:#x}, +{} bytes)", begin, size);
}

}  // namespace

void Machine::describe_history(const Stream& stream, std::string& text) const {
  for (const HistoryEntry& entry : stream.history) {
    text += fmt::format("    {:>5}: {} {}", entry.position, kind_name(entry.kind), entry.name);
    if (entry.size != 0) text += " " + range_text(entry.begin, entry.size);
    text += entry.position <= stream.completed ? " (over)\n" : " (queued)\n";
  }
}

std::string Machine::describe(const Accesses::Access& access) const {
  std::string text = fmt::format("{} by operation {} of {}",
                                 access.kind == Accesses::Kind::kWrite ? "written" : "read",
                                 access.epoch.value, component_labels_[access.epoch.component]);
  return text;
}

void Machine::report(std::string text) {
  if (violations.size() < kMostPrinted) std::fprintf(stderr, "berth stand-in: %s\n", text.c_str());
  violations.push_back(std::move(text));
  if (options.check == Options::Check::kAbort) std::abort();
}

std::optional<Accesses::Conflict> Machine::find_conflict(std::uintptr_t begin, std::size_t size,
                                                         Accesses::Kind kind,
                                                         const VectorClock& clock) const {
  for (const NamedBytes& piece : space.named(begin, size)) {
    auto conflict = accesses.find_conflict(piece.bytes, piece.bytes + piece.size, kind, clock);
    if (!conflict) continue;
    conflict->begin += piece.begin - piece.bytes;
    conflict->end += piece.begin - piece.bytes;
    return conflict;
  }
  return std::nullopt;
}

void Machine::check_registrations(std::uintptr_t begin, std::size_t size) {
  for (const auto& [handle, one] : registrations)
    if (one.begin < begin + size && begin < one.begin + one.size)
      report(fmt::format("memory {} goes while NCCL has {} of it registered",
                         range_text(begin, size), range_text(one.begin, one.size)));
}

void Machine::check_reach(const Stream& stream, const Operation& operation) {
  // Copies name both devices; what else there is works on the bytes itself.
  if (operation.kind != Operation::Kind::kKernel) return;
  for (const MemoryAccess& access : operation.accesses) {
    for (std::uintptr_t at = access.begin; at < access.begin + access.size;) {
      const Allocation* const there = space.holding(at);
      if (there == nullptr) break;
      at = there->end();
      const bool mapped = there->kind == Allocation::Kind::kMapped;
      if (!mapped && (there->kind != Allocation::Kind::kDevice || there->device == stream.device))
        continue;
      if (mapped ? (there->reach >> stream.device & 1) != 0
                 : device(stream.device).peers.contains(there->device))
        continue;
      report(fmt::format(
          "fault: kernel '{}' on device {} uses {} of device {}, which it has no "
          "access to",
          operation.name, stream.device, range_text(there->begin, there->mapped), there->device));
    }
  }
}

void Machine::note_accesses(Stream& stream, const Operation& operation) {
  if (options.check == Options::Check::kOff) return;
  check_reach(stream, operation);
  for (const MemoryAccess& access : operation.accesses) {
    if (const auto conflict = find_conflict(access.begin, access.size, access.kind, stream.clock)) {
      std::string text = fmt::format(
          "race: {} '{}' (operation {} of {}) {} {}, which was {}; nothing orders the two. Its "
          "history:\n",
          kind_name(operation.kind), operation.name, stream.enqueued, stream.label(),
          access.kind == Accesses::Kind::kWrite ? "writes" : "reads",
          range_text(conflict->begin, conflict->end - conflict->begin),
          describe(conflict->earlier));
      describe_history(stream, text);
      if (const auto other = components_[conflict->earlier.epoch.component].lock()) {
        text += fmt::format("  and that of {}:\n", other->label());
        describe_history(*other, text);
      }
      report(std::move(text));
    }
    const Accesses::Access noted{{stream.component, stream.enqueued}, access.kind};
    for (const NamedBytes& piece : space.named(access.begin, access.size)) {
      accesses.add(piece.bytes, piece.bytes + piece.size, noted, stream.clock);
      // mutant: alias-unmapped
      if (piece.begin != piece.bytes)
        accesses.add(piece.begin, piece.begin + piece.size, noted, stream.clock);
    }
  }
}

bool Machine::hand_out(Stream& stream, std::uintptr_t begin, std::size_t size,
                       std::string_view what) {
  VectorClock clock = stream.clock;
  clock.join(host_clock_);
  const auto conflict = find_conflict(begin, size, Accesses::Kind::kWrite, clock);
  if (!conflict) return true;
  std::string text = fmt::format(
      "{} {} handed out on {} while it was still {}. The history of {}:\n", what,
      range_text(begin, size), stream.label(), describe(conflict->earlier), stream.label());
  describe_history(stream, text);
  if (const auto other = components_[conflict->earlier.epoch.component].lock()) {
    text += fmt::format("  and that of {}:\n", other->label());
    describe_history(*other, text);
  }
  report(std::move(text));
  return false;
}

bool Machine::give_back(std::uintptr_t begin, std::size_t size, std::string_view what, bool check) {
  check = check && options.check != Options::Check::kOff;
  const auto conflict =
      check ? accesses.find_conflict(begin, begin + size, Accesses::Kind::kWrite, host_clock_)
            : std::nullopt;
  accesses.erase(begin, begin + size);
  if (!conflict) return check;
  std::string text =
      fmt::format("{} of {} while it may still be {}, which the host has not seen to be over:\n",
                  what, range_text(begin, size), describe(conflict->earlier));
  if (const auto other = components_[conflict->earlier.epoch.component].lock())
    describe_history(*other, text);
  report(std::move(text));
  return false;
}

}  // namespace berth::standin
