// What the process did, written to BERTH_STANDIN_REPORT when it ends, for who started it. A process
// that never called CUDA writes none.

#include "csrc/standin/entry.h"
#include "csrc/standin/fat_binaries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace berth::standin {
namespace {

std::string devices_text(const Machine& machine) {
  std::string text;
  for (const auto& device : machine.devices) {
    struct stat about = {};
    if (fstat(device->memory.file(), &about) != 0) about.st_blocks = 0;
    text += fmt::format("{}{{\"peak_bytes\":{},\"host_bytes\":{},\"communicators\":[{}]}}",
                        text.empty() ? "" : ",", device->memory.peak(),
                        static_cast<std::uint64_t>(about.st_blocks) * 512,
                        fmt::join(device->communicators, ","));
  }
  return text;
}

// A path in quotes of JSON.
std::string quoted(const std::string& path) {
  std::string text = "\"";
  for (const char c : path) {
    if (c == '"' || c == '\\') text += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) text += c;
  }
  return text + "\"";
}

// The libraries whose kernels the GPU cannot run, and for which GPUs they were compiled.
std::string lacking_text(const GpuModel& gpu) {
  std::string text;
  for (const LibraryCode& code : registered_code()) {
    if (code.runs_on(gpu) || (code.compiled.empty() && code.translated.empty())) continue;
    text += fmt::format("{}{{\"library\":{},\"compiled\":[{}],\"translated\":[{}]}}",
                        text.empty() ? "" : ",", quoted(code.library),
                        fmt::join(code.compiled, ","), fmt::join(code.translated, ","));
  }
  return text;
}

}  // namespace

void write_run_report(const Machine& machine) noexcept {
  std::string path = machine.options.report;
  if (const std::size_t at = path.find("{pid}"); at != std::string::npos)
    path.replace(at, 5, std::to_string(getpid()));
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return;
  const HostReads& reads = machine.reads;
  const std::string text = fmt::format(
      "{{\"calls\":{},\"driver_us\":{:.1f},\"reads\":{},\"unknown_reads\":{},\"unknown_read_"
      "bytes\":{},"
      "\"skipped_reads\":{},\"devices\":[{}],\"lacking_code\":[{}]}}\n",
      count_calls("*"), driver_costs(machine.gpu.short_name).of(count_memory_calls()), reads.copies,
      reads.unknown, reads.bytes, reads.skipped, devices_text(machine), lacking_text(machine.gpu));
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
}

}  // namespace berth::standin
