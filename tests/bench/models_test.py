"""bench/models in its smallest form, on the stand-in: models_test.py [BUILD PYTHON]: what was built, who has torch."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = sys.argv[1:]
NATIVE, OURS = ("caching", "expandable"), ("pool", "learning", "serving", "plain")


class Models(unittest.TestCase):
    def setUp(self):
        if not BUILT:
            self.skipTest("no build was given")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_script(self, *arguments):
        return subprocess.run(
            [
                ROOT / "bench/models",
                "--build-dir",
                BUILT[0],
                "--python",
                BUILT[1],
                "--output",
                self.folder / "models",
                "--folder",
                self.folder / "kept",
                *arguments,
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def test_a_row_is_measured_once_and_its_trace_is_kept(self):
        result = self.run_script("--smoke")
        print(result.stdout, result.stderr)
        self.assertEqual(result.returncode, 0)
        (row,) = json.loads((self.folder / "models.json").read_text())["rows"]
        self.assertEqual(row["row"], "transformer-1")
        self.assertEqual(list(row["allocators"]), [*NATIVE, *OURS])
        for name, one in row["allocators"].items():
            with self.subTest(allocator=name):
                self.assertGreaterEqual(one["ratio"], 1)
                self.assertEqual(one["memory_calls_a_step"], 0)
                self.assertEqual(one["requests_a_step"] > 0, name in OURS)
        for name in ("learning", "serving", "plain"):
            self.assertEqual(row["allocators"][name]["misses_a_step"], 0, name)
        for name in ("caching", "plain"):  # cudaMalloc and cudaFree alone, 33.2 us each
            one = row["allocators"][name]
            self.assertAlmostEqual(one["driver_ms"], 0.0332 * one["memory_calls"], places=6)
        self.assertEqual(row["plan"]["arena_bytes"], row["plan"]["lower_bound_bytes"])
        # The trace says what the allocators of the run itself held.
        self.assertEqual(row["replayed_bytes"]["caching"], row["allocators"]["caching"]["reserved_peak_bytes"])
        trace = self.folder / "kept/transformer-1.trace.gz"
        shown = subprocess.run([pathlib.Path(BUILT[0]) / "berth", "show", trace], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        replayed = self.run_script("--smoke", "--from-traces", "--output", self.folder / "replayed")
        self.assertEqual(replayed.returncode, 0, replayed.stderr)
        (other,) = json.loads((self.folder / "replayed.json").read_text())["rows"]
        for name, one in other["allocators"].items():
            self.assertEqual(one["reserved_peak_bytes"], row["replayed_bytes"][name], name)
        again = self.run_script("--smoke")
        self.assertEqual(again.returncode, 0)
        self.assertEqual(again.stderr, "", "it was measured again")
        self.assertEqual(again.stdout, result.stdout)

    def test_the_samples_are_planned_at_their_bound_and_hold_less_than_expandable_segments(self):
        samples = sorted((ROOT / "plans").glob("*.trace.gz"))
        self.assertEqual([path.name for path in samples], ["alexnet.trace.gz", "resnet18.trace.gz"])
        for sample in samples:
            with self.subTest(sample=sample.name):
                berth = pathlib.Path(BUILT[0]) / "berth"
                plan = subprocess.run(
                    [berth, "plan", sample, "-o", self.folder / "x.plan", "--json"], capture_output=True, text=True
                )
                self.assertEqual(plan.returncode, 0, plan.stderr)
                said = json.loads(plan.stdout)
                self.assertEqual(said["arena_bytes"], said["lower_bound_bytes"])
                replayed = subprocess.run(
                    [berth, "replay", sample, "--allocator", "planned,pool,expandable", "--json"],
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(replayed.returncode, 0, replayed.stderr)
                held = {
                    name: one["reserved_peak_bytes"] for name, one in json.loads(replayed.stdout)["allocators"].items()
                }
                self.assertLess(held["planned"], held["expandable"])
                self.assertLess(held["pool"], held["expandable"])

    def test_a_row_that_is_not_there_is_wrong_usage(self):
        for arguments, words in (
            (["--only", "alexnet"], "there is no row 'alexnet'"),
            (["--jobs", "0"], "--jobs and --rows are 1 or more"),
        ):
            result = self.run_script(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
