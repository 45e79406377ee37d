"""bench/place_peers, bench/olla and bench/scaling, on stand-ins for berth and the other planners."""

import gzip
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/tools"))
import peers  # noqa: E402
from training import Failure  # noqa: E402

# Everything side by side, which is never the optimum but always legal.
STACK = r"""
def stack(path):
    rows = [line.split(",") for line in open(path).read().splitlines()[1:]]
    top, lines = 0, ["id,lower,upper,size,offset"]
    for row in rows:
        lines.append(",".join([*row[:4], str(top)]))
        top += int(row[3])
    return "\n".join(lines) + "\n", top
"""
BERTH = (
    "#!/usr/bin/env python3\nimport json, os, sys\n"
    + STACK
    + r"""
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1] if name in arguments else None
engine = value("--engine") or "auto"
text, top = stack(arguments[1])
if os.environ.get("REFUSE") == engine:
    sys.exit("berth: error: too many pairs")
if os.environ.get("MISSING"):
    sys.exit("berth: error: integer programs need the library HiGHS")
open(value("-o"), "w").write(text)
json.dump({"arena_bytes": top + int(os.environ.get("LIE", 0)), "lower_bound_bytes": top, "proven_optimal": engine == "auto",
           "engine": engine, "seconds": 0.25}, sys.stdout)
"""
)
MINIMALLOC = (
    "#!/usr/bin/env python3\nimport os, sys\n"
    + STACK
    + r"""
options = dict(argument[2:].split("=") for argument in sys.argv[1:])
print("Elapsed time 1.500s", file=sys.stderr)
text, top = stack(options["input"])
if top > int(options["capacity"]):
    sys.exit(1)
open(options["output"], "w").write(text)
"""
)
IDEALLOC = (
    "#!/usr/bin/env python3\nimport sys\n"
    + STACK
    + r"""
path = sys.argv[sys.argv.index("--input") + 1]
assert "ex-csv" in sys.argv
assert all(int(n) % 2 == 0 for line in open(path).read().splitlines()[1:] for n in line.split(",")[1:3]), "ticks are not doubled"
print("Total allocation time: 2500000 μs")
print(f"Makespan:\t{stack(path)[1]} bytes")
"""
)


