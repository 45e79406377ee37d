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

void Machine::note_accesses(Stream& stream, const Operation& operation) {
  if (options.check == Options::Check::kOff) return;
  for (const MemoryAccess& access : operation.accesses) {
    const std::uintptr_t end = access.begin + access.size;
    if (const auto conflict =
            accesses.find_conflict(access.begin, end, access.kind, stream.clock)) {
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
    accesses.add(access.begin, end, {{stream.component, stream.enqueued}, access.kind},
                 stream.clock);
  }
}

bool Machine::hand_out(Stream& stream, std::uintptr_t begin, std::size_t size,
                       std::string_view what) {
  VectorClock clock = stream.clock;
  clock.join(host_clock_);
  const auto conflict = accesses.find_conflict(begin, begin + size, Accesses::Kind::kWrite, clock);
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

void Machine::give_back(std::uintptr_t begin, std::size_t size, std::string_view what, bool check) {
  if (check && options.check != Options::Check::kOff) {
    if (const auto conflict =
            accesses.find_conflict(begin, begin + size, Accesses::Kind::kWrite, host_clock_)) {
      std::string text = fmt::format(
          "{} of {} while it may still be {}, which the host has not seen to be over:\n", what,
          range_text(begin, size), describe(conflict->earlier));
      if (const auto other = components_[conflict->earlier.epoch.component].lock())
        describe_history(*other, text);
      report(std::move(text));
    }
  }
  accesses.erase(begin, begin + size);
}

}  // namespace berth::standin
