#include "csrc/standin/driver/module.h"

#include "tests/catch.h"
#include "tests/standin/fixture.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <string>

namespace berth::standin {
namespace {

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A cubin as ptxas writes it, as far as it is read, with one kernel.
std::string cubin(std::uint32_t registers, std::uint32_t frame, std::uint64_t shared,
                  bool reserves) {
  struct Part {
    std::string name = {}, contents = {};
    std::uint64_t size = 0;
    unsigned link = 0;
  };
  std::string strings("\0scale", 7), symbols, information;
  append(symbols, Elf64_Sym{});
  Elf64_Sym symbol{};
  symbol.st_name = 1;
  append(symbols, symbol);
  for (const auto& [kind, value] : {std::pair{0x2fU, registers}, std::pair{0x11U, frame}}) {
    append(information, static_cast<std::uint32_t>(4 | kind << 8 | 8 << 16));
    append(information, std::uint32_t{1});
    append(information, value);
  }
  std::vector<Part> parts = {{},
                             {".strtab", strings},
                             {".symtab", symbols, 0, 1},
                             {".nv.info", information},
                             {".text.scale", std::string(64, 'x')},
                             {".nv.shared.scale", "", shared}};
  if (reserves) parts.push_back({".nv.shared.reserved.0"});
  std::string names;
  parts.push_back({".shstrtab"});
  std::vector<Elf64_Shdr> headers;
  for (const Part& part : parts) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    names += part.name + '\0';
    header.sh_link = part.link;
    headers.push_back(header);
  }
  parts.back().contents = names;
  std::string image(sizeof(Elf64_Ehdr), '\0');
  for (std::size_t i = 0; i < parts.size(); ++i) {
    headers[i].sh_offset = image.size();
    headers[i].sh_size = parts[i].contents.empty() ? parts[i].size : parts[i].contents.size();
    image += parts[i].contents;
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shoff = image.size();
  header.e_shnum = static_cast<Elf64_Half>(headers.size());
  header.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
  for (const Elf64_Shdr& section : headers) append(image, section);
  std::memcpy(image.data(), &header, sizeof header);
  return image;
}

constexpr int kMaxThreads = 0, kShared = 1, kLocal = 2 + 1, kRegisters = 4, kDynamicShared = 8;

int attribute(Opaque function, int which) {
  int value = -1;
  REQUIRE(cuFuncGetAttribute(&value, which, function) == kSuccess);
  return value;
}

}  // namespace

TEST_CASE("A module's kernels take what their compiler wrote", "[standin][module]") {
  const Fixture fixture;
  const std::string image = cubin(100, 16, 3072, true);
  Opaque module = nullptr, kernel = nullptr;
  REQUIRE(cuModuleLoadData(&module, image.data()) == kSuccess);
  CHECK(cuModuleGetFunction(&kernel, module, "other") == kSymbolNotFound);
  REQUIRE(cuModuleGetFunction(&kernel, module, "scale") == kSuccess);
  CHECK(attribute(kernel, kRegisters) == 100);
  CHECK(attribute(kernel, kLocal) == 16);
  CHECK(attribute(kernel, kShared) == 2048);  // without what is the driver's
  CHECK(attribute(kernel, kMaxThreads) == 608);
  CHECK(attribute(kernel, kDynamicShared) == 48 * 1024);
  CHECK(cuModuleUnload(module) == kSuccess);
  CHECK(cuModuleUnload(module) == kInvalidResourceHandle);
  int value = 0;
  CHECK(cuFuncGetAttribute(&value, kRegisters, kernel) == kInvalidResourceHandle);
}

TEST_CASE("A launch that the GPU could not run is refused", "[standin][module]") {
  const Fixture fixture;
  const std::string image = cubin(128, 0, 1024, false);
  Opaque module = nullptr, kernel = nullptr;
  REQUIRE(cuModuleLoadData(&module, image.data()) == kSuccess);
  REQUIRE(cuModuleGetFunction(&kernel, module, "scale") == kSuccess);
  const auto launch = [&](unsigned grid, unsigned block, unsigned shared) {
    return cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, shared, nullptr, nullptr, nullptr);
  };
  CHECK(launch(1, 512, 0) == kSuccess);
  CHECK(launch(1, 544, 0) == 701);  // registers
  CHECK(launch(0, 32, 0) == kInvalidValue);
  CHECK(launch(1, 1056, 0) == kInvalidValue);
  CHECK(launch(1, 32, 64 * 1024) == kInvalidValue);
  CHECK(cuFuncSetAttribute(kernel, kDynamicShared, 64 * 1024) == kSuccess);
  CHECK(launch(1, 32, 64 * 1024) == kSuccess);
  CHECK(cuFuncSetAttribute(kernel, kDynamicShared, 1 << 20) == kInvalidValue);
  CHECK(cuModuleUnload(module) == kSuccess);
  CHECK(launch(1, 32, 0) == kInvalidResourceHandle);
}

TEST_CASE("A kernel of a module takes its turn, also in a graph", "[standin][module]") {
  const Fixture fixture(kLazyPace);
  const std::string image = cubin(32, 0, 0, false);
  Opaque module = nullptr, kernel = nullptr, graph = nullptr, executable = nullptr;
  REQUIRE(cuModuleLoadData(&module, image.data()) == kSuccess);
  REQUIRE(cuModuleGetFunction(&kernel, module, "scale") == kSuccess);
  const StreamHandle stream = make_stream();
  const auto launch = [&] {
    return cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
  };
  REQUIRE(launch() == kSuccess);
  CHECK(cudaStreamQuery(stream) == kNotReady);
  CHECK(cudaStreamSynchronize(stream) == kSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, kCaptureGlobal) == kSuccess);
  REQUIRE(launch() == kSuccess);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == kSuccess);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == kSuccess);
  REQUIRE(cudaGraphLaunch(executable, stream) == kSuccess);
  CHECK(cudaStreamQuery(stream) == kNotReady);
  CHECK(cudaStreamSynchronize(stream) == kSuccess);
  CHECK(cuModuleUnload(module) == kSuccess);
}

TEST_CASE("What is no module is refused, wherever it is cut", "[standin][module]") {
  const std::string image = cubin(32, 0, 0, true);
  REQUIRE(Module::load(image.data(), image.size()) != nullptr);
  for (std::size_t size = 0; size < image.size(); ++size) {
    const std::string cut = image.substr(0, size);
    CHECK(Module::load(cut.data(), cut.size()) == nullptr);
  }
  const std::string text = "no module";
  CHECK(Module::load(text.data(), text.size()) == nullptr);
  const std::string ptx = "//\n.version 9.0\n";
  const auto module = Module::load(ptx.data(), ptx.size());
  REQUIRE(module != nullptr);
  CHECK(module->find("any") != nullptr);
}

TEST_CASE("Zeros give large memory back to the host", "[standin][memory]") {
  const Fixture fixture(kEagerPace);
  constexpr std::size_t kSize = std::size_t{1} << 20;
  char* memory = device_memory(kSize);
  cudaMemset(memory, 7, kSize);
  cudaMemset(memory + 100, 0, kSize - 200);
  std::string found(kSize, '\0');
  REQUIRE(cudaMemcpy(found.data(), memory, kSize, kDeviceToHost) == kSuccess);
  CHECK(found == std::string(100, 7) + std::string(kSize - 200, 0) + std::string(100, 7));
  cudaFree(memory);
}

}  // namespace berth::standin
