// What it costs to move pages of a GPU, and whether it waits for the work of the device.
//
// Five tables, as JSON:
// - `us`: microseconds that the driver's calls and those of Device take for so many pages together,
//   medians. cuMemUnmap and cuMemRelease are called page by page, cuMemSetAccess once. Of Device,
//   commit is creation, mapping and access; alias is retaining, mapping and access; decommit is of
//   what was aliased.
// - `one_handle_us`: the driver's calls for the same memory in one handle.
// - `live_handles_us`: the calls for one page while so many handles of a page are mapped, up to
// what
//   the device has room for.
// - `event_us`: to record an event, to ask for one that is over, to wait for one that follows a
//   copy of a few bytes.
// - `busy`: the calls for one page while the device copies for some 20 ms: microseconds, and in how
//   many of the rounds the copies were over when the call returned, that is, how often it waited.
//
// On the stand-in it runs, and its figures mean nothing.
#include "csrc/cuda/calls.h"
#include "csrc/cuda/cuda_device.h"
#include "csrc/cuda/current_device.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace berth;

struct Options {
  int rounds = 20;
  std::vector<std::size_t> pages = {1, 8, 64, 512};
  std::vector<std::size_t> handles = {0, 1000, 4000, 10000, 20000, 38000};
  Bytes copied = Bytes{128} << 20;  // by one of the copies that keep the device busy
  double busy_ms = 20;
};

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : times[times.size() / 2];
}