SCALING = r"""#!/usr/bin/env python3
import sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
n = int(options["--buffers"])
print('{"buffers": %d, "family": "%s", "seconds": %f, "gap": 0.01, "bytes_a_buffer": 200}' % (n, options["--family"], n * 1e-6))
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name, text in {
            "build/berth": BERTH,
            "build/bench/scaling": SCALING,
            "mini/build/minimalloc": MINIMALLOC,
            "ideal/target/release/idealloc": IDEALLOC,
        }.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        self.rows = self.folder / "rows.csv"
        self.rows.write_text("id,lower,upper,size\na,0,4,100\nb,2,6,50\n")

    def run_script(self, name, *arguments, **environment):
        return subprocess.run(
            [
                ROOT / "bench" / name,
                "--build-dir",
                self.folder / "build",
                "--output",
                self.folder / "table",
                *map(str, arguments),
            ],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def cells(self, text):
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]

    def test_each_planner_has_its_gap_time_and_memory(self):
        result = self.run_script(
            "place_peers", self.rows, "--minimalloc", self.folder / "mini", "--idealloc", self.folder / "ideal"
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        header, _, row = self.cells(result.stdout)
        one = dict(zip(header, row))
        self.assertEqual((one["berth: gap, %"], one["berth: s"]), ("0.0000", "0.250"))
        self.assertEqual((one["MiniMalloc: gap, %"], one["MiniMalloc: s"]), ("0.0000", "1.500"))
        self.assertEqual((one["idealloc, 1: gap, %"], one["idealloc, 20: s"]), ("0.0000", "2.500"))
        self.assertRegex(one["berth: memory"], r"\d+ MiB")
        self.assertEqual((self.folder / "table.md").read_text(), result.stdout)
        self.assertNotIn(str(self.folder), result.stdout)

    def test_a_planner_that_is_not_named_is_left_out_and_said_to_be(self):
        result = self.run_script("place_peers", self.rows)
        self.assertEqual(len(self.cells(result.stdout)[0]), 5)
        self.assertIn("idealloc is left out", result.stderr)

    def test_a_capacity_that_minimalloc_does_not_reach_leaves_it_without_a_peak(self):
        self.rows.write_text("id,lower,upper,size\na,0,4,100\nb,4,6,50\n")
        result = self.run_script("place_peers", self.rows, "--minimalloc", self.folder / "mini")
        header, _, row = self.cells(result.stdout)
        self.assertEqual(dict(zip(header, row))["MiniMalloc: gap, %"], "none found")

    def test_a_checkout_that_is_not_built_is_named(self):
        result = self.run_script("place_peers", self.rows, "--idealloc", self.folder / "mini")
        self.assertEqual(result.returncode, 1)
        self.assertIn("holds none of target/release/idealloc: build it as its README says", result.stderr)

    def test_a_peak_that_is_not_the_placements_ends_the_comparison(self):
        self.assertIn("berth says 151 bytes and needs 150", self.run_script("place_peers", self.rows, LIE="1").stderr)

    def test_wrong_usage_ends_with_2(self):
        self.assertEqual(self.run_script("place_peers").returncode, 2)
        self.assertEqual(self.run_script("place_peers", self.folder / "none.csv").returncode, 2)
        self.assertEqual(self.run_script("olla").returncode, 2)

    def trace(self):
        path = self.folder / "run.csv.gz"
        lines = ["action,id,bytes,stream", "alloc,0,512,0", "step,0,,0"]
        for i in range(1, 13):
            lines += [f"alloc,{i},{100 * i},0", *([f"free,{i - 2},,0"] if i > 2 else [])]
        path.write_bytes(gzip.compress("\n".join([*lines, "step,1,,0", "alloc,99,64,0"]).encode()))
        return path

    def test_the_integer_programs_stand_beside_the_search_on_growing_pieces_of_a_step(self):
        result = self.run_script("olla", self.trace(), "--first", 3)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = self.cells(result.stdout)[2:]
        # The programs prove nothing here, so they are not tried again.
        self.assertEqual([row[1] for row in rows], ["3", "6", "12"])
        self.assertEqual([row[3] for row in rows], ["0.000", "", ""])
        self.assertEqual([row[7] for row in rows], ["0.000, proven"] * 3)

    def test_pieces_and_engines_can_be_chosen(self):
        result = self.run_script("olla", self.trace(), "--first", 3, "--last", 6, "--engines", "auto")
        header, _, *rows = self.cells(result.stdout)
        self.assertEqual([row[1] for row in rows], ["3", "6"])
        self.assertEqual(header[3:], ["auto: gap, %", "auto: s"])

    def test_a_program_that_is_refused_is_said_to_be(self):
        result = self.run_script("olla", self.trace(), REFUSE="ilp")
        self.assertEqual(self.cells(result.stdout)[2][5], "refused")

    def test_growth_is_a_table_and_a_picture(self):
        result = self.run_script("scaling", "--most", 30000)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = self.cells(result.stdout)[2:]
        self.assertEqual([row[1] for row in rows], ["1,000", "3,000", "10,000", "30,000"] * 2)
        self.assertEqual(rows[2][2:], ["0.0100", "75.3", "1.0000", ""])
        picture = xml.dom.minidom.parse(str(self.folder / "table.svg"))
        self.assertEqual(len(picture.getElementsByTagName("circle")), 8)

    def test_without_the_solver_the_comparison_says_what_is_missing(self):
        result = self.run_script("olla", self.trace(), MISSING="1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("HiGHS", result.stderr)


class Placements(unittest.TestCase):
    ROWS = [(0, 4, 100), (2, 6, 50), (4, 8, 100)]

    def test_the_peak_of_a_placement_is_its_highest_end(self):
        self.assertEqual(peers.peak_of(self.ROWS, [0, 100, 0]), 150)
        self.assertEqual(peers.max_load(self.ROWS), 150)

    def test_two_buffers_that_share_a_byte_are_no_placement(self):
        for offsets in ([0, 99, 0], [0, 100, 149], [50, 0, 49]):
            with self.assertRaises(Failure):
                peers.peak_of(self.ROWS, offsets)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
