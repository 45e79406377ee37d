#include "csrc/standin/control.h"

#include "csrc/standin/entry.h"
#include "csrc/standin/library_handle.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace berth::standin {

extern "C" {

int berth_standin_version() { return 1; }

int berth_standin_hand_out(const void* pointer, std::size_t size, StreamHandle handle) {
  Entry entry;
  const std::shared_ptr<Stream> stream = entry.machine.stream_of(handle);
  return stream && entry.machine.hand_out(*stream, reinterpret_cast<std::uintptr_t>(pointer), size,
                                          "a block")
             ? 1
             : 0;
}

void berth_standin_forget(const void* pointer, std::size_t size) {
  Entry entry;
  entry.machine.known.remove(reinterpret_cast<std::uintptr_t>(pointer), size);
}

void berth_standin_feed(const void* element, std::size_t size) {
  FedElement& fed = fed_element();
  fed.size = std::min(size, FedElement::kMost);
  if (fed.size != 0) std::memcpy(fed.bytes, element, fed.size);
}

std::size_t berth_standin_violations() {
  Entry entry;
  return entry.machine.violations.size();
}

std::size_t berth_standin_violation(std::size_t n, char* text, std::size_t size) {
  Entry entry;
  if (n >= entry.machine.violations.size()) return 0;
  const std::string& violation = entry.machine.violations[n];
  if (size != 0) text[violation.copy(text, size - 1)] = '\0';
  return violation.size();
}

void berth_standin_forget_violations() {
  Entry entry;
  entry.machine.violations.clear();
}

void berth_standin_fail(const char* name, std::uint64_t first, int error, std::uint64_t count) {
  fail_calls(name, first, static_cast<Status>(error), count);
}

void berth_standin_clear_faults() { clear_faults(); }
std::uint64_t berth_standin_calls(const char* name) { return count_calls(name); }
void berth_standin_reset_calls() { reset_counts(); }
std::uint64_t berth_standin_memory_calls() { return count_memory_calls().all(); }
double berth_standin_driver_microseconds() {
  Entry entry;
  return driver_costs(entry.machine.gpu.short_name).of(count_memory_calls());
}

void berth_standin_set_driver(int driver) {
  Entry entry;
  entry.machine.driver = static_cast<Driver>(driver);
}

void berth_standin_refuse(unsigned refusals) {
  Entry entry;
  entry.machine.refusals = refusals;
}

void berth_standin_set_pace(int pace) {
  Entry entry;
  entry.machine.set_pace(static_cast<Pace>(pace));
}

void berth_standin_seed(std::uint64_t seed) {
  Entry entry;
  entry.machine.seed(seed);
}

std::size_t berth_standin_run(std::size_t count) {
  Entry entry;
  return entry.machine.run(entry.lock, count);
}

std::size_t berth_standin_used(int device) {
  Entry entry;
  return entry.machine.valid_device(device) ? entry.machine.device(device).memory.used() : 0;
}

std::size_t berth_standin_peak(int device) {
  Entry entry;
  return entry.machine.valid_device(device) ? entry.machine.device(device).memory.peak() : 0;
}

void berth_standin_take_elsewhere(int device, std::size_t bytes) {
  Entry entry;
  if (entry.machine.valid_device(device)) entry.machine.device(device).memory.take_elsewhere(bytes);
}

std::size_t berth_standin_live_allocations() {
  Entry entry;
  return entry.machine.space.all().size();
}

void berth_standin_unload() { unload_driver(); }

int berth_standin_enter(const char* name) {
  // By address: the libraries pass literals. Never destroyed: they are called as late as static
  // destructors.
  static auto* const sites = new std::map<const char*, CallSite>;
  static std::mutex mutex;
  std::unique_lock lock(mutex);
  CallSite& site = sites->try_emplace(name, name).first->second;
  lock.unlock();
  return site.enter();
}

int berth_standin_library_work(StreamHandle handle, const char* name) {
  return on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    return entry.machine.enqueue(entry.lock, *stream,
                                 {.kind = Operation::Kind::kKernel, .name = name});
  });
}

int berth_standin_handle_work(const void* handle, const char* name) {
  if (const int status = berth_standin_enter(name); status != kSuccess) return status;
  return berth_standin_library_work(static_cast<const LibraryHandle*>(handle)->stream, name);
}

}  // extern "C"
}  // namespace berth::standin
