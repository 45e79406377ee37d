"""`berth doctor --device` on the stand-in's drivers, and where there is none. device_report_test.py BUILD"""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(sys.argv.pop(1))
BERTH = BUILD / "berth"
FORMS = [
    "virtual, with file descriptors and RDMA",
    "virtual, with file descriptors, without RDMA",
    "virtual, without file descriptors and RDMA",
    "plain",
]


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class Doctor(unittest.TestCase):
    def doctor(self, *arguments, code=0, standin=(), program=BERTH, **variables):
        front = [BUILD / "standin/berth-standin", *standin, "--"] if standin is not None else []
        clean = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        result = subprocess.run(
            [*front, program, "doctor", *arguments],
            env={**clean, **variables},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.stderr = result.stderr
        return result.stdout

    def device(self, *driver, code=0, **variables):
        found = json.loads(self.doctor("--device", "--json", standin=driver, code=code, **variables))
        self.assertEqual(len(found["devices"]), 1)
        return found, found["devices"][0]

    def test_each_form_is_tried_and_the_best_that_works_is_taken(self):
        for driver, works, memory in (
            ("full", [True, True, True, True], "virtual"),
            ("wsl", [False, True, True, True], "virtual"),
            ("no-descriptors", [False, False, True, True], "virtual"),
            ("no-virtual", [False, False, False, True], "plain"),
        ):
            with self.subTest(driver=driver):
                found, device = self.device("--driver", driver)
                self.assertEqual([one["name"] for one in device["tries"]], FORMS)
                self.assertEqual([one["works"] for one in device["tries"]], works)
                self.assertEqual([one["error"] is None for one in device["tries"]], works)
                self.assertEqual((device["memory"], device["refused"]), (memory, None))
                taken = FORMS[works.index(True)].split(", ", 1)[-1]
                self.assertTrue(
                    device["why"].startswith(
                        "plain, its" if memory == "plain" else "virtual, in pages of 2.0 MiB, " + taken
                    ),
                    device["why"],
                )
                self.assertEqual(
                    (found["driver"], found["memory_setting"], found["handle_setting_bytes"]), ("13.0", "auto", 0)
                )

    def test_the_text_names_what_was_refused_and_what_is_used(self):
        start = time.monotonic()
        text = " ".join(
            self.doctor("--device", standin=("--driver", "wsl", "--gpu", "A100-40"), BERTH_HANDLE="32MiB").split()
        )
        self.assertLess(time.monotonic() - start, 2)
        self.assertIn("cuda:0: NVIDIA A100-SXM4-40GB, 39.4 GiB, ", text)
        self.assertIn("RDMA of virtual memory yes", text)
        self.assertIn(
            "with file descriptors and RDMA cuMemSetAccess failed: unknown error (cudaErrorUnknown, 999)", text
        )
        self.assertIn("berth uses: virtual, in pages of 2.0 MiB, with file descriptors, without RDMA; in vain: ", text)
        self.assertIn("(BERTH_MEMORY=auto, BERTH_HANDLE=32.0 MiB)", text)

    def test_every_gpu_is_examined_or_the_one_that_is_named(self):
        several = ("--devices", "3")
        found = json.loads(self.doctor("--device", "--json", standin=several))["devices"]
        self.assertEqual([(one["index"], one["peers"]) for one in found], [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])])
        self.assertEqual(
            [one["index"] for one in json.loads(self.doctor("--device", "2", "--json", standin=several))["devices"]],
            [2],
        )
        self.doctor("--device", "3", code=2, standin=several)
        self.assertIn("cuda:3 was requested, the driver has 3", self.stderr)

    def test_settings_that_a_gpu_cannot_serve_are_an_answer(self):
        _, device = self.device("--driver", "no-virtual", code=1, BERTH_MEMORY="virtual")
        self.assertIsNone(device["memory"])
        self.assertIn("virtual memory was requested on cuda:0", device["refused"])
        _, device = self.device(BERTH_MEMORY="plain")
        self.assertEqual((device["memory"], device["why"]), ("plain", "plain, as requested"))
        self.doctor("--device", code=2, BERTH_MEMORY="some")
        self.assertIn("BERTH_MEMORY is 'some'", self.stderr)

    def test_a_form_is_not_judged_on_a_full_device(self):
        _, device = self.device("--fail", "cuMemCreate:1:2:3,cudaMalloc:1:2")
        self.assertEqual([one["works"] for one in device["tries"]], [None] * 4)
        self.assertIn("out of memory", device["tries"][0]["error"])

    def test_nothing_of_a_try_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            self.doctor("--device", standin=("--log", f"{folder}/log"))
            calls = [line.split()[0].split("(")[0] for line in pathlib.Path(folder, "log").read_text().splitlines()]
        for came, went in (
            ("cuMemCreate", "cuMemRelease"),
            ("cuMemMap", "cuMemUnmap"),
            ("cuMemAddressReserve", "cuMemAddressFree"),
            ("cudaMalloc", "cudaFree"),
        ):
            self.assertEqual(calls.count(came), calls.count(went), came)
            self.assertGreater(calls.count(came), 0)

    @unittest.skipIf(has_driver(), "there is a driver here")
    def test_without_a_driver_it_is_one_error(self):
        self.assertEqual(self.doctor("--device", code=4, standin=None), "")
        self.assertIn("berth: error: there is no driver of CUDA here: libcuda.so.1: ", self.stderr)
        self.assertEqual(len(self.stderr.splitlines()), 1)

    def test_without_a_gpu_it_is_one_error(self):
        self.doctor("--device", code=4, standin=("--devices", "0"))
        self.assertIn("the driver of CUDA shows this process no GPU", self.stderr)

    def test_a_child_that_is_not_there_or_dies_is_one_error(self):
        with tempfile.TemporaryDirectory() as folder:
            alone, child = pathlib.Path(folder, "berth"), pathlib.Path(folder, "berth-device-report")
            shutil.copy(BERTH, alone)
            for script, said in (
                (None, "berth was built without CUDA"),
                ("kill -SEGV $$", "was ended by signal 11"),
                ("exit 3", "ended with 3 and wrote nothing"),
            ):
                if script is not None:
                    child.write_text(f"#!/bin/sh\n{script}\n")
                    child.chmod(0o755)
                self.doctor("--device", code=4, standin=None, program=alone)
                self.assertIn(said, self.stderr)

    def test_wrong_usage_is_named(self):
        for arguments, said in (
            ((), "--device for what this machine's GPUs can do"),
            (("--device", "x.trace"), "'x.trace' is no number of a device"),
            (("--device", "--gpu-total", "8GiB"), "--gpu-total needs a snapshot or a trace"),
            (("x.trace", "--device"), "--device of a snapshot needs a number"),
        ):
            self.doctor(*arguments, code=2, standin=None)
            self.assertIn(said, self.stderr)


if __name__ == "__main__":
    unittest.main()
