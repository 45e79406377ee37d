"""tests/conformance on a checkout, a torch and a build that are stand-ins. Usage: conformance_test.py [unittest's arguments]"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import conformance  # noqa: E402
import exclusions  # noqa: E402

TORCH = """
import os
from . import cuda
"""

CUDA = """
import os
def is_available(): return True
def get_device_name(): return "a fake"
def get_allocator_backend():
    return os.environ.get("FAKE_BACKEND") or ("berth" if "libberth" in os.environ.get("LD_PRELOAD", "") else "native")
"""

TESTS = """
import os, time, unittest
UNDER_BERTH = "libberth" in os.environ.get("LD_PRELOAD", "")
class TestMemPool(unittest.TestCase):
    def test_a_passes(self): pass
    def test_b_fails_under_berth(self): self.assertFalse(UNDER_BERTH, "berth was there")
    def test_c_crashes_under_berth(self):
        if UNDER_BERTH: os.abort()
    def test_d_hangs_under_berth(self):
        if UNDER_BERTH: time.sleep(600)
    def test_e_is_skipped(self): self.skipTest("not here")
    def test_f_passes_after_all_that(self): pass
    @unittest.expectedFailure
    def test_g_is_expected_to_fail(self): self.fail()
    def test_h_fails_in_a_part_under_berth(self):
        with self.subTest("part"): self.assertFalse(UNDER_BERTH)
class TestBlockStateAbsorption(unittest.TestCase):
    seen = False
    def test_a_first(self): type(self).seen = True
    def test_b_passes_alone_only(self): self.assertFalse(self.seen)
class TestCuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise RuntimeError("no set-up")
    def test_memory_stats(self): pass
    def test_of_something_else(self): pass
"""

PROGRAM = """#!/usr/bin/env python3
import os, sys
if "--gtest_list_tests" in sys.argv:
    print("Streams.\\n  One\\n  Two  # a comment")
elif "--gtest_filter=Streams.Two" in sys.argv and "libberth" in os.environ.get("LD_PRELOAD", ""):
    os.abort()
