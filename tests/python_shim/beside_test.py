"""Programs that use much of PyTorch print the same under berth as under PyTorch's own allocator. beside_test.py cpu|cuda"""

import json
import os
import pathlib
import sys
import unittest

from support import ProgramCase

DEVICE = sys.argv[1]
PROGRAMS = pathlib.Path(__file__).parent / "programs"


class Beside(ProgramCase):
    def both(self, name, *, launch=(), served=True, files=1):
        """Runs a program twice, and once more to see that it was served: the counters are those of the run under berth."""
        program = PROGRAMS / name
        native = self.ran([sys.executable, *launch, program, DEVICE])
        out = self.ran(
            [
                sys.executable,
                "-m",
                "berth",
                "run",
                "--device",
                DEVICE,
                "--stats",
                "{rank}-{pid}.json",
                *(launch or ()),
                program,
                DEVICE,
            ]
        )
        self.assertTrue(native.strip())
        self.assertEqual(out, native, self.stderr[-3000:])
        self.assertNotIn("berth: warning", self.stderr)
        told = [json.loads(path.read_text()) for path in self.folder.glob("*.json")]
        trained = [stats for stats in told if stats["steps"]] or told
        self.assertGreaterEqual(len(trained), files)
        for stats in trained:
            self.assertEqual(stats["misuses"] + stats["device_errors"] + stats["plan_failures"], 0)
            if served:
                # A plan that would hold more than the pool serves nothing on plain memory.
                self.assertGreater(stats["hits"] + stats["plans_declined"], 0, stats)
                if os.environ.get("BERTH_MEMORY") != "plain":
                    self.assertEqual(stats["plans_declined"], 0, stats)

    def test_compile(self):
        self.both("compiling.py")

    @unittest.skipIf(DEVICE == "cpu", "has no graphs")
    def test_cuda_graphs(self):
        self.both("graphs.py")

    def test_mixed_precision_and_checkpoints(self):
        self.both("amp.py")

    def test_ranks(self):
        if DEVICE == "cpu":
            self.both(
                "parallel.py", launch=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"), files=2
            )
        else:
            self.both("parallel.py")

    def test_data_loaders(self):
        self.both("loader.py")

    def test_profilers(self):
        self.both("profiling.py")

    def test_files(self):
        self.both("save.py")

    def test_huggingface(self):
        self.both("huggingface.py")

    def test_lightning(self):
        self.both("lightning_trainer.py")

    def test_notebooks(self):
        native = self.ran([sys.executable, PROGRAMS / "notebook.py", DEVICE])
        self.assertEqual(self.ran([sys.executable, PROGRAMS / "notebook.py", DEVICE, "berth"]), native)
        self.assertEqual(native, "() True\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
