"""bench/doctor in its smallest form: doctor_test.py [BUILD [PYTHON]]: what was built, who has torch for the stand-in."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = sys.argv[1:]


class Doctor(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.output = pathlib.Path(temporary.name) / "doctor"

    def run_script(self, *arguments):
        if not BUILT:
            self.skipTest("no build was given")
        python = ["--python", BUILT[1]] if len(BUILT) > 1 else []
        result = subprocess.run(
            [ROOT / "bench/doctor", "--smoke", "--build-dir", BUILT[0], *python, "--output", self.output, *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        print(result.stdout, result.stderr)
        return result

    def test_a_forecast_is_within_a_percent_of_what_is_measured(self):
        if len(BUILT) < 2:
            self.skipTest("no libtorch for CUDA")
        self.assertEqual(self.run_script("forecast").returncode, 0)
        report = json.loads(self.output.with_suffix(".json").read_text())
        self.assertEqual([answer["program"] for answer in report["programs"]], ["buckets"])
        for answer in report["programs"]:
            self.assertLess(abs(answer["error"]), 0.01, answer)
            self.assertEqual(answer["native_by_snapshot_bytes"], answer["native_measured_bytes"])
            self.assertAlmostEqual(answer["native_by_model_bytes"] / answer["native_measured_bytes"], 1, delta=0.01)

    def test_a_large_snapshot_is_imported(self):
        self.assertEqual(self.run_script("import").returncode, 0)
        large = json.loads(self.output.with_suffix(".json").read_text())["import"]
        self.assertGreater(large["entries"], 20000)
        self.assertLess(large["runs"][0]["peak_bytes"], 200 << 20)

    def test_a_part_that_is_not_there_is_wrong_usage(self):
        self.assertEqual(self.run_script("exports").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
