#include "csrc/capi/devices.h"

#include "csrc/capi/cuda_device_of_process.h"
#include "csrc/core/setup_mutex.h"
#include "csrc/device/host_device.h"
#include "csrc/facts/rounding.h"

#include <pthread.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace berth::capi {
namespace {

constexpr int kMaxDevices = 64;

std::array<std::atomic<DeviceOfProcess*>, kMaxDevices + 1> devices{};  // the host first
// Numbers as in `devices`. Made with the first of them and never destroyed: blocks are used as late
// as by static destructors.
std::atomic<AddressTable*> addresses{nullptr};

std::atomic<bool> forked{false};
SetupMutex making;  // covers what follows, and stores to `devices`
// Null until it is told or first needed; never destroyed, since devices may be made as late as by
// static destructors.
const Settings* settings_of_process = nullptr;
bool prepared = false;

class Host final : public DeviceOfProcess {
 public:
  explicit Host(const Settings& settings)
      : device_(make_host_device()),
        noting_(noting(*device_, -1)),
        streams_(noting_),
        allocator_(streams_, options(settings, *device_, -1)) {}
  Allocator& allocator() noexcept override { return allocator_; }
  Device& device() noexcept override { return *device_; }
  LaneKey lane_of(void* stream) override {
    return streams_.number_of(reinterpret_cast<std::uint64_t>(stream));
  }
  void forget(void* stream) override { streams_.forget(reinterpret_cast<std::uint64_t>(stream)); }
  std::unique_ptr<Hold> hold(void*) override { return nullptr; }

 private:
  std::unique_ptr<Device> device_;
  NotingDevice noting_;
  StreamNumbers streams_;
  Allocator allocator_;
};

template <class Act>
void each(Act act) {
  for (auto& one : devices)
    if (DeviceOfProcess* const made = one.load(std::memory_order_acquire)) act(*made);
}

// Requires `making`.
void prepare_process() {
  if (prepared) return;
  // Nothing is held over a fork, since the child asks nothing of berth: see existing_device().
  BERTH_CHECK(::pthread_atfork(
                  nullptr, nullptr, +[] { forked = true; }) == 0,
              kSystem, "pthread_atfork has no memory left to register berth's handler");
  BERTH_CHECK(std::atexit(+[] {
                if (forked) return;
                each([](DeviceOfProcess& one) { one.allocator().shut_down(); });
                end_cuda();
              }) == 0,
              kSystem, "atexit has no memory left to register berth's shutdown");
  prepared = true;
}

}  // namespace

NotingDevice DeviceOfProcess::noting(Device& device, int index) {
  return {device, *addresses.load(std::memory_order_acquire), index + 1};
}

Allocator::Options DeviceOfProcess::options(const Settings& settings, const Device& device,
                                            int index) const {
  Allocator::Options options;
  options.config = settings.config;
  options.program.device_name = device.properties().name;
  options.program.device_bytes = device.properties().total_bytes;
  options.program.tag = settings.config.tag;
  options.alignment = facts::kCudaUnit;
  options.device_index = index;
  options.captures = &graphs_.captures();
  options.pool.growth_bytes =
      std::max<Bytes>(options.pool.growth_bytes, device.properties().page_bytes);
  return options;
}

void configure(Settings settings) {
  BERTH_CHECK(!in_forked_child(), kUsage,
              "berth_init was called in a forked child: berth serves the parent only");
  const std::lock_guard lock(making);
  bool any = false;
  each([&](DeviceOfProcess&) { any = true; });
  BERTH_CHECK(!any, kUsage, "berth_init comes before the first block: a device is in use already");
  delete std::exchange(settings_of_process, new Settings(std::move(settings)));
}

DeviceOfProcess* existing_device(int index) noexcept {
  // What a forked child has is a copy in which any lock may be held for ever.
  if (in_forked_child() || index < -1 || index >= kMaxDevices) return nullptr;
  return devices[static_cast<std::size_t>(index + 1)].load(std::memory_order_acquire);
}

DeviceOfProcess* likely_device(const void* address) noexcept {
  const AddressTable* const table = addresses.load(std::memory_order_acquire);
  const int number = table != nullptr ? table->find(address) : AddressTable::kNone;
  return number == AddressTable::kNone ? nullptr : existing_device(number - 1);
}

std::vector<DeviceOfProcess*> existing_devices() {
  std::vector<DeviceOfProcess*> made;
  if (in_forked_child()) return made;
  each([&](DeviceOfProcess& device) { made.push_back(&device); });
  return made;
}

DeviceOfProcess& device(int index) {
  if (DeviceOfProcess* const made = existing_device(index)) [[likely]]
    return *made;
  BERTH_CHECK(index >= -1 && index < kMaxDevices, kUsage,
              "device {} was requested: there are -1, the host, and 0 to {}", index,
              kMaxDevices - 1);
  BERTH_CHECK(!in_forked_child(), kUsage,
              "device {} was requested in a forked child: berth serves the parent only", index);
  const std::lock_guard lock(making);
  if (DeviceOfProcess* const made = existing_device(index)) return *made;
  if (settings_of_process == nullptr)
    settings_of_process = new Settings{Config::from_environment(), false};
  prepare_process();
  if (addresses.load(std::memory_order_relaxed) == nullptr)
    addresses.store(new AddressTable, std::memory_order_release);
  std::unique_ptr<DeviceOfProcess> made =
      index == -1 ? std::make_unique<Host>(*settings_of_process)
                  : make_cuda_device_of_process(*settings_of_process, index);
  devices[static_cast<std::size_t>(index + 1)].store(made.get(), std::memory_order_release);
  return *made.release();
}

bool in_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

}  // namespace berth::capi
