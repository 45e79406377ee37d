"""Every block of code in the package's README runs as it is written. readme_test.py README"""

import pathlib
import re
import sys
import unittest

import berth
from support import ProgramCase

README = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


class Readme(ProgramCase):
    def test_python(self):
        blocks = [text for kind, text in BLOCKS if kind == "python"]
        self.assertGreater(len(blocks), 3)
        printed = [self.python(text) for text in blocks]
        self.assertGreater(float(printed[0]), 0.5)
        self.assertIn("gap", printed[1])
        self.assertEqual(printed[2].split()[-3:], ["60", "0.0", "True"])
        self.assertIn("of 1000 bytes, 1 operator recomputed", printed[4])
        self.assertIn("scheduled=2,", printed[5])
        self.assertIn("budget_not_met=''", printed[5])

    def test_shell(self):
        blocks = [text for kind, text in BLOCKS if kind == "sh"]
        self.assertTrue(blocks)
        self.write(
            "train.py",
            next(text for kind, text in BLOCKS if kind == "python")
            .replace("import berth\n", "")
            .replace('berth.install("cpu")', "")
            .replace('print(berth.stats("cpu").hit_rate)', ""),
        )
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "python").symlink_to(sys.executable)
        for block in blocks:
            for line in block.splitlines():
                self.ran([*line.replace("python ", sys.executable + " ", 1).split()])
                if "--verbose" in line:
                    self.assertIn("hits", self.stderr)

    def test_every_counter_and_function_that_it_names_is_there(self):
        for name in re.findall(r"berth\.(\w+)\(", README):
            self.assertTrue(hasattr(berth, name), name)
        table = README.split("## What the counters mean")[1].split("## Trouble")[0]
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
            for name in re.findall(r"`(\w+)`", row):
                self.assertIn(name, berth.Stats.__dataclass_fields__)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
