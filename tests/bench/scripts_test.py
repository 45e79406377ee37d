"""bench/demo and bench/allocators, on stand-ins for the two programs that they run."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

TRAIN = r"""#!/usr/bin/env python3
import json, os, sys
arguments = [a for a in sys.argv[1:] if a != "--quiet"]
options = dict(zip(arguments[::2], arguments[1::2]))
mode = os.environ.get("BERTH_MODE", "learn")
if os.environ.get("FAIL_IN") == mode:
    sys.exit("train: out of luck")
if os.environ.get("MALLOC_CHECK_"):
    sys.exit("train: the caller's environment came through")
steps, warmup = int(options["--steps"]), int(options["--warmup"])
off = mode == "off"
losses = ["%08x" % (0x40000000 - i) for i in range(steps + warmup)]
if os.environ.get("DIFFER_IN") == mode:
    losses[-1] = "7fc00000"
stats = lambda n: None if off else {"hits": 10 * n, "lent": 0, "misses_size": n, "misses_busy": 0, "misses_lane": 0,
                                    "unplanned": 0, "requests": 11 * n, "arena": 2048, "arena_bound": 1024}
json.dump({"model": options["--model"], "description": "a fake", "losses_hex": losses,
           "steps": [{"ms": 20.0 if off else 10.0, "thread_ms": 9.0, "minor_faults": 5000 if off else 0}] * steps,
           "peak_rss_bytes": 3 << 20, "user_seconds": 1.5, "system_seconds": 0.5, "stats_after_warmup": stats(warmup), "stats": stats(warmup + steps)},
          open(options["--json"], "w"))
"""

BERTH = r"""#!/usr/bin/env python3
import os, subprocess, sys
command, arguments = sys.argv[1], sys.argv[2:]
if command == "record":
    open(arguments[arguments.index("-o") + 1], "w").write("trace")
    os.environ["BERTH_MODE"] = "record"
    sys.exit(subprocess.call(arguments[arguments.index("--") + 1:]))
if command == "plan":
    open(arguments[arguments.index("-o") + 1], "w").write("plan")
    print('{"buffers": 11, "arena_bytes": 2048, "lower_bound_bytes": 1024, "engine": "fake"}')
if command == "verify" and os.environ.get("FAIL_IN") == "verify":
    sys.exit(1)
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.build = pathlib.Path(self.folder.name) / "build"
        self.data = pathlib.Path(self.folder.name) / "data"
        self.data.mkdir()
        for name in ("digits.csv", "text.txt"):
            (self.data / name).write_text("0\n")
        for name, text in {"bench/train/train": TRAIN, "berth": BERTH}.items():
            path = self.build / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def run_script(self, name, *arguments, **environment):
        return subprocess.run(
            [ROOT / "bench" / name, "--build-dir", self.build, "--data", self.data, *map(str, arguments)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def test_the_demo_prints_one_row_an_allocator(self):
        result = self.run_script("demo", "--model", "gpt", "--steps", 3, "--rounds", 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [line for line in result.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual([row.split("|")[1].strip() for row in rows[2:]], ["glibc", "berth learn", "berth serve"])
        for word in ("10.0 ms", "2.00x", "3 MiB", "/ 2.000", "equal"):
            self.assertIn(word, rows[-1])

    def test_the_demo_shows_progress_on_standard_error(self):
        result = self.run_script("demo", "--smoke")
        self.assertIn("demo: mlp: 1/4 berth record, plan, verify", result.stderr)
        self.assertNotIn("demo:", result.stdout)

    def test_the_demo_as_json_is_one_object_with_stable_names(self):
        answer = json.loads(self.run_script("demo", "--smoke", "--json").stdout)
        model = answer["models"][0]
        self.assertTrue(model["losses_agree"])
        self.assertEqual(set(model["allocators"]), {"glibc", "berth learn", "berth serve"})
        serve = model["allocators"]["berth serve"]
        self.assertEqual(serve["counts"], {"hits": 10, "misses": 1, "unplanned": 0, "requests": 11})
        self.assertEqual(serve["minor_faults_per_step"], 0)
        self.assertEqual(serve["speed_over_glibc"], 2)

    def test_the_demo_trains_both_models_by_default(self):
        answer = json.loads(self.run_script("demo", "--steps", 1, "--rounds", 1, "--json").stdout)
        self.assertEqual([model["model"] for model in answer["models"]], ["gpt", "resnet18"])

    def test_losses_that_differ_in_one_bit_fail_the_demo(self):
        result = self.run_script("demo", "--smoke", DIFFER_IN="serve")
        self.assertEqual(result.returncode, 1)
        self.assertIn("DIFFER", result.stdout)
        self.assertIn("losses differ between allocators", result.stderr)

    def test_a_program_that_fails_is_named_with_its_last_words(self):
        result = self.run_script("demo", "--smoke", FAIL_IN="serve")
        self.assertEqual(result.returncode, 1)
        self.assertIn("train ended with 1", result.stderr)
        self.assertIn("train: out of luck", result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_a_plan_that_does_not_verify_ends_the_demo(self):
        result = self.run_script("demo", "--smoke", FAIL_IN="verify")
        self.assertEqual(result.returncode, 1)
        self.assertIn("berth ended with 1", result.stderr)

    def test_the_callers_allocator_settings_do_not_reach_the_runs(self):
        self.assertEqual(self.run_script("demo", "--smoke", MALLOC_CHECK_="3", BERTH_MODE="nonsense").returncode, 0)

    def test_a_missing_program_and_missing_data_are_named(self):
        (self.build / "berth").unlink()
        self.assertIn("bench/demo builds it", self.run_script("demo", "--smoke").stderr)
        (self.data / "text.txt").unlink()
        self.assertIn("cmake/setup puts it", self.run_script("demo", "--smoke").stderr)

    def test_wrong_usage_ends_with_2(self):
        self.assertEqual(self.run_script("demo", "--steps", 0).returncode, 2)
        self.assertEqual(self.run_script("demo", "--model", "vgg").returncode, 2)
        result = self.run_script("allocators", "--only", "dlmalloc")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the allocators are glibc", result.stderr)

    def test_the_comparison_writes_a_table_and_its_numbers(self):
        output = pathlib.Path(self.folder.name) / "results" / "cpu"
        result = self.run_script("allocators", "--model", "gpt", "--rounds", 3, "--steps", 2, "--output", output)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(output.with_suffix(".json").read_text())
        allocators = report["models"][0]["allocators"]
        self.assertEqual(allocators["berth serve"]["speed_over"]["glibc"], {"median": 2, "min": 2, "max": 2})
        self.assertEqual(len(allocators["glibc"]["median_step_ms_by_round"]), 3)
        for name in ("command", "commit", "date", "machine"):
            self.assertIn(name, report)
        self.assertEqual(output.with_suffix(".md").read_text(), result.stdout)
        self.assertNotIn(str(ROOT), json.dumps(report))

    def test_the_smoke_form_of_the_comparison_writes_no_results(self):
        before = sorted((ROOT / "bench").rglob("*"))
        self.assertEqual(self.run_script("allocators", "--smoke").returncode, 0)
        self.assertEqual(
            [p for p in sorted((ROOT / "bench").rglob("*")) if p not in before and "__pycache__" not in str(p)], []
        )


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
