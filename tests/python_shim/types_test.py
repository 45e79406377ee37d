"""mypy finds nothing wrong in the package, nor in a program that uses all of it. types_test.py PACKAGE_FOLDER SOURCE"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PACKAGE, SOURCE = sys.argv[1:3]
CACHE = tempfile.TemporaryDirectory()  # what the first run finds about torch is there for the others
PROGRAM = """
import numpy as np
from numpy.typing import NDArray
import berth

done: bool = berth.install("cuda", mode="learn", plan="x.plan", memory_limit="6GiB", verbose=True)
berth.mark_step()
hits: int = berth.stats(0).hits
rate: float = berth.stats().hit_rate
count: int = sum(miss.count for miss in berth.stats("cpu").misses)
with berth.record("x.trace", operators=True), berth.scope("encoder"):
    berth.load_plan("x.plan")
saved: bool = berth.save_plan("x.plan", device="cuda:1")
given: int = berth.release()
trace: berth.Trace = berth.Trace.load("x.trace")
plan: berth.Plan = berth.plan(trace, time_limit=2.0, progress=lambda progress: print(progress.high_water_mark))
offsets: NDArray[np.uint64] = plan.sequences[0].offsets
violation: str | None = plan.verify()
steps: list[berth.Step] = plan.steps() + trace.steps()
found: berth.Order = berth.order([9, 1], [0, -1], [[1], np.array([1])], control=[(0, 1)], progress=lambda progress: print(progress.peak))
operators: NDArray[np.uint32] = found.order
graph: berth.Graph = berth.Graph.load("x.graph")
sizes: NDArray[np.uint64] = graph.storage_bytes
scheduled: berth.Scheduled = berth.schedule(graph, 1 << 30, rate_out=10**9, progress=lambda progress: print(progress.time_ns))
schedule: berth.Schedule | None = berth.schedule(trace, 1 << 30).schedule
kinds: NDArray[np.uint32] = berth.Schedule.load("x.schedule").steps.kinds
placed: berth.Placement = berth.place(np.array([1, 2]), [0, 1], [1, 2], pinned=[None, 0])
"""


def mypy(*arguments):
    environment = {**os.environ, "MYPYPATH": PACKAGE}
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            f"{SOURCE}/python_shim/pyproject.toml",
            "--python-version",
            "3.12",
            "--cache-dir",
            CACHE.name,
            *arguments,
        ],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
    )
    return result.returncode, result.stdout + result.stderr


class Types(unittest.TestCase):
    def test_the_package_is_typed_throughout(self):
        self.assertTrue((pathlib.Path(PACKAGE) / "berth/py.typed").exists())
        code, output = mypy("-p", "berth")
        self.assertEqual(code, 0, output)

    def test_a_program_that_uses_it_is_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program.py"
            path.write_text(PROGRAM)
            code, output = mypy(path)
            self.assertEqual(code, 0, output)
            path.write_text("import berth\nberth.install(5)\nberth.place('a', 1)\nberth.stats().hitz\n")
            code, output = mypy(path)
            self.assertEqual(code, 1)
            self.assertIn("errors in 1 file", output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
