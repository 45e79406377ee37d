#!/usr/bin/env python3
"""Jobs of several ranks on one machine, on the stand-in: unchanged torch under torchrun. Usage: ranks_test.py [RANKS]

Runs under the launcher, which gives each rank a device.
"""

import pathlib
import subprocess
import sys
import unittest

RANKS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 2
PROGRAM = str(pathlib.Path(__file__).with_name("ranks_program.py"))


def job(*arguments):
    # torchrun looks seldom: it would end the other ranks, too, before they have said what they met.
    return subprocess.run(
        [
            sys.executable,
            "-B",
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--monitor-interval",
            "10",
            "--nproc-per-node",
            str(RANKS),
            PROGRAM,
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=500,
    )


class Ranks(unittest.TestCase):
    def test_ddp_and_fsdp_train_and_collectives_are_right(self):
        done = job()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in range(RANKS):
            self.assertIn(f"rank {rank} of {RANKS} is done", done.stdout)

    def test_a_rank_that_dies_ends_the_others_with_an_error(self):
        done = job("one dies")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, f"berth stand-in: NCCL: rank {RANKS - 1} .process [0-9]+. is gone, and rank 0 ")
        self.assertNotIn("nothing happened", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
