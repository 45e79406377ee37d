"""cmake/setup and the search for a libtorch, without installing anything."""

import contextlib
import http.server
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES = (
    "BERTH_HIGHS_ROOT",
    "CUDAToolkit_ROOT",
    "CUDA_HOME",
    "CUDA_PATH",
    "Torch_DIR",
    "CMAKE_PREFIX_PATH",
    "BERTH_PYTHON",
    "BERTH_TORCH_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
)


def environment(**extra):
    return {**{name: value for name, value in os.environ.items() if name not in NAMES}, **extra}


def make_libtorch(folder, version="2.11.0", hip="None"):
    """What the search looks at of a libtorch."""
    major, minor, patch = version.split(".")
    header = "\n".join(
        f"#define TORCH_VERSION_{n} {v}" for n, v in (("MAJOR", major), ("MINOR", minor), ("PATCH", patch))
    )
    for name, text in {
        "include/torch/csrc/api/include/torch/torch.h": "",
        "lib/libtorch_cpu.so": "",
        "include/torch/headeronly/version.h": header,
        "version.py": f"hip: Optional[str] = {hip}\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "share/cmake/Torch").mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def make_cuda(folder, version=13000, crt=True):
    """What the search looks at of CUDA's headers."""
    (folder / "include/crt").mkdir(parents=True)
    (folder / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
    if crt:
        (folder / "include/crt/host_defines.h").write_text("")
    return folder.resolve()


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class Configure(Folder):
    def test_a_plain_configuration_without_a_libtorch_says_so_and_leaves_its_adapter_out(self):
        clone = self.folder / "clone"
        clone.mkdir()
        for part in ROOT.iterdir():
            if part.name not in (".venv", ".git", "build"):
                (clone / part.name).symlink_to(part)
        done = subprocess.run(["cmake", "-B", "build"], env=environment(), cwd=clone, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("berth: no libtorch adapter: no libtorch found: run cmake/setup", done.stdout)
        insisted = subprocess.run(
            ["cmake", "-B", "build", "-DBERTH_WITH_TORCH=ON"],
            env=environment(),
            cwd=clone,
            capture_output=True,
            text=True,
        )
        self.assertNotEqual(insisted.returncode, 0)
        self.assertIn("no libtorch found: run cmake/setup", " ".join(insisted.stderr.split()))


class Locate(Folder):
    def locate(self, **extra):
        """What the search says in an empty folder."""
        return subprocess.run(
            ["cmake", "-P", ROOT / "cmake/BerthTorchLocate.cmake"],
            env=environment(**extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
        ).stderr.strip()

    def test_none_is_found_where_none_is(self):
        self.assertEqual(
            self.locate(),
            "none no libtorch found: run cmake/setup, or name one by Torch_DIR, CMAKE_PREFIX_PATH or BERTH_PYTHON",
        )

    def test_each_way_of_naming_one_is_taken(self):
        root = make_libtorch(self.folder / "env/lib/python3.12/site-packages/torch")
        found = f"{root} 2.11.0"
        self.assertEqual(self.locate(BERTH_TORCH_ROOT=str(root)), found)
        self.assertEqual(self.locate(Torch_DIR=str(root / "share/cmake/Torch")), found)
        self.assertEqual(self.locate(CMAKE_PREFIX_PATH=f"/nowhere:{root}"), found)
        self.assertEqual(self.locate(CMAKE_PREFIX_PATH=str(root / "share/cmake")), found)
        self.assertEqual(self.locate(VIRTUAL_ENV=str(self.folder / "env")), found)
        self.assertEqual(self.locate(CONDA_PREFIX=str(self.folder / "env")), found)

    def test_the_torch_of_an_interpreter_is_taken_without_importing_it(self):
        root = make_libtorch(self.folder / "packages/torch")
        (root / "__init__.py").write_text("raise SystemError('imported')")
        self.assertEqual(self.locate(BERTH_PYTHON=sys.executable, PYTHONPATH=str(root.parent)), f"{root} 2.11.0")

    def test_one_that_is_named_wins_over_the_active_environment(self):
        make_libtorch(self.folder / "env/lib/python3.12/site-packages/torch")
        named = make_libtorch(self.folder / "libtorch", "2.12.1")
        self.assertEqual(self.locate(VIRTUAL_ENV=str(self.folder / "env"), Torch_DIR=str(named)), f"{named} 2.12.1")

    def test_a_name_that_holds_none_is_an_error_that_says_so(self):
        self.assertIn("Torch_DIR is '/nowhere'", self.locate(Torch_DIR="/nowhere"))
        self.assertIn("which has no torch", self.locate(BERTH_PYTHON="true"))

    def test_old_versions_and_rocm_are_refused_by_name(self):
        old = make_libtorch(self.folder / "old", "2.10.0")
        self.assertEqual(
            self.locate(Torch_DIR=str(old)), f"none the libtorch in {old} is 2.10.0: berth supports 2.11 and newer"
        )
        rocm = make_libtorch(self.folder / "rocm", hip="'6.4'")
        self.assertIn("is a ROCm build", self.locate(Torch_DIR=str(rocm)))

    def test_a_libtorch_without_a_version_is_refused(self):
        root = make_libtorch(self.folder / "x")
        (root / "include/torch/headeronly/version.h").write_text("")
        self.assertIn("states no version", self.locate(Torch_DIR=str(root)))


def copy_scripts(folder):
    """On a copy of the scripts answers do not depend on this checkout's .venv, nor on a toolkit of this machine."""
    shutil.copytree(ROOT / "cmake", folder / "cmake")
    locate = folder / "cmake/BerthCudaLocate.cmake"
    text = locate.read_text().replace("/usr/local/cuda", f"{folder}/local/cuda")
    locate.write_text(
        text.replace("find_program(nvcc nvcc", f'find_program(nvcc nvcc PATHS "{folder}/path" NO_DEFAULT_PATH')
    )


class LocateCuda(Folder):
    def locate(self, *arguments, **extra):
        if not (self.folder / "cmake").exists():
            copy_scripts(self.folder)
        return subprocess.run(
            ["cmake", *arguments, "-P", "cmake/BerthCudaLocate.cmake"],
            env=environment(**extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
        ).stderr.strip()

    def test_none_is_found_where_none_is(self):
        self.assertEqual(
            self.locate(), "none no headers of CUDA 13 found: run cmake/setup, or name a toolkit by CUDAToolkit_ROOT"
        )

    def test_each_place_is_searched(self):
        toolkit = make_cuda(self.folder / "toolkit", 13020)
        for name in ("CUDAToolkit_ROOT", "CUDA_HOME", "CUDA_PATH"):
            self.assertEqual(self.locate(**{name: str(toolkit)}), f"{toolkit}/include 13.2")
        packages = make_cuda(self.folder / "packages/nvidia/cu13")
        (self.folder / "packages/torch").mkdir()
        self.assertEqual(self.locate(f"-DBerthTorch_ROOT={self.folder}/packages/torch"), f"{packages}/include 13.0")
        own = make_cuda(self.folder / ".venv/cuda")
        self.assertEqual(self.locate(), f"{own}/include 13.0")
        compilers = make_cuda(self.folder / "compilers")
        (compilers / "bin").mkdir()
        (compilers / "bin/nvcc").write_text("")
        (compilers / "bin/nvcc").chmod(0o755)
        (self.folder / "path").mkdir()
        (self.folder / "path/nvcc").symlink_to(compilers / "bin/nvcc")
        self.assertEqual(self.locate(), f"{compilers}/include 13.0")
        system = make_cuda(self.folder / "local/cuda")
        self.assertEqual(self.locate(), f"{system}/include 13.0")

    def test_another_major_version_and_headers_without_crt_are_passed_over(self):
        old = make_cuda(self.folder / "old", 12080)
        self.assertIn(f"({old} has 12.8)", self.locate(CUDA_HOME=str(old)))
        bare = make_cuda(self.folder / "bare", crt=False)
        own = make_cuda(self.folder / ".venv/cuda")
        self.assertEqual(self.locate(CUDA_HOME=str(old), CUDA_PATH=str(bare)), f"{own}/include 13.0")


class Setup(Folder):
    def setUp(self):
        super().setUp()
        copy_scripts(self.folder)
        self.tools = self.folder / "tools"
        self.tools.mkdir()

    def setup_script(self, *arguments, **extra):
        return subprocess.run(
            [self.folder / "cmake/setup", *arguments],
            env=environment(**extra),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def tool(self, name, text):
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.tools / name).chmod(0o755)
        return {"PATH": f"{self.tools}:{os.environ['PATH']}"}

    def test_help_names_every_option(self):
        result = self.setup_script("--help")
        self.assertEqual(result.returncode, 0)
        for option in (
            "--check",
            "--no-packages",
            "--no-torch",
            "--no-cuda",
            "--no-next-torch",
            "--no-triton",
            "--no-solver",
            "--no-format",
            "--no-data",
        ):
            self.assertIn(option, result.stdout)

    def test_an_unknown_option_is_wrong_usage(self):
        result = self.setup_script("--fast")
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown option '--fast'", result.stderr)

    def test_a_check_lists_what_is_missing_and_installs_nothing(self):
        tools = self.tool("dpkg-query", "echo installed g++")
        self.tool("apt-get", "echo apt-get was called >&2; exit 1")
        result = self.setup_script("--check", **tools)
        self.assertEqual(result.returncode, 1)
        for line in (
            "packages: missing cmake ninja-build",
            "torch: 2.11.0 is missing in .venv",
            "cuda: headers of CUDA 13 are missing in .venv/cuda",
            "next-torch: headers of torch 2.15.0 are missing in .venv/torch-2.15",
            "solver: HiGHS 1.15.1 is missing in .venv",
            "format: clang-format and ruff are missing in .venv",
            "data: missing digits.csv text.txt",
        ):
            self.assertIn(line, result.stdout)
        self.assertFalse((self.folder / ".venv").exists() or (self.folder / "build").exists())

    def test_a_libtorch_that_is_there_is_used(self):
        root = make_libtorch(self.folder / "libtorch", "2.12.1")
        result = self.setup_script(
            "--no-packages", "--no-triton", "--no-solver", "--no-format", "--no-data", Torch_DIR=str(root)
        )
        self.assertEqual(result.returncode, 0)
        self.assertEqual(
            result.stdout,
            f"setup: torch: using libtorch 2.12.1 in {root}\n"
            f"setup: cuda: no headers needed, the libtorch in {root} is built without CUDA\n"
            f"setup: next-torch: no headers needed, the libtorch in {root} is built without CUDA\n",
        )
        self.assertFalse((self.folder / ".venv").exists())

    def test_a_solver_that_is_there_is_used(self):
        (self.folder / ".venv/lib/python3.12/site-packages/highsbox-1.15.1.dist-info").mkdir(parents=True)
        arguments = (
            "--no-packages",
            "--no-torch",
            "--no-cuda",
            "--no-next-torch",
            "--no-triton",
            "--no-format",
            "--no-data",
        )
        self.assertEqual(self.setup_script(*arguments).stdout, "setup: solver: HiGHS 1.15.1 is in .venv\n")
        self.assertEqual(
            self.setup_script(*arguments, BERTH_HIGHS_ROOT="/opt/highs").stdout,
            "setup: solver: using HiGHS in /opt/highs\n",
        )

    def test_tools_of_the_format_that_are_there_are_used(self):
        (self.folder / ".venv").mkdir()
        stamp = self.folder / ".venv/berth-format"
        stamp.write_text((ROOT / "cmake/format-requirements.txt").read_text())
        arguments = (
            "--no-packages",
            "--no-torch",
            "--no-cuda",
            "--no-next-torch",
            "--no-triton",
            "--no-solver",
            "--no-data",
        )
        self.assertEqual(self.setup_script(*arguments).stdout, "setup: format: clang-format and ruff are in .venv\n")
        stamp.write_text("ruff==0.0.1\n")
        self.assertIn("are missing in .venv", self.setup_script("--check", *arguments).stdout)

    def test_headers_of_cuda_that_are_there_are_used(self):
        root = make_libtorch(self.folder / "libtorch")
        (root / "lib/libtorch_cuda.so").write_text("")
        toolkit = make_cuda(self.folder / "toolkit")
        result = self.setup_script(
            "--no-packages",
            "--no-torch",
            "--no-next-torch",
            "--no-triton",
            "--no-solver",
            "--no-format",
            "--no-data",
            Torch_DIR=str(root),
            CUDA_HOME=str(toolkit),
        )
        self.assertEqual(
            (result.returncode, result.stdout), (0, f"setup: cuda: headers of CUDA 13.0 are in {toolkit}/include\n")
        )

    def test_headers_of_the_next_torch_that_are_there_are_used(self):
        root = make_libtorch(self.folder / "libtorch")
        (root / "lib/libtorch_cuda.so").write_text("")
        (self.folder / ".venv/torch-2.15/include").mkdir(parents=True)
        result = self.setup_script(
            "--no-packages",
            "--no-torch",
            "--no-cuda",
            "--no-triton",
            "--no-solver",
            "--no-format",
            "--no-data",
            Torch_DIR=str(root),
        )
        self.assertEqual(
            (result.returncode, result.stdout),
            (0, "setup: next-torch: headers of torch 2.15.0 are in .venv/torch-2.15\n"),
        )

    def test_a_libtorch_that_is_refused_ends_the_set_up(self):
        root = make_libtorch(self.folder / "libtorch", "1.13.1")
        result = self.setup_script(
            "--no-packages", "--no-triton", "--no-solver", "--no-format", "--no-data", Torch_DIR=str(root)
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn("is 1.13.1: berth supports 2.11 and newer", result.stderr)

    def test_without_root_and_sudo_it_prints_what_to_install(self):
        tools = self.tool("dpkg-query", "echo installed g++")
        self.tool("apt-cache", "echo '  Candidate: 1.0'")
        self.tool("id", "echo 1000")
        self.tool("sudo", "exit 1")
        result = self.setup_script(
            "--no-torch",
            "--no-cuda",
            "--no-next-torch",
            "--no-triton",
            "--no-solver",
            "--no-format",
            "--no-data",
            **tools,
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn("Please run:", result.stderr)
        self.assertIn("catch2 libfmt-dev", result.stderr)

    def test_what_is_installed_already_is_not_installed_again(self):
        tools = self.tool(
            "dpkg-query",
            "for p in g++ cmake ninja-build ccache python3 python3-dev python3-venv catch2 libfmt-dev libcli11-dev "
            "libflatbuffers-dev flatbuffers-compiler libxxhash-dev nlohmann-json3-dev zlib1g-dev libbenchmark-dev "
            "valgrind libjemalloc2 libtcmalloc-minimal4t64 libmimalloc3 librsvg2-2 chromium; do echo installed $p; done",
        )
        self.tool("apt-get", "exit 1")
        result = self.setup_script(
            "--no-torch",
            "--no-cuda",
            "--no-next-torch",
            "--no-triton",
            "--no-solver",
            "--no-format",
            "--no-data",
            **tools,
        )
        self.assertEqual((result.returncode, result.stdout), (0, "setup: packages: all installed\n"), result.stderr)


class WheelServer(http.server.BaseHTTPRequestHandler):
    """One file, of which it gives ranges where `ranges` is set."""

    data, ranges, sent = b"", True, 0

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if self.ranges else None
        first, last = (int(wanted[1]), min(int(wanted[2]), len(self.data) - 1)) if wanted else (0, len(self.data) - 1)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        with contextlib.suppress(OSError):  # who wants ranges hangs up
            self.wfile.write(self.data[first : last + 1])
        type(self).sent += last - first + 1

    def log_message(self, *arguments):
        pass


class TorchHeaders(Folder):
    """cmake/torch_headers.py with a pip that names a wheel of ours."""

    def fetch(self, ranges):
        wheel = io.BytesIO()
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("torch/lib/libtorch.so", os.urandom(20 << 20))
            archive.writestr("torch/include/c10/a.h", "int a;")
            archive.writestr("torch/include/c10/a.txt", "no header")
            archive.writestr("torch/include/ATen/b.cuh", "int b;")
        handler = type("Handler", (WheelServer,), {"data": wheel.getvalue(), "ranges": ranges})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        pip = self.folder / "packages/pip"
        pip.mkdir(parents=True)
        pip.joinpath("__main__.py").write_text(
            "import json, sys\n"
            "if 'install' in sys.argv:\n"
            f"    info = {{'url': 'http://127.0.0.1:{server.server_port}/torch.whl'}}\n"
            "    open(sys.argv[sys.argv.index('--report') + 1], 'w').write(json.dumps({'install': [{'download_info': info}]}))\n"
        )
        pip.joinpath("__init__.py").write_text("")
        result = subprocess.run(
            [sys.executable, "-B", ROOT / "cmake/torch_headers.py", "9.9.0", self.folder / "headers"],
            env=environment(PYTHONPATH=str(self.folder / "packages"), no_proxy="127.0.0.1"),
            capture_output=True,
            text=True,
        )
        return result, handler.sent

    def test_only_headers_are_fetched_and_unpacked(self):
        result, sent = self.fetch(ranges=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        files = {
            str(path.relative_to(self.folder / "headers"))
            for path in (self.folder / "headers").rglob("*")
            if path.is_file()
        }
        self.assertEqual(files, {"include/c10/a.h", "include/ATen/b.cuh"})
        self.assertLess(sent, 12 << 20)

    def test_a_server_without_ranges_is_named_and_leaves_nothing(self):
        result, _ = self.fetch(ranges=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("answers no range requests", result.stderr)
        self.assertFalse((self.folder / "headers").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
