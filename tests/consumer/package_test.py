#!/usr/bin/env python3
"""What find_package(berth), pkg-config and a person with a C compiler find in an installed berth.

package_test.py BUILD CMAKE CXX CC [PYTHON LAUNCHER] installs the build folder BUILD of berth and builds small projects
against it; PYTHON, with torch, runs a program on the stand-in by LAUNCHER under the preloaded allocator.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, CMAKE, CXX, CC, *REST = sys.argv[1:]
PYTHON, LAUNCHER = REST if REST else (None, None)
NAMES = (
    "BERTH_MODE",
    "BERTH_TORCH_ROOT",
    "Torch_DIR",
    "CMAKE_PREFIX_PATH",
    "BERTH_PYTHON",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in NAMES}
C_PROGRAM = """
#include <berth/berth.h>
int main(void) {
  void* const block = berth_malloc(1000, BERTH_HOST, 0);
  berth_free(block, 1000, BERTH_HOST, 0);
  return block == 0;
}
"""

MAPPED = """
def mapped(name):
    with open("/proc/self/maps") as maps:
        return any(name in line for line in maps)
"""
PYTHON_PROGRAM = (
    MAPPED
    + """
import ctypes, json
print("before torch:", "libtorch" if mapped("libtorch_cpu") else "no libtorch")
import torch
blocks = [torch.zeros(1000, device="cuda") for _ in range(3)]
berth = ctypes.CDLL(None)
berth.berth_torch_cuda_stats.restype = ctypes.c_size_t
text = ctypes.create_string_buffer(1 << 16)
assert berth.berth_torch_cuda_stats(0, text, len(text)) > 0
print("requests:", json.loads(text.value)["requests"])
"""
)
CUDA_PROGRAM = """
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
int main() {
  std::vector<at::Tensor> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(at::empty({1000}, at::kCUDA));
  using Ask = std::size_t (*)(int, char*, std::size_t);
  const auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "berth_torch_cuda_stats"));
  static char text[1 << 16];
  if (ask == nullptr || ask(0, text, sizeof text) == 0) return 1;
  std::printf("requests: %d\\n", std::atoi(std::strstr(text, "requests") + 11));
}
"""


def cache(name):
    """A variable of the build's cache."""
    for line in (pathlib.Path(BUILD) / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split("=", 1)[1]
    return ""


TORCH = cache("BERTH_TORCH_LAST_ROOT")
WITH_TORCH = bool(TORCH)


def run(*command, **options):
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=ENVIRONMENT | options.pop("extra", {}),
        **options,
    )


