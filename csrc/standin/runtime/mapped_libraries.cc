// Part of the stand-in's libcudart alone: ends a process that the launcher started and that has
// mapped another libcudart as well. Part of its calls may have gone there, so nothing it showed
// would hold.

#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kExitCode = 86;

struct Search {
  std::string other;
};

int look(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
  if (std::strncmp(name, "libcudart.so", 12) != 0) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const auto begin = info->dlpi_addr + header.p_vaddr;
    const auto here = reinterpret_cast<ElfW(Addr)>(&look);
    if (header.p_type == PT_LOAD && here >= begin && here < begin + header.p_memsz) return 0;
  }
  search.other = info->dlpi_name;
  return 1;
}

}  // namespace

// Runs at exit, when all that the program wanted is mapped.
__attribute__((destructor)) static void check_mapped_libraries() {
  if (std::getenv("BERTH_STANDIN_LAUNCHED") == nullptr) return;
  Search search;
  if (dl_iterate_phdr(look, &search) == 0) return;
  std::fflush(nullptr);
  std::fprintf(stderr, "berth-standin: the program has mapped a real libcudart: %s\n",
               search.other.c_str());
  std::_Exit(kExitCode);
}
