#include "csrc/standin/machine.h"

#include "csrc/standin/pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace berth::standin {

Machine::Machine()
    : options(Options::from_environment()),
      gpu(*find_gpu(options.gpu)),
      pace_(options.pace),
      random_(options.seed) {
  const std::size_t total = options.memory != 0 ? options.memory : gpu.total_memory;
  for (int device = 0; device < options.devices; ++device) {
    auto state = std::make_unique<DeviceState>(total, options.overcommit);
    state->legacy = make_stream(device, 0, 0);
    state->legacy->legacy = true;
    state->default_pool = state->pool = std::make_shared<Pool>();
    state->pool->device = device;
    pools[state->default_pool.get()] = state->default_pool;
    devices.push_back(std::move(state));
  }
}

Machine& Machine::get() {
  static Machine& machine = [&]() -> Machine& {
    auto* made = new Machine;
    if (!made->options.report.empty()) {
      static const pid_t owner = getpid();
      std::atexit([] {
        if (getpid() == owner) write_run_report(get());
      });
    }
    // As with a real driver, a child that was forked afterwards gets nothing but errors.
    pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                   [] {
                     get().mutex.unlock();
                     mark_forked();
                   });
    return *made;
  }();
  return machine;
}

int& Machine::current_device() {
  thread_local int device = 0;
  return device;
}

bool& Machine::has_context() {
  thread_local bool has = false;
  return has;
}

void Machine::use(int number) {
  has_context() = true;
  DeviceState& state = device(number);
  if (state.context) return;
  state.context = true;
  // A total that was set is what the program gets, so that a test can fill it to the byte.
  if (options.memory == 0) state.memory.allocate(gpu.context_bytes);
}

Status Machine::allocate(int number, std::size_t size, Allocation::Kind kind, Allocation& made) {
  use(number);
  DeviceState& state = device(number);
  const std::size_t counted = counted_bytes(size);
  if (counted < size) return kMemoryAllocation;
  const auto offset = state.memory.allocate(counted);
  if (!offset) return kMemoryAllocation;
  void* address = map_file(state.memory.file(), *offset, counted);
  if (address == nullptr) {
    state.memory.release(*offset, counted);
    return kMemoryAllocation;
  }
  made = {reinterpret_cast<std::uintptr_t>(address), size, counted, kind, number, *offset, 0};
  space.add(made);
  return kSuccess;
}

Status Machine::allocate_managed(int number, std::size_t size, Allocation& made) {
  constexpr std::size_t kMost = std::size_t{1} << 45;  // half of what the file may hold
  use(number);
  if (managed_ == nullptr) managed_ = std::make_unique<DeviceMemory>(kMost);
  const std::size_t counted = counted_bytes(size);
  const auto offset = counted < size ? std::nullopt : managed_->allocate(counted);
  void* const address = offset ? map_file(managed_->file(), *offset, counted) : nullptr;
  if (address == nullptr) {
    if (offset) managed_->release(*offset, counted);
    return kMemoryAllocation;
  }
  made = {reinterpret_cast<std::uintptr_t>(address),
          size,
          counted,
          Allocation::Kind::kManaged,
          number,
          *offset};
  made.resident = device(number).memory.take(counted);
  space.add(made);
  return kSuccess;
}

void Machine::migrate(Allocation& managed, int number) {
  device(managed.device).memory.give(managed.resident);
  managed.resident = 0;
  if (number < 0) return;
  use(number);
  managed.device = number;
  managed.resident = device(number).memory.take(managed.mapped);
}

void Machine::release(Allocation allocation) {
  check_registrations(allocation.begin, allocation.mapped);
  space.remove(allocation.begin);
  if (options.feeds_values) known.remove(allocation.begin, allocation.mapped);
  munmap(reinterpret_cast<void*>(allocation.begin), allocation.mapped);
  if (allocation.kind == Allocation::Kind::kManaged) {
    managed_->release(allocation.offset, allocation.mapped);
    device(allocation.device).memory.give(allocation.resident);
  } else if (allocation.on_device() && allocation.kind != Allocation::Kind::kImported) {
    device(allocation.device).memory.release(allocation.offset, allocation.mapped);
  }
}

}  // namespace berth::standin