class Installed(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        installed = run(CMAKE, "--install", BUILD, "--prefix", cls.prefix)
        assert installed.returncode == 0, installed.stdout + installed.stderr

    def project(self, lists, languages="CXX", **files):
        """A project with these lines behind its first two."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES {languages})\n{lists}\n"
        )
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    def configure(self, folder, *options):
        return run(
            CMAKE,
            "-S",
            folder,
            "-B",
            folder / "build",
            f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_CXX_COMPILER={CXX}",
            f"-DCMAKE_C_COMPILER={CC}",
            "-DBERTH_TORCH_STUBS=ALWAYS",
            *options,
        )

    def refused(self, folder, *options):
        """Why configuring fails, in one line."""
        done = self.configure(folder, *options)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return " ".join(done.stderr.split())

    def built(self, folder, *options):
        configured = self.configure(folder, *options)
        self.assertEqual(configured.returncode, 0, configured.stderr)
        built = run(CMAKE, "--build", folder / "build", "-j2")
        self.assertEqual(built.returncode, 0, built.stdout + built.stderr)
        return folder / "build"

    # --- The C ABI

    def test_the_static_library_links_into_a_project_of_c(self):
        folder = self.project(
            "find_package(berth CONFIG REQUIRED COMPONENTS capi)\nadd_executable(user user.c)\n"
            "target_link_libraries(user PRIVATE berth::capi)",
            "C",
            user_c=C_PROGRAM,
        )
        self.assertEqual(run(self.built(folder) / "user").returncode, 0)

    def test_a_target_of_the_users_own_is_not_linked_for_a_library_of_its_name(self):
        """find_package(berth) links libm, libdl and the like; a project may have targets m and dl."""
        own = "\n".join(
            f"add_library({name} STATIC own.c)\ntarget_compile_definitions({name} INTERFACE main=not_{name})"
            for name in ("m", "dl", "rt", "pthread", "stdc++", "gcc", "c")
        )
        for languages, name in (("C", "user.c"), ("CXX C", "user.cc")):
            folder = self.project(
                f"find_package(berth CONFIG REQUIRED COMPONENTS capi)\n{own}\nadd_executable(user {name})\n"
                "target_link_libraries(user PRIVATE berth::capi)",
                languages,
                **{name.replace(".", "_"): C_PROGRAM, "own_c": "int own;\n"},
            )
            self.assertEqual(run(self.built(folder) / "user").returncode, 0)

    def test_the_shared_library_is_a_target(self):
        for languages in ("C", "CXX"):
            name = "user.c" if languages == "C" else "user.cc"
            folder = self.project(
                f"find_package(berth CONFIG REQUIRED COMPONENTS shared)\nadd_executable(user {name})\n"
                "target_link_libraries(user PRIVATE berth::shared)",
                languages,
                **{name.replace(".", "_"): C_PROGRAM},
            )
            self.assertEqual(run(self.built(folder) / "user").returncode, 0)

    def test_pkg_config_knows_the_shared_library_wherever_it_was_moved(self):
        if shutil.which("pkg-config") is None:
            self.skipTest("there is no pkg-config")
        moved = self.folder / "moved"
        shutil.copytree(self.prefix, moved, symlinks=True)
        (file,) = moved.rglob("berth.pc")
        extra = {"PKG_CONFIG_PATH": str(file.parent)}
        flags = run("pkg-config", "--cflags", "--libs", "berth", extra=extra)
        self.assertEqual(flags.returncode, 0, flags.stderr)
        self.assertEqual(
            run("pkg-config", "--modversion", "berth", extra=extra).stdout.strip(), cache("CMAKE_PROJECT_VERSION")
        )
        source = self.folder / "user.c"
        source.write_text(C_PROGRAM)
        built = run(CC, source, "-o", self.folder / "user", *flags.stdout.split())
        self.assertEqual(built.returncode, 0, built.stderr)
        (library,) = moved.rglob("libberth.so")
        self.assertEqual(run(self.folder / "user", extra={"LD_LIBRARY_PATH": str(library.parent)}).returncode, 0)

    # --- Which libtorch

    def test_a_libtorch_of_another_version_is_refused_by_name(self):
        if not WITH_TORCH:
            self.skipTest("built without libtorch")
        folder = self.project("find_package(berth CONFIG REQUIRED COMPONENTS torch)")
        ours = cache("BERTH_TORCH_LAST_VERSION")
        major, minor, _ = ours.split(".")
        for other in (f"{major}.{int(minor) + 1}.0", f"{major}.{int(minor) + 6}.1"):
            root = self.folder / other
            header = root / "include/torch/headeronly/version.h"
            for path in (header, root / "include/torch/csrc/api/include/torch/torch.h", root / "lib/libtorch_cpu.so"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")
            header.write_text(
                "".join(
                    f"#define TORCH_VERSION_{part} {number}\n"
                    for part, number in zip(("MAJOR", "MINOR", "PATCH"), other.split("."))
                )
            )
            reason = self.refused(folder, f"-DBERTH_TORCH_ROOT={root}")
            self.assertIn(f"the libtorch in {root.resolve()} is {other}, and this berth was built with {ours}", reason)

    def test_a_part_that_is_not_to_be_had_says_why(self):
        nothing = self.folder / "nothing"
        nothing.mkdir(exist_ok=True)
        for component in ("torch", "torch_cuda"):
            folder = self.project(f"find_package(berth CONFIG REQUIRED COMPONENTS {component})")
            reason = self.refused(folder, f"-DBERTH_TORCH_ROOT={nothing}")
            self.assertIn(f"berth::{component} is not to be had:", reason)
            self.assertIn("holds no include/torch" if WITH_TORCH else "built without libtorch", reason)
        reason = self.refused(self.project("find_package(berth CONFIG REQUIRED COMPONENTS torhc)"))
        self.assertIn("berth::torhc is not to be had: berth has no such part", reason)

    def test_a_part_without_cuda_says_why(self):
        """The same package, as an install without CUDA leaves it."""
        if not WITH_TORCH:
            self.skipTest("built without libtorch")
        other = self.folder / "without"
        shutil.copytree(self.prefix, other, symlinks=True)
        for file in other.rglob("berthTorchCudaTargets*.cmake"):
            file.unlink()
        (config,) = other.rglob("berthConfig.cmake")
        lines = config.read_text().splitlines()
        config.write_text(
            "\n".join(
                'set(_berth_torch_cuda_reason "this berth was built without CUDA: no headers")'
                if line.startswith("set(_berth_torch_cuda_reason")
                and '""' in line
                or line.startswith('set(_berth_torch_cuda_reason "this')
                else line
                for line in lines
            )
        )
        folder = self.project("find_package(berth CONFIG REQUIRED COMPONENTS torch_cuda)")
        reason = self.refused(folder, f"-DCMAKE_PREFIX_PATH={other}")
        self.assertIn("berth::torch_cuda is not to be had: this berth was built without CUDA: no headers", reason)

    # --- Beside find_package(Torch)

    def test_find_package_torch_beside_berth_finds_the_same_libtorch(self):
        if not WITH_TORCH:
            self.skipTest("built without libtorch")
        program = "#include <berth/torch.h>\n#include <ATen/ATen.h>\nint main() { berth::torch::install(); return !at::ones({2}).all().item<bool>(); }\n"
        alone = self.configure(self.project("find_package(Torch REQUIRED)"), f"-DTorch_DIR={TORCH}/share/cmake/Torch")
        if alone.returncode != 0:
            self.skipTest("find_package(Torch) fails by itself: " + " ".join(alone.stderr.split())[:300])
        lines = ["find_package(berth CONFIG REQUIRED COMPONENTS torch)", "find_package(Torch REQUIRED)"]
        for order in (lines, lines[::-1]):
            options = [] if order is lines else [f"-DTorch_DIR={TORCH}/share/cmake/Torch"]
            folder = self.project(
                "\n".join(order) + "\nadd_executable(user user.cc)\n"
                "target_link_libraries(user PRIVATE berth::torch ${TORCH_LIBRARIES})",
                user_cc=program,
            )
            build = self.built(folder, *options)
            needed = run("ldd", build / "user").stdout
            self.assertEqual(len({line for line in needed.splitlines() if "libtorch_cpu.so" in line}), 1, needed)

    def test_another_libtorch_by_find_package_torch_is_refused_by_name(self):
        if not WITH_TORCH:
            self.skipTest("built without libtorch")
        other = self.folder / "other/share/cmake/Torch"
        other.mkdir(parents=True)
        (other / "TorchConfig.cmake").write_text(f"set(TORCH_INSTALL_PREFIX {self.folder}/other)\n")
        folder = self.project(
            f"find_package(berth CONFIG REQUIRED COMPONENTS torch)\nfind_package(Torch REQUIRED PATHS {other} NO_DEFAULT_PATH)"
        )
        (folder / "CMakeLists.txt").write_text(
            (folder / "CMakeLists.txt")
            .read_text()
            .replace("find_package(Torch", f"set(Torch_DIR {other})\nfind_package(Torch")
        )
        self.assertIn(
            f"find_package(Torch) found the libtorch in {other.parent.parent.parent.resolve()}, and berth uses the one in {TORCH}",
            self.refused(folder),
        )

    # --- The library that is preloaded

    def preloaded(self, *program, **extra):
        """A program on the stand-in under the installed allocator."""
        (library,) = self.prefix.rglob("libberth_torch_cuda.so")
        return run(LAUNCHER, "--preload", library, "--", *program, extra={"BERTH_MODE": "learn"} | extra)

    @unittest.skipUnless(PYTHON, "there is no torch with CUDA")
    def test_the_preloaded_library_finds_the_libtorch_of_the_program(self):
        ran = self.preloaded(PYTHON, "-c", PYTHON_PROGRAM)
        self.assertEqual((ran.returncode, ran.stdout), (0, "before torch: no libtorch\nrequests: 3\n"), ran.stderr)

    @unittest.skipUnless(PYTHON, "there is no torch with CUDA")
    def test_the_preloaded_library_serves_a_program_that_is_linked_to_libtorch(self):
        folder = self.project(
            "find_package(berth CONFIG REQUIRED COMPONENTS torch_cuda)\nadd_executable(user user.cc)\n"
            "target_link_libraries(user PRIVATE berth_libtorch::torch_cuda ${CMAKE_DL_LIBS})",
            user_cc=CUDA_PROGRAM,
        )
        ran = self.preloaded(self.built(folder) / "user")
        self.assertEqual((ran.returncode, ran.stdout), (0, "requests: 3\n"), ran.stderr)

    @unittest.skipUnless(PYTHON, "there is no torch with CUDA")
    def test_the_preloaded_library_refuses_another_libtorch_by_its_version(self):
        stub = self.folder / "stub.so"
        (self.folder / "stub.c").write_text(
            "unsigned long long aoti_torch_abi_version(void) { return (2ULL << 56) | (15ULL << 48); }\n"
        )
        self.assertEqual(run(CC, "-shared", "-fPIC", "-o", stub, self.folder / "stub.c").returncode, 0)
        ran = self.preloaded(PYTHON, "-c", PYTHON_PROGRAM, LD_PRELOAD=str(stub))
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertRegex(ran.stderr, r"berth: berth was built for libtorch 2\.\d+, 2\.15 is loaded")

    @unittest.skipUnless(PYTHON, "there is no torch with CUDA")
    def test_the_preloaded_library_leaves_a_program_alone_without_a_mode(self):
        ran = self.preloaded(
            PYTHON,
            "-c",
            "import torch; assert torch.cuda.memory.memory_allocated() == 0\n"
            + MAPPED
            + "print(mapped('libberth_torch_cuda_allocator'))",
            BERTH_MODE="off",
        )
        self.assertEqual((ran.returncode, ran.stdout), (0, "False\n"), ran.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
