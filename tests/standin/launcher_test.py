#!/usr/bin/env python3
"""The launcher: what it sets, what it refuses. Usage: launcher_test.py LAUNCHER LIBRARIES COMPILER [unittest's arguments]"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

LAUNCHER, LIBRARIES, COMPILER = (sys.argv.pop(1) for _ in range(3))
USES_CUDA = """
import ctypes, sys
cudart = ctypes.CDLL("libcudart.so.%s" % sys.argv[1])
count, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
status = cudart.cudaGetDeviceCount(ctypes.byref(count))
cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
print(status, count.value, total.value)
"""
MEETS_NOBODY = """
import ctypes
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
nccl, id, communicator = ctypes.CDLL("libnccl.so.2"), Id(), ctypes.c_void_p()
nccl.ncclGetLastError.restype = ctypes.c_char_p
print(nccl.ncclGetUniqueId(ctypes.byref(id)), nccl.ncclCommInitRank(ctypes.byref(communicator), 2, id, 0), nccl.ncclGetLastError(None).decode())
"""
VERSION = next(path.name.rsplit(".", 1)[1] for path in pathlib.Path(LIBRARIES).glob("libcudart.so.*"))


def launch(*arguments, **environment):
    return subprocess.run(
        [LAUNCHER, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


class Launcher(unittest.TestCase):
    def test_a_program_sees_the_devices_that_were_asked_for(self):
        done = launch("--gpu", "L4-24", "--devices", "3", "--", sys.executable, "-c", USES_CUDA, VERSION)
        self.assertEqual((done.stdout, done.returncode), ("0 3 23580639232\n", 0))

    def test_a_total_can_be_set(self):
        done = launch("--memory", "1000000", "--", sys.executable, "-c", USES_CUDA, VERSION)
        self.assertEqual(done.stdout, "0 1 1000000\n")

    def test_a_rank_waits_for_the_others_as_long_as_was_asked_for(self):
        done = launch("--patience", "1", "--", sys.executable, "-c", MEETS_NOBODY)
        self.assertEqual(done.stdout, "0 6 rank 1 of 2 has not come in 1 s\n")

    def test_what_is_compiled_is_kept_from_a_gpu(self):
        show = "import os; print(os.environ['TORCHINDUCTOR_CACHE_DIR'], os.environ['USE_PYTORCH_KERNEL_CACHE'])"
        self.assertEqual(launch(sys.executable, "-c", show, TORCHINDUCTOR_CACHE_DIR="/mine").stdout, "/mine 0\n")
        unset = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
        done = subprocess.run(
            [LAUNCHER, sys.executable, "-c", show],
            capture_output=True,
            text=True,
            env={**unset, "TMPDIR": "/temporary"},
        )
        self.assertRegex(done.stdout, "^/temporary/berth-standin-[^/ ]+ 0$")

    def test_calls_are_logged_and_fail_on_demand(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "calls"
            done = launch(
                "--log", str(log), "--fail", "cudaGetDeviceCount:1:100", "--", sys.executable, "-c", USES_CUDA, VERSION
            )
            self.assertEqual(done.stdout.split()[0], "100")
            self.assertEqual(log.read_text().splitlines()[-1], "cudaMemGetInfo")
            self.assertIn("cudaGetDeviceCount = ", log.read_text())

    def test_a_library_can_be_put_after_the_stand_ins(self):
        with tempfile.TemporaryDirectory() as folder:
            library, source = pathlib.Path(folder) / "more.so", pathlib.Path(folder) / "more.c"
            source.write_text(
                "int cudaGetDeviceCount(int*); int more(int* count) { return cudaGetDeviceCount(count); }\n"
            )
            subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, source], check=True)
            uses = "import ctypes; n = ctypes.c_int(); print(ctypes.CDLL(None).more(ctypes.byref(n)), n.value)"
            done = launch("--devices", "2", "--preload", str(library), "--", sys.executable, "-c", uses)
            self.assertEqual((done.stdout, done.returncode), ("0 2\n", 0), done.stderr)

    def test_the_programs_exit_code_is_passed_on(self):
        self.assertEqual(launch("--", sys.executable, "-c", "raise SystemExit(7)").returncode, 7)

    def test_wrong_usage_is_named(self):
        for arguments, message in (
            (["--gpu"], "--gpu wants a value"),
            (["--gp", "x"], "unknown option '--gp'"),
            (["--preload", "nowhere.so", "true"], "there is no nowhere.so"),
            ([], "no program given"),
        ):
            done = launch(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)

    def test_a_setting_that_cannot_be_read_ends_the_program(self):
        for option, value in (
            ("--gpu", "H100-81"),
            ("--devices", "-1"),
            ("--pace", "slow"),
            ("--fail", "cudaFree"),
            ("--seed", ""),
        ):
            done = launch(option, value, "--", sys.executable, "-c", USES_CUDA, VERSION)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(f"is '{value}', wanted", done.stderr)

    def test_a_real_libcudart_beside_the_stand_ins_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            real = pathlib.Path(folder) / f"libcudart.so.{VERSION}"
            source = pathlib.Path(folder) / "real.c"
            source.write_text("int cudaGetDeviceCount(int* count) { *count = 8; return 0; }\n")
            subprocess.run([COMPILER, "-shared", "-fPIC", "-o", real, source], check=True)
            done = launch("--", sys.executable, "-c", f"import ctypes; ctypes.CDLL('{real}')")
            self.assertEqual(done.returncode, 86)
            self.assertIn(f"the program has mapped a real libcudart: {real}", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
