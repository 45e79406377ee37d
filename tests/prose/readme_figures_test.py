"""The figures of README.md beside the pages of bench/results: that they are the same, and that a difference is noticed."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Figures(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        shutil.copy(ROOT / "README.md", self.root)
        shutil.copytree(
            ROOT / "bench/results",
            self.root / "bench/results",
            ignore=shutil.ignore_patterns("*.json", "*.png", "*.svg"),
        )

    def figures(self, *arguments, root=None):
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "bench/tools/readme_figures.py", "--root", root or self.root, *arguments],
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def change(self, name, pattern, new):
        path = self.root / name
        text, count = re.subn(pattern, new, path.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
        self.assertEqual(count, 1, pattern)
        path.write_text(text, encoding="utf-8")

    def test_the_readme_has_the_figures_of_the_pages(self):
        self.assertEqual(self.figures("--check", root=ROOT), (0, ""))

    def test_the_readme_has_ten_rows_and_at_most_200_lines(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertLessEqual(len(text.splitlines()), 200)
        rows = re.search(r"^## Figures$.*?^\| --- [^\n]*\n((?:\|[^\n]*\n)+)", text, re.MULTILINE | re.DOTALL)[
            1
        ].splitlines()
        self.assertEqual(len(rows), 10)

    def test_a_page_that_is_measured_again_is_noticed_and_written(self):
        for name, pattern, new, found in (
            ("demo.md", r"^\| berth learn +\|", "| berth learn | 300.4 ms | 1 |", "300 ms"),
            ("demo.md", r"Commit [0-9a-f]+", "Commit 1234567", "1234567, 20"),
            ("traces.md", r"^\| bert \| 1,239 \| 1\.000", "| bert | 1,239 | 1.001", "1.001 at most"),
            ("changing.md", r"Mean: berth [\d.]+,", "Mean: berth 1.234,", "1.234"),
            ("cuda.md", r"^\| 1 +\| +\d+ \| +\d+ \|", "| 1 | 208 | 81 |", "81 ns | 208 ns, PyTorch"),
            ("step.md", r"^(\| berth, 60 % .*?) 1\.01 ", r"\1 1.05 ", "1.05 x"),
            ("partition.md", r"^\| 40% +\| +[\d.]+ \|", "| 40% | 50.1 |", "50.1 MiB, PyTorch"),
            ("schedule.md", r"^(\| UNet .*\| +)yes", r"\1 no", "proven: 8 of 9"),
        ):
            with self.subTest(name=name, found=found):
                self.change(f"bench/results/{name}", pattern, new)
                code, text = self.figures("--check")
                self.assertEqual(code, 1, text)
                self.assertRegex(text, rf"bench/results has: .*{re.escape(found)}")
                self.assertEqual(self.figures(), (0, ""))
                self.assertEqual(self.figures("--check"), (0, ""))
        before, after = (
            root.joinpath("README.md").read_text(encoding="utf-8").splitlines() for root in (ROOT, self.root)
        )
        self.assertEqual(len(before), len(after))  # nothing but the rows

    def test_a_figure_that_a_page_has_no_more_is_named(self):
        self.change("bench/results/step.md", r"^\| berth, memory of checkpoint", "| berth, as checkpoint")
        code, text = self.figures("--check")
        self.assertEqual(code, 1)
        self.assertIn("step.md has no 'over eager' of 'berth, memory of checkpoint'", text)


if __name__ == "__main__":
    unittest.main()
