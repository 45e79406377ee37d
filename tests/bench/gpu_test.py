"""bench/gpu: without a GPU it says so; on the stand-in its smallest form passes. gpu_test.py [BUILD PYTHON]: what was built, who has torch."""

import ctypes
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = sys.argv[1:]


def has_gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def run(*arguments):
    return subprocess.run([ROOT / "bench/gpu", *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


class WithoutGpu(unittest.TestCase):
    @unittest.skipIf(has_gpu(), "there is one")
    def test_it_ends_with_77_and_one_line(self):
        result = run()
        self.assertEqual(result.returncode, 77)
        self.assertIn("there is no GPU here", result.stderr)
        self.assertEqual((result.stdout, len(result.stderr.splitlines())), ("", 1))

    def test_its_parts_are_listed_with_the_open_points(self):
        text = run("--list").stdout
        for point in range(1, 8):
            self.assertIn(f"(point {point})", text)

    def test_wrong_usage_ends_with_2(self):
        result = run("numbers")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no part 'numbers'", result.stderr)


class OnTheStandin(unittest.TestCase):
    def setUp(self):
        if not BUILT:
            self.skipTest("no build was given")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def gpu(self, *arguments):
        return run("--standin", "--build-dir", BUILT[0], "--python", BUILT[1], "--output", self.folder, "--work", self.folder, *arguments)

    def test_the_smallest_form_passes_and_names_no_machine(self):
        result = self.gpu("--smoke")
        print(result.stdout, result.stderr)
        self.assertEqual(result.returncode, 0)
        reports = sorted(self.folder.glob("gpu-*.json"))
        self.assertGreaterEqual(len(reports), 7)
        for path in reports:
            text = path.read_text()
            report = json.loads(text)
            self.assertTrue(report["standin"] and report["complete"] and report["rows"], path.name)
            self.assertIn("stand-in", report["machine"]["gpu"])
            self.assertNotIn(str(ROOT), text)
            self.assertNotIn(str(self.folder), text)
            self.assertNotIn(f'"{platform.node()}"', text)
        rows = {f"{report['part']}/{row['name']}": row for report in map(json.loads, map(pathlib.Path.read_text, reports)) for row in report["rows"]}
        self.assertEqual(rows["numerics/gpt2"]["misses_a_step"], {"berth serve": 0})
        self.assertIsNone(rows["numerics/gpt2"]["equal"], "losses were compared where they mean nothing")
        self.assertGreater(rows["soak/berth"]["stats"]["hits"], 0)

    def test_what_a_machine_lacks_is_carried(self):
        result = subprocess.run([ROOT / "cmake/carry", self.folder / "carry"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("include/fmt/format.h", "include/CLI/CLI.hpp", "include/flatbuffers/flatbuffers.h", "include/xxhash.h", "include/nlohmann/json.hpp",
                     "include/catch2", "cuda/include/cuda_runtime_api.h", "cuda/include/crt/host_defines.h", "commit"):
            self.assertTrue((self.folder / "carry" / name).exists(), name)
        self.assertTrue(list((self.folder / "carry").glob("**/Catch2Config.cmake")))
        self.assertLess(sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file()), 40 << 20)

    def test_it_goes_on_where_it_was_and_repeats_nothing(self):
        # Nothing is built here, so rows end at once.
        (self.folder / "build").mkdir()
        command = ["--build-dir", self.folder / "build"]  # the later of two counts
        result = self.gpu(*command, "--minutes", 0, "latency", "lifecycle")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("not done yet: latency, lifecycle", result.stdout)
        result = self.gpu(*command)
        self.assertEqual(result.returncode, 1)
        self.assertIn("latency/1 thread: bench/cuda_latency is not built", result.stdout)
        self.assertIn("lifecycle/fork", result.stdout)  # the others ran all the same
        result = self.gpu(*command)
        self.assertEqual(result.returncode, 0)
        self.assertIn("all of it before this call", result.stdout)
        result = self.gpu(*command, "lifecycle")  # a part that is named is tried again where it failed
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("latency/1 thread:", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
