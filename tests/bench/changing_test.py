"""bench/changing in its smallest form, on the stand-in: changing_test.py [BUILD PYTHON]: what was built, who has torch."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = sys.argv[1:]


class Changing(unittest.TestCase):
    def setUp(self):
        if not BUILT:
            self.skipTest("no build was given")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.output = pathlib.Path(temporary.name) / "changing"

    def run_script(self, *arguments):
        return subprocess.run(
            [
                ROOT / "bench/changing",
                "--build-dir",
                BUILT[0],
                "--python",
                BUILT[1],
                "--output",
                self.output,
                *arguments,
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def test_each_program_is_run_under_each_allocator(self):
        result = self.run_script("--smoke")
        print(result.stdout, result.stderr)
        self.assertEqual(result.returncode, 0)
        report = json.loads(self.output.with_suffix(".json").read_text())
        self.assertEqual([answer["program"] for answer in report["programs"]], ["buckets", "train-8-evaluate-4"])
        for answer in report["programs"]:
            for setting, one in answer["allocators"].items():
                with self.subTest(program=answer["program"], allocator=setting):
                    self.assertEqual(one["steps"], 24)
                    self.assertIsNone(one["out_of_memory"])
                    self.assertEqual(one["violations"], 0)
                    self.assertGreaterEqual(one["ratio"], 1)
            self.assertEqual(list(answer["allocators"]), ["berth", "plain", "native", "expandable"])
            for setting in ("berth", "plain"):
                berth = answer["allocators"][setting]
                self.assertGreater(berth["counts"]["requests"], berth["steps"])
                self.assertGreater(berth["counts"]["hits"], 0, berth)
            # By the table: plain memory has cudaMalloc and cudaFree alone, 33.2 us each on an H100.
            for setting in ("plain", "native"):
                one = answer["allocators"][setting]
                self.assertAlmostEqual(one["driver_us"], 33.2 * one["memory_calls"], places=3)
                self.assertGreater(one["memory_calls"], 0)
            self.assertNotAlmostEqual(
                answer["allocators"]["berth"]["driver_us"],
                33.2 * answer["allocators"]["berth"]["memory_calls"],
                places=3,
            )
        self.assertEqual(self.output.with_suffix(".md").read_text(), result.stdout)
        self.assertNotIn(str(ROOT), json.dumps(report["programs"]))

    def test_a_program_that_is_not_there_is_wrong_usage(self):
        result = self.run_script("--only", "bucket")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no program 'bucket'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
