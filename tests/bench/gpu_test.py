"""bench/gpu: without a GPU it says so; on the stand-in all of it is rehearsed. gpu_test.py PART [BUILD PYTHON]: Parts, Steps or Rehearsal; what
was built, who has torch."""

import ctypes
import hashlib
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PART, *BUILT = sys.argv[1:]
sys.path.insert(0, str(ROOT / "bench/tools"))
sys.dont_write_bytecode = True
import gpu_pack  # noqa: E402
import gpu_working_rows  # noqa: E402
from gpu_table import ROWS  # noqa: E402
from training import Failure  # noqa: E402


def has_gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def run(*arguments):
    return subprocess.run(
        [ROOT / "bench/gpu", *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def processes_with(word):
    """Those whose command line or variables have the word."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                found.append((folder / "cmdline").read_bytes())
        except OSError:
            pass
    return found


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.archive = self.folder / "berth-gpu.tar.gz"

    def members(self):
        with tarfile.open(self.archive) as tar:
            return {member.name: tar.extractfile(member).read().decode() for member in tar}

    def report(self):
        return json.loads(self.members()["gpu.json"])


class TheTable(unittest.TestCase):
    @unittest.skipIf(has_gpu(), "there is one")
    def test_without_a_gpu_it_ends_with_77_and_one_line(self):
        result = run()
        self.assertEqual(result.returncode, 77)
        self.assertIn("there is no GPU here", result.stderr)
        self.assertEqual((result.stdout, len(result.stderr.splitlines())), ("", 1))

    def test_wrong_usage_ends_with_2(self):
        result = run("numbers")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no row or group 'numbers'", result.stderr)

    def test_all_rows_want_at_most_25_minutes_and_settle_the_open_points(self):
        self.assertLessEqual(sum(row.wants for row in ROWS if not row.more), 25 * 60)
        self.assertEqual({row.point for row in ROWS if not row.more}, {0, 1, 3, 4, 5, 6, 7})
        self.assertEqual({row.point for row in ROWS}, set(range(8)))
        self.assertEqual(len({row.name for row in ROWS}), len(ROWS))

    def test_the_order_is_that_of_worth(self):
        groups = list(dict.fromkeys(row.group for row in ROWS if not row.more))
        self.assertEqual(
            groups,
            ["start", "cost", "device", "ends", "graphs", "sharing", "numerics", "time", "steps", "soak", "promises"],
        )

    def test_every_case_of_the_device_is_a_row(self):
        text = (ROOT / "tests/cuda/gpu_test.cc").read_text()
        self.assertEqual(
            len(gpu_working_rows.CASES), len(re.findall(r"^TEST_CASE\(", text, re.MULTILINE)) - 1
        )  # the other process of a case


class ThePack(Folder):
    def setUp(self):
        super().setUp()
        self.torch = self.folder / "torch"
        self.pack = self.folder / "pack"
        (self.pack / "build").mkdir(parents=True)
        (self.pack / "build/berth").write_text("a program")
        self.torch.mkdir()
        self.manifest = {
            "sources": gpu_pack.state_of_tree(),
            "machine": platform.machine(),
            "torch": "2.11.0",
            "cuda": "13.0",
            "files": {"build/berth": hashlib.sha256(b"a program").hexdigest()},
        }
        self.enterContext(mock.patch.object(gpu_pack, "PACK", self.pack))

    def check(self, torch="2.11.0+cu130", cuda="13.0", **changed):
        (self.pack / "manifest.json").write_text(json.dumps(self.manifest | changed))
        (self.torch / "version.py").write_text(
            f"__all__ = ['__version__', 'cuda']\n__version__ = '{torch}'\ncuda: Optional[str] = '{cuda}'\n"
        )
        return gpu_pack.check(
            types.SimpleNamespace(build=self.pack / "build", python="python3", torch_root=lambda: self.torch)
        )

    def test_it_is_taken_where_it_fits_the_machine(self):
        self.assertEqual(self.check(), "")
        self.assertIn("not those that were packed", self.check(sources="0123"))

    def test_it_is_refused_by_name_where_it_cannot_run(self):
        for said, changed in (
            ("for aarch64_be, this machine is", {"machine": "aarch64_be"}),
            ("for torch 2.11.0, python3 has 2.12.1", {"torch": "2.12.1"}),
            ("for CUDA 13.0, the torch here has 12.8", {"cuda": "12.8"}),
        ):
            here = {name: value for name, value in changed.items() if name in ("torch", "cuda")}
            with self.assertRaisesRegex(Failure, said):
                self.check(**(here or changed))
        (self.pack / "build/berth").write_text("a pro")
        with self.assertRaisesRegex(Failure, "not as they were packed: build/berth"):
            self.check()


class Standin(Folder):
    """bench/gpu on the stand-in, with small sizes."""

    def command(self, *arguments, work=None):
        return [
            ROOT / "bench/gpu",
            "--standin",
            f"{BUILT[0]}/standin",
            "--build-dir",
            BUILT[0],
            "--python",
            BUILT[1],
            "--small",
            "--work",
            work or self.folder,
            "--archive",
            self.archive,
            *arguments,
        ]

    def gpu(self, *arguments, code=0, work=None):
        result = run(*self.command(*arguments, work=work)[1:])
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout + result.stderr


@unittest.skipUnless(BUILT, "no build was given")
class OnTheStandin(Standin):
    def test_it_is_packed_without_places_of_this_machine(self):
        arguments = types.SimpleNamespace(small=True, standin=None, build_dir=pathlib.Path(BUILT[0]), python=BUILT[1])
        size = gpu_pack.pack(arguments, self.folder / "pack")
        self.assertLess(size, 48 << 20)
        manifest = json.loads((self.folder / "pack/manifest.json").read_text())
        self.assertEqual({name for name in gpu_pack.BUILT if f"build/{name}" not in manifest["files"]}, set())
        self.assertEqual((manifest["sources"], manifest["machine"]), (gpu_pack.state_of_tree(), platform.machine()))

    def test_rows_that_fail_or_hang_stop_no_other(self):
        empty = self.folder / "build"
        empty.mkdir()
        said = self.gpu("--build-dir", empty, "start/doctor", "ends/fork", code=1)  # the later folder counts
        self.assertIn("start/doctor", said)
        self.assertIn("berth is not there", said)
        self.assertIn("gpu: failed: start/doctor, ends/fork", said)
        said = self.gpu("--patience", 0.02, "ends/exit", "sharing/native", code=1)
        self.assertEqual(said.count("ended at its limit"), 2)
        self.assertEqual(
            {name: row["outcome"] for name, row in self.report()["rows"].items()},
            {name: "fail" for name in ("start/doctor", "ends/fork", "ends/exit", "sharing/native")},
        )
        self.assertEqual(processes_with(str(self.folder)), [])

    def test_what_failed_is_repeated_where_it_is_named_only(self):
        empty = self.folder / "build"
        empty.mkdir()
        self.gpu("--build-dir", empty, "start/doctor", code=1)
        said = self.gpu("start/doctor", "device/4 context")
        self.assertIn("gpu: 2 pass", said)
        self.assertIn("all of it was done before", self.gpu("start/doctor", "device/4 context"))
        self.assertIn("gpu: 1 pass", self.gpu("--again", "start/doctor"))

    def test_a_second_call_goes_on_where_the_first_was_cut(self):
        process = subprocess.Popen(
            [str(part) for part in self.command("start/doctor", "soak/berth", "device/4 context", "promises/plug")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        while time.monotonic() < until and not (self.archive.is_file() and "soak/berth" in self.report()["begun"]):
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        self.assertEqual(processes_with(str(self.folder)), [])
        self.assertEqual(
            (list(self.report()["rows"]), self.report()["begun"]),
            (["start/doctor", "device/4 context"], {"soak/berth": 1}),
        )
        # On another machine, which has the archive alone.
        said = self.gpu(
            "start/doctor", "soak/berth", "promises/plug", "--resume", self.archive, work=self.folder / "other"
        )
        self.assertNotIn("start/doctor", said)
        self.assertIn("gpu: 2 ran", said)
        self.assertEqual(
            (list(self.report()["rows"]), self.report()["begun"]),
            (["start/doctor", "device/4 context", "soak/berth", "promises/plug"], {}),
        )
        self.assertIn("logs/start-doctor.log", self.members())

    def test_a_row_that_ended_the_machine_twice_is_left_alone(self):
        self.gpu("start/doctor")
        report = self.report()
        report["begun"] = {"ends/fork": 2}
        (self.folder / "gpu.json").write_text(json.dumps(report))
        said = self.gpu("ends/fork", "device/4 context", code=1)
        self.assertIn("ended twice while it ran", said)
        self.assertEqual(self.report()["rows"]["device/4 context"]["outcome"], "pass")

    def test_nothing_begins_that_wants_more_than_is_left(self):
        said = self.gpu("--minutes", 0.2, "start/doctor", "soak/berth", "device/4 context")
        self.assertIn("gpu: 2 pass", said)
        self.assertIn("not done yet: soak/berth; call bench/gpu again", said)
        self.assertIn("| soak/berth | 45 | | not yet | |", self.members()["gpu.md"])
        self.assertIn("not done yet: start/train", self.gpu("--minutes", 0, "start/train"))

    def test_what_is_no_archive_is_refused(self):
        (self.folder / "x").write_text("no archive")
        self.assertIn("x is no archive of an earlier call", self.gpu("--resume", self.folder / "x", code=1))


@unittest.skipUnless(BUILT, "no build was given")
class Steps(Standin):
    """The rows that use the package's adapter by themselves, without the rest of the package."""

    def test_steps_run_by_the_adapter_of_the_library_that_is_carried(self):
        self.gpu("steps/gpt2")
        self.assertIn(self.report()["rows"]["steps/gpt2"]["outcome"], ("ran", "measured"))


@unittest.skipUnless(BUILT, "no build was given")
class AllOfIt(Folder):
    def test_it_is_rehearsed_with_what_is_carried_and_nothing_else(self):
        result = run("--rehearse", "--small", "--build-dir", BUILT[0], "--python", BUILT[1], "--work", self.folder)
        print(result.stdout, result.stderr)
        self.assertEqual(result.returncode, 0)
        report, members = self.report(), self.members()
        rows = report["rows"]
        self.assertEqual(list(rows), [row.name for row in ROWS if not row.more])
        self.assertEqual(
            {name for name, row in rows.items() if row["outcome"] not in ("pass", "ran", "measured")},
            {name for name in ("graphs/compile",) if rows[name]["outcome"] == "skip"},
        )
        self.assertTrue(report["standin"])
        self.assertIn("stand-in", report["machine"]["gpu"])
        for name in rows:
            self.assertIn(f"| {name} | ", members["gpu.md"])
            self.assertIn("logs/" + re.sub("[^a-z0-9]+", "-", name) + ".log", members)
        for name, text in members.items():
            for place in (str(ROOT), str(self.folder), BUILT[0]):
                self.assertNotIn(place, text, name)
        self.assertNotIn(f'"{platform.node()}"', members["gpu.json"])
        self.assertLess(self.archive.stat().st_size, 16 << 20)
        self.assertEqual(rows["numerics/gpt2"]["misses_a_step"], {"berth serve": 0, "berth learn": 0})
        self.assertIsNone(rows["numerics/gpt2"]["equal"], "losses were compared where they mean nothing")
        self.assertGreater(rows["soak/berth"]["stats"]["hits"], 0)


if __name__ == "__main__":
    groups = {"Parts": (TheTable, ThePack, OnTheStandin), "Steps": (Steps,), "Rehearsal": (AllOfIt,)}
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in groups[PART])
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