"""


class Conformance(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        site = self.folder / "site"
        self.write("site/torch/__init__.py", TORCH)
        self.write("site/torch/cuda/__init__.py", CUDA)
        self.write(
            "site/torch/cuda/_memory_viz.py", "def format_flamegraph(flamegraph_lines, flamegraph_script=None): pass\n"
        )
        self.write("site/torch/version.py", "__version__ = '2.11.0+fake'\n")
        for name in ("expecttest", "hypothesis", "psutil"):
            self.write(f"site/{name}.py", "")
        self.write("checkout/test/test_cuda.py", TESTS)
        self.write("checkout/version.txt", "2.11.0a0\n")
        self.write("build/libberth_torch_cuda.so", "")  # which the loader leaves out
        self.python = self.write(
            "python", f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec "{sys.executable}" "$@"\n', executable=True
        )

    def write(self, name, text, executable=False):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if executable:
            path.chmod(0o755)
        return path

    def run_suite(self, *arguments, cwd=None, **environment):
        done = subprocess.run(
            [
                HERE.parent / "conformance",
                "--pytorch",
                self.folder / "checkout",
                "--build",
                self.folder / "build",
                "--python",
                self.python,
                "--timeout",
                "2",
                "--no-install",
                "--output",
                self.folder / "result",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=100,
            cwd=cwd,
            env={**os.environ, **environment},
        )
        file = self.folder / "result.json"
        return done, json.loads(file.read_text()) if file.is_file() else None

    def statuses(self, result, allocator):
        return {test.split(".")[1]: by[allocator]["status"] for test, by in result["tests"].items() if allocator in by}

    def test_a_crash_and_a_hang_are_results_of_their_test(self):
        done, result = self.run_suite("--only", "pools:")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(
            self.statuses(result, "berth"),
            {
                "test_a_passes": "passed",
                "test_b_fails_under_berth": "failed",
                "test_c_crashes_under_berth": "crashed",
                "test_d_hangs_under_berth": "timed out",
                "test_e_is_skipped": "skipped",
                "test_f_passes_after_all_that": "passed",
                "test_g_is_expected_to_fail": "failed as expected",
                "test_h_fails_in_a_part_under_berth": "failed",
            },
        )
        self.assertEqual(set(self.statuses(result, "native").values()), {"passed", "skipped", "failed as expected"})
        self.assertEqual(
            [test.split(".")[1] for test in result["differences"]],
            [
                "test_b_fails_under_berth",
                "test_c_crashes_under_berth",
                "test_d_hangs_under_berth",
                "test_h_fails_in_a_part_under_berth",
            ],
        )
        self.assertIn("berth: failed AssertionError: True is not false : berth was there", done.stdout)
        self.assertIn("crashed signal SIGABRT", done.stdout)
        self.assertIn("| pools:TestMemPool.test_d_hangs_under_berth | passed", (self.folder / "result.md").read_text())

    def test_the_form_of_memory_is_berths_alone(self):
        suite = types.SimpleNamespace(
            options=types.SimpleNamespace(mode="learn", memory="plain"),
            packages="packages",
            torch_library="lib",
            standin=True,
            berth="libberth_torch_cuda.so",
        )
        of = lambda allocator: {
            name: value
            for name, value in conformance.Suite.environment(suite, allocator).items()
            if name.startswith("BERTH_")
        }  # noqa: E731
        self.assertEqual(of("berth"), {"BERTH_MODE": "learn", "BERTH_MEMORY": "plain"})
        self.assertEqual(of("native"), {})
        done, _ = self.run_suite("--memory", "managed")
        self.assertEqual(done.returncode, 2)

    def test_what_passes_alone_passes(self):
        done, result = self.run_suite("--only", "absorption:", "--allocator", "native")
        self.assertEqual((done.returncode, result["native_failures"]), (0, []), done.stderr)
        self.assertEqual({by["native"]["alone"] for by in result["tests"].values()}, {False, True})

    def test_a_class_whose_set_up_fails_is_no_pass(self):
        done, result = self.run_suite("--only", "cuda:", "--allocator", "native")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(self.statuses(result, "native"), {"test_memory_stats": "crashed"})
        self.assertIn("no set-up", result["tests"]["cuda:TestCuda.test_memory_stats"]["native"]["output"])

    def test_a_run_under_another_allocator_than_berth_shows_nothing(self):
        done, _ = self.run_suite("--only", "pools:TestMemPool.test_a", FAKE_BACKEND="native")
        self.assertEqual(done.returncode, 3)
        self.assertIn("ran under the allocator 'native', wanted berth", done.stderr)

    def test_programs_run_a_test_at_a_time(self):
        self.write("programs/cuda_stream_test", PROGRAM, executable=True)
        done, result = self.run_suite("--programs", self.folder / "programs", "--only", "c++ streams:")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(result["differences"], ["c++ streams:Streams.Two"])
        self.assertEqual(self.statuses(result, "berth"), {"One": "passed", "Two": "crashed"})

    def test_an_interpreter_may_be_named_from_where_one_is(self):
        done, result = self.run_suite("--only", "pools:TestMemPool.test_a", "--python", "./python", cwd=self.folder)
        self.assertEqual(
            (done.returncode, self.statuses(result, "berth")), (0, {"test_a_passes": "passed"}), done.stderr
        )

    def test_a_run_of_nothing_is_a_failure(self):
        self.write("checkout/test/test_cuda.py", "raise ImportError('no such module')")
        for only in ("pools:", "of no such name"):
            done, result = self.run_suite("--only", only)
            self.assertEqual((done.returncode, result["idle"]), (1, ["native", "berth"]), done.stderr)
            self.assertIn("Nothing was run under native or berth", done.stdout)
            self.assertNotIn("0 differences", done.stdout)

    def test_a_list_runs_nothing(self):
        done, result = self.run_suite("--list", "--only", "pools:")
        self.assertEqual((done.returncode, result), (0, None), done.stderr)
        self.assertIn("pools:TestMemPool.test_a_passes\n", done.stdout)

    def test_what_is_missing_is_named(self):
        for change, arguments, code, message in (
            (lambda: None, ["--allocator", "nativ"], 2, "--allocator is 'nativ'"),
            (lambda: None, ["--pytorch", "nowhere"], 2, "--pytorch is 'nowhere'"),
            (lambda: None, ["--python", "./nowhere"], 2, "--python is './nowhere'"),
            (
                lambda: self.write("checkout/version.txt", "2.12.0\n"),
                [],
                3,
                "the checkout is of version 2.12.0, torch is 2.11.0+fake",
            ),
            (lambda: (self.folder / "site/psutil.py").unlink(), ["--any-version"], 3, "are missing: psutil"),
            (
                lambda: (self.folder / "build/libberth_torch_cuda.so").unlink(),
                [],
                3,
                "berth's CUDA allocator is not built",
            ),
            (lambda: None, ["--device", "standin", "--allocator", "native"], 3, "the stand-in is not built"),
        ):
            change()
            done, _ = self.run_suite(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(message, done.stderr)


class Table(unittest.TestCase):
    def test_every_row_of_the_table_has_a_reason(self):
        rows = exclusions.load()
        self.assertEqual(len(rows), len({(row.where, row.test) for row in rows}), "a test is named twice")

    def test_a_row_applies_where_it_says(self):
        rows = [
            exclusions.Exclusion("standin", "a:*", "values"),
            exclusions.Exclusion("berth", "b:*", "segments"),
            exclusions.Exclusion("always", "c:*", "network"),
            exclusions.Exclusion("2.6", "d:*", "older"),
        ]
        self.assertEqual(exclusions.reason(rows, "a:T.t", True, "native", "2.11"), "values")
        self.assertIsNone(exclusions.reason(rows, "a:T.t", False, "native", "2.11"))
        self.assertEqual(exclusions.reason(rows, "b:T.t", False, "berth", "2.11"), "segments")
        self.assertIsNone(exclusions.reason(rows, "b:T.t", True, "native", "2.11"))
        self.assertEqual(exclusions.reason(rows, "c:T.t", False, "native", "2.11"), "network")
        self.assertEqual(exclusions.reason(rows, "d:T.t", False, "native", "2.6.0a0"), "older")
        self.assertIsNone(exclusions.reason(rows, "d:T.t", False, "native", "2.11"))

    def test_a_row_without_a_reason_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "table.tsv"
            path.write_text("# a comment\nstandin\ta:*\n")
            with self.assertRaisesRegex(ValueError, "table.tsv:2"):
                exclusions.load(path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
