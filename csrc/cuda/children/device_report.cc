// berth-device-report FILE [INDEX]: what the driver can do with each GPU of this process, or with
// that one, and what berth takes of it, as JSON. `berth doctor --device` starts it and reads it.
#include "csrc/core/check.h"
#include "csrc/cuda/calls.h"
#include "csrc/cuda/cuda_device.h"
#include "csrc/cuda/current_device.h"
#include "csrc/cuda/memory_forms.h"

#include <berth/config.h>

#include <dlfcn.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <future>
#include <string>
#include <vector>

namespace {

using namespace berth;
using Json = nlohmann::ordered_json;

constexpr Bytes kPage = Bytes{2} << 20;  // of a try, or what the driver has at least

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void check(const CudaCalls& calls, const Status& status) {
  BERTH_CHECK(status.ok(), kSystem, "{} failed: {}", status.call(), calls.text(status.number()));
}

// Throws in the words of whoever has to mend it. Before the runtime is asked, whose answer without
// a driver is that the driver is too old.
void must_have_driver() {
  BERTH_CHECK(dlopen("libcuda.so.1", RTLD_NOW) != nullptr, kSystem,
              "there is no driver of CUDA here: {}", dlerror());
}

int count_gpus(const CudaCalls& calls) {
  int count = 0;
  const Status counted = calls.cudaGetDeviceCount(&count);
  BERTH_CHECK(counted.ok() && count > 0, kSystem, "the driver of CUDA shows this process no GPU{}",
              counted.ok() ? "" : ": " + calls.text(counted.number()));
  return count;
}

Json try_to_json(const MemoryForm& form, const MemoryPromises& promises, const CudaCalls& calls,
                 CudaPrimary& primary) {
  Json json = {{"name", fmt::format("{}{}", form.mapped ? "virtual, " : "", form.text)},
               {"promised", form.promised(promises)},
               {"works", nullptr},
               {"error", nullptr},
               {"page_bytes", nullptr}};
  if (!form.promised(promises)) return json;
  const MemoryTry found = try_memory_form(calls, primary, form, kPage);
  if (found.outcome != MemoryTry::Outcome::kUnknown)
    json["works"] = found.outcome == MemoryTry::Outcome::kWorks;
  if (!found.failure.empty()) json["error"] = found.failure;
  if (found.page != 0) json["page_bytes"] = found.page;
  return json;
}

Json recommended_bytes(const CudaCalls& calls, const MemoryPromises& promises, int index) {
  if (!promises.mapped) return nullptr;
  std::size_t granularity = 0;
  const CUmemAllocationProp property = kMemoryForms[2].property(index);
  const Status status = calls.cuMemGetAllocationGranularity(&granularity, &property,
                                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  return status.ok() ? Json(granularity) : Json(nullptr);
}

Json describe(int index, int count, MemoryKind wanted) {
  const CudaCalls calls;
  CudaPrimary primary{index};
  cudaDeviceProp properties;
  check(calls, calls.cudaGetDeviceProperties(&properties, index));
  const MemoryPromises promises = memory_promises(calls, index);
  Json json = {{"index", index},
               {"name", properties.name},
               {"total_bytes", properties.totalGlobalMem},
               {"free_bytes", nullptr},
               {"virtual_memory", promises.mapped},
               {"file_descriptors", promises.descriptors},
               {"rdma", promises.rdma},
               {"recommended_page_bytes", recommended_bytes(calls, promises, index)},
               {"peers", Json::array()},
               {"tries", Json::array()},
               {"memory", nullptr},
               {"why", nullptr},
               {"refused", nullptr}};
  for (int other = 0; other < count; ++other) {
    int can = 0;
    if (other != index && calls.cudaDeviceCanAccessPeer(&can, index, other).ok() && can != 0)
      json["peers"].push_back(other);
  }
  for (const MemoryForm& form : kMemoryForms)
    json["tries"].push_back(try_to_json(form, promises, calls, primary));
  // What berth makes of it, not what is to be expected.
  try {
    const auto device = make_cuda_device({.index = index, .memory = wanted});
    json["memory"] = device->memory() == MemoryKind::kVirtual ? "virtual" : "plain";
    json["why"] = device->properties().memory;
    Bytes free = 0;
    if (device->free_bytes(&free).ok()) json["free_bytes"] = free;
  } catch (const Error& error) {
    json["refused"] = error.what();
  }
  return json;
}

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kAuto:
      return "auto";
    case MemoryKind::kVirtual:
      return "virtual";
    case MemoryKind::kPlain:
      break;
  }
  return "plain";
}

Json report(int only) {
  const Config config = Config::from_environment();
  must_have_driver();
  const CudaCalls calls;
  int driver = 0;
  int runtime = 0;
  const int count = count_gpus(calls);
  BERTH_CHECK(only < count, kUsage, "cuda:{} was requested, the driver has {}", only, count);
  check(calls, calls.cudaDriverGetVersion(&driver));
  check(calls, calls.cudaRuntimeGetVersion(&runtime));
  Json json = {{"driver", version_text(driver)},
               {"runtime", version_text(runtime)},
               {"memory_setting", name_of(config.memory)},
               {"handle_setting_bytes", config.handle},
               {"devices", Json::array()}};
  // Each makes a context, which takes most of the time.
  std::vector<std::future<Json>> devices;
  for (int index = only < 0 ? 0 : only; index < (only < 0 ? count : only + 1); ++index)
    devices.push_back(std::async(std::launch::async, describe, index, count, config.memory));
  for (auto& device : devices) json["devices"].push_back(device.get());
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fmt::print(stderr, "berth-device-report is started by `berth doctor --device`\n");
    return 2;
  }
  Json json;
  int code = 0;
  try {
    json = report(argc == 3 ? std::stoi(argv[2]) : -1);
  } catch (const Error& error) {
    json = {{"error", error.what()}};
    code = error.kind() == ErrorKind::kUsage ? 2 : 4;
  } catch (const std::exception& error) {
    json = {{"error", error.what()}};
    code = 4;
  }
  std::ofstream file(argv[1]);
  file << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::flush;
  return file ? code : 4;
}
