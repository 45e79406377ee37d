#include "csrc/cuda/memory_forms.h"

#include "csrc/core/check.h"

#include <fmt/format.h>
#include <unistd.h>

namespace berth {
namespace {

// What goes wrong once may go well the second time: then only the form is not taken.
template <class Call>
void give_back(const Call& call, Status* status) noexcept {
  const Status given = call();
  if (!given.ok()) (void)call();
  if (status->ok()) *status = given;
}

Status try_mapped(const CudaCalls& calls, const CudaPrimary& primary,
                  const CUmemAllocationProp& property, Bytes page) noexcept {
  CUdeviceptr address = 0;
  if (const Status status = calls.cuMemAddressReserve(&address, page, 0, 0, 0); !status.ok())
    return status;
  CUmemGenericAllocationHandle handle = 0;
  Status status = calls.cuMemCreate(&handle, page, &property, 0);
  if (status.ok()) {
    status = calls.cuMemMap(address, page, 0, handle, 0);
    if (status.ok()) {
      CUmemAccessDesc access{};
      access.location = property.location;
      access.location.id = primary.index;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      status = calls.cuMemSetAccess(address, page, &access, 1);
      if (status.ok() && property.requestedHandleTypes != 0) {
        int descriptor = -1;
        status = calls.cuMemExportToShareableHandle(&descriptor, handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (status.ok()) close(descriptor);
      }
      give_back([&] { return calls.cuMemUnmap(address, page); }, &status);
    }
    give_back([&] { return calls.cuMemRelease(handle); }, &status);
  }
  give_back([&] { return calls.cuMemAddressFree(address, page); }, &status);
  return status;
}

Status try_plain(const CudaCalls& calls, Bytes page) noexcept {
  void* memory = nullptr;
  Status status = calls.cudaMalloc(&memory, page);
  if (status.ok()) give_back([&] { return calls.cudaFree(memory); }, &status);
  return status;
}

bool says_nothing(const Status& status) noexcept {
  return status.code() == Status::Code::kOutOfMemory || status.code() == Status::Code::kSticky ||
         status.code() == Status::Code::kGone;
}

}  // namespace

CUmemAllocationProp MemoryForm::property(int index) const noexcept {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  property.location.id = index;
  if (descriptors) property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  property.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
  return property;
}

MemoryPromises memory_promises(const CudaCalls& calls, int index) {
  const auto check = [&](const Status& status) {
    BERTH_CHECK(status.ok(), kSystem, "{} failed on cuda:{}: {}", status.call(), index,
                calls.text(status.number()));
  };
  CUdevice device = 0;
  check(calls.cuDeviceGet(&device, index));
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    check(calls.cuDeviceGetAttribute(&value, attribute, device));
    return value != 0;
  };
  MemoryPromises promises;
  promises.mapped = calls.cuMemAddressReserve.pointer != nullptr &&
                    has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  if (!promises.mapped) return promises;
  promises.descriptors = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  promises.rdma = has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  return promises;
}

MemoryTry try_memory_form(const CudaCalls& calls, CudaPrimary& primary, const MemoryForm& form,
                          Bytes page_bytes) {
  MemoryTry found;
  const auto failed = [&](const Status& status) {
    found.failure = fmt::format("{} failed: {}", status.call(), calls.text(status.number()));
    return found;
  };
  const CudaCurrentDevice current(calls, primary);
  Status status = current.status();
  const CUmemAllocationProp property = form.property(primary.index);
  if (status.ok() && form.mapped) {
    std::size_t granularity = 0;
    status = calls.cuMemGetAllocationGranularity(&granularity, &property,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (!status.ok()) return failed(status);  // whatever it is: there are no pages without
    BERTH_CHECK(is_power_of_two(granularity) && page_bytes <= kMaxBytes, kSystem,
                "pages of {} bytes on cuda:{}, whose driver maps in units of {}", page_bytes,
                primary.index, granularity);
    found.granularity = found.page = granularity;
    while (found.page < page_bytes) found.page *= 2;
    status = try_mapped(calls, primary, property, found.page);
  } else if (status.ok()) {
    found.page = page_bytes;
    status = try_plain(calls, found.page);
  }
  if (says_nothing(status)) found.outcome = MemoryTry::Outcome::kUnknown;
  if (!status.ok()) return failed(status);
  found.outcome = MemoryTry::Outcome::kWorks;
  return found;
}

}  // namespace berth