template <typename Call>
double microseconds(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

void must(const Status& status) {
  if (!status.ok())
    throw std::runtime_error(
        fmt::format("{} failed with error {}", status.call(), status.number()));
}

class PageCosts {
 public:
  explicit PageCosts(const Options& options)
      : options_(options), device_(make_cuda_device({})), current_(calls_, primary_) {
    must(current_.status());
    if (!device_->properties().aliases)
      throw std::runtime_error("the driver of this GPU has no virtual memory");
    page_ = device_->properties().page_bytes;
    property_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access_.location = property_.location;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    must(calls_.cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~PageCosts() { (void)calls_.cudaEventDestroy(event_); }
  PageCosts(const PageCosts&) = delete;
  PageCosts& operator=(const PageCosts&) = delete;

  nlohmann::json run() {
    for (const std::size_t pages : options_.pages) {
      for (int round = -1; round < options_.rounds; ++round) {  // the first warms up
        drivers_calls(pages, [&](const char* name, const auto& call) {
          const double took = microseconds(call);
          if (round >= 0) times_[name][pages].push_back(took);
        });
        one_handle(pages, round >= 0);
        devices_calls(pages, round >= 0);
      }
    }
    return {{"page_bytes", page_},
            {"rounds", options_.rounds},
            {"us", medians(times_)},
            {"one_handle_us", medians(one_handle_times_)},
            {"live_handles_us", by_live_handles()},
            {"event_us", events()},
            {"busy", while_busy()}};
  }

 private:
  using Times = std::map<std::string, std::map<std::size_t, std::vector<double>>>;

  static nlohmann::json medians(const Times& all) {
    nlohmann::json us;
    for (const auto& [name, by_count] : all)
      for (const auto& [count, times] : by_count) us[name][std::to_string(count)] = median(times);
    return us;
  }

  // The life of `pages` pages at two addresses; each step goes through `step`.
  template <typename Step>
  void drivers_calls(std::size_t pages, const Step& step) {
    const Bytes size = pages * page_;
    std::vector<CUmemGenericAllocationHandle> handles(pages);
    CUdeviceptr first = 0, second = 0;
    const auto each = [&](const auto& call) {
      for (std::size_t i = 0; i < pages; ++i) must(call(i));
    };
    must(calls_.cuMemAddressReserve(&first, size, 0, 0, 0));
    must(calls_.cuMemAddressReserve(&second, size, 0, 0, 0));
    step("cuMemCreate", [&] {
      each([&](std::size_t i) { return calls_.cuMemCreate(&handles[i], page_, &property_, 0); });
    });
    step("cuMemMap", [&] {
      each([&](std::size_t i) {
        return calls_.cuMemMap(first + i * page_, page_, 0, handles[i], 0);
      });
    });
    step("cuMemSetAccess", [&] { must(calls_.cuMemSetAccess(first, size, &access_, 1)); });
    step("cuMemMap of an alias", [&] {
      each([&](std::size_t i) {
        return calls_.cuMemMap(second + i * page_, page_, 0, handles[i], 0);
      });
    });
    step("cuMemSetAccess of an alias",
         [&] { must(calls_.cuMemSetAccess(second, size, &access_, 1)); });
    step("cuMemUnmap of all aliases at once", [&] { must(calls_.cuMemUnmap(second, size)); });
    step("cuMemUnmap",
         [&] { each([&](std::size_t i) { return calls_.cuMemUnmap(first + i * page_, page_); }); });
    step("cuMemRelease",
         [&] { each([&](std::size_t i) { return calls_.cuMemRelease(handles[i]); }); });
    must(calls_.cuMemAddressFree(first, size));
    must(calls_.cuMemAddressFree(second, size));
  }

  // The life of one handle at an address that is reserved; kept under `count`.
  void life_of_handle(CUdeviceptr address, Bytes size, std::size_t count, Times* times) {
    CUmemGenericAllocationHandle handle = 0;
    const auto timed = [&](const char* name, const auto& call) {
      const double took = microseconds([&] { must(call()); });
      if (times != nullptr) (*times)[name][count].push_back(took);
    };
    timed("cuMemCreate", [&] { return calls_.cuMemCreate(&handle, size, &property_, 0); });
    timed("cuMemMap", [&] { return calls_.cuMemMap(address, size, 0, handle, 0); });
    timed("cuMemSetAccess", [&] { return calls_.cuMemSetAccess(address, size, &access_, 1); });
    timed("cuMemUnmap", [&] { return calls_.cuMemUnmap(address, size); });
    timed("cuMemRelease", [&] { return calls_.cuMemRelease(handle); });
  }

  void one_handle(std::size_t pages, bool keep) {
    CUdeviceptr address = 0;
    must(calls_.cuMemAddressReserve(&address, pages * page_, 0, 0, 0));
    life_of_handle(address, pages * page_, pages, keep ? &one_handle_times_ : nullptr);
    must(calls_.cuMemAddressFree(address, pages * page_));
  }

  nlohmann::json by_live_handles() {
    const std::size_t most = *std::max_element(options_.handles.begin(), options_.handles.end());
    const Bytes all = (most + 1) * page_;
    CUdeviceptr base = 0;
    must(calls_.cuMemAddressReserve(&base, all, 0, 0, 0));
    std::vector<CUmemGenericAllocationHandle> live;
    // False where the device is full.
    const auto grow_to = [&](std::size_t count) {
      const std::size_t before = live.size();
      Bytes free = 0;
      must(device_->free_bytes(&free));
      if (free < (count - before) * page_ + (Bytes{1} << 30)) return false;
      while (live.size() < count) {
        CUmemGenericAllocationHandle handle = 0;
        must(calls_.cuMemCreate(&handle, page_, &property_, 0));
        must(calls_.cuMemMap(base + live.size() * page_, page_, 0, handle, 0));
        live.push_back(handle);
      }
      if (count != before)
        must(calls_.cuMemSetAccess(base + before * page_, (count - before) * page_, &access_, 1));
      return true;
    };
    Times times;
    for (const std::size_t count : options_.handles) {
      if (count < live.size() || !grow_to(count)) break;
      for (int round = 0; round < options_.rounds; ++round)
        life_of_handle(base + most * page_, page_, count, &times);
    }
    if (!live.empty()) must(calls_.cuMemUnmap(base, live.size() * page_));
    for (const CUmemGenericAllocationHandle handle : live) must(calls_.cuMemRelease(handle));
    must(calls_.cuMemAddressFree(base, all));
    return medians(times);
  }

  void devices_calls(std::size_t pages, bool keep) {
    const Bytes size = pages * page_;
    void *first = nullptr, *second = nullptr;
    must(device_->reserve(size, 0, &first));
    must(device_->reserve(size, 0, &second));
    std::vector<const void*> from(pages);
    // In no order, as holes come.
    for (std::size_t i = 0; i < pages; ++i)
      from[i] = static_cast<const std::byte*>(first) + (i * 7 + 3) % pages * page_;
    const auto timed = [&](const char* name, const auto& call) {
      const double took = microseconds([&] { must(call()); });
      if (keep) times_[name][pages].push_back(took);
    };
    timed("commit", [&] { return device_->commit(first, size, Device::Residency::kOnDemand); });
    timed("alias", [&] { return device_->alias(second, from.data(), pages); });
    timed("decommit", [&] { return device_->decommit(first, size); });
    must(device_->release(first, size));
    must(device_->release(second, size));
  }

  nlohmann::json events() {
    void* bytes = nullptr;
    must(calls_.cudaMalloc(&bytes, 512));
    std::vector<double> record, query, wait;
    for (int round = 0; round < 10 * options_.rounds; ++round) {
      must(calls_.cudaMemcpyAsync(bytes, static_cast<std::byte*>(bytes) + 256, 256,
                                  cudaMemcpyDeviceToDevice, cudaStreamPerThread));
      record.push_back(
          microseconds([&] { must(calls_.cudaEventRecord(event_, cudaStreamPerThread)); }));
      wait.push_back(microseconds([&] { must(calls_.cudaEventSynchronize(event_)); }));
      query.push_back(microseconds([&] { must(calls_.cudaEventQuery(event_)); }));
    }
    must(calls_.cudaFree(bytes));
    return {{"record", median(record)}, {"query", median(query)}, {"wait", median(wait)}};
  }

  // Copies that take the device at least busy_ms, and the event after them.
  void keep_busy(void* bytes, int copies) {
    for (int i = 0; i < copies; ++i)
      must(calls_.cudaMemcpyAsync(bytes, static_cast<std::byte*>(bytes) + options_.copied,
                                  options_.copied, cudaMemcpyDeviceToDevice, cudaStreamPerThread));
    must(calls_.cudaEventRecord(event_, cudaStreamPerThread));
  }

  nlohmann::json while_busy() {
    void* bytes = nullptr;
    must(calls_.cudaMalloc(&bytes, 2 * options_.copied));
    keep_busy(bytes, 10);
    must(calls_.cudaEventSynchronize(event_));
    const double ten = microseconds([&] {
      keep_busy(bytes, 10);
      must(calls_.cudaEventSynchronize(event_));
    });
    const int copies = std::clamp(static_cast<int>(10 * 1000 * options_.busy_ms / ten), 1, 10000);
    std::map<std::string, std::vector<double>> times;
    std::map<std::string, int> waited;
    const auto step = [&](const char* name, const auto& call) {
      keep_busy(bytes, copies);
      times[name].push_back(microseconds(call));
      if (calls_.cudaEventQuery(event_).ok()) ++waited[name];
      must(calls_.cudaEventSynchronize(event_));
    };
    for (int round = 0; round < options_.rounds; ++round) {
      drivers_calls(1, step);
      void* memory = nullptr;  // which is known to wait when it is freed
      step("cudaMalloc", [&] { must(calls_.cudaMalloc(&memory, page_)); });
      step("cudaFree", [&] { must(calls_.cudaFree(memory)); });
    }
    must(calls_.cudaFree(bytes));
    nlohmann::json found;
    for (const auto& [name, took] : times)
      found[name] = {{"us", median(took)}, {"waited", waited[name]}};
    return {{"ms", ten / 10 * copies / 1000}, {"calls", found}};
  }

  const Options options_;
  const std::unique_ptr<CudaDevice> device_;
  const CudaCalls calls_;
  CudaPrimary primary_;
  const CudaCurrentDevice current_;
  Bytes page_ = 0;
  CUmemAllocationProp property_{};
  CUmemAccessDesc access_{};
  cudaEvent_t event_ = nullptr;
  Times times_;
  Times one_handle_times_;
};

int run(int argc, char** argv) {
  Options options;
  bool smoke = false;
  CLI::App app("Times the calls that move pages of a GPU; prints JSON.");
  app.add_option("--rounds", options.rounds, "Of which medians are taken")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--pages", options.pages, "So many at once")->check(CLI::Range(1, 65536));
  app.add_option("--handles", options.handles, "So many alive, in rising order")
      ->check(CLI::Range(0, 1 << 20));
  app.add_flag("--smoke", smoke, "The smallest form, for tests");
  CLI11_PARSE(app, argc, argv);
  if (smoke)
    options = {
        .rounds = 2, .pages = {1, 8}, .handles = {0, 100}, .copied = Bytes{1} << 20, .busy_ms = 1};
  fmt::print("{}\n", PageCosts(options).run().dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "page_costs: {}\n", error.what());
    return 1;
  }
}
