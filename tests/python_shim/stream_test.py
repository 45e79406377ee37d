"""Steps of several CUDA streams, on the stand-in: what a scheduled step queues in each stream is ordered as in the step as written.

Usage: stream_test.py LAUNCH_LOG [TEST..]; LAUNCH_LOG is the library of launch_log.c.
"""

import concurrent.futures
import json
import sys
import unittest

import stream_order
from stream_borders import BORDERS
from stream_programs import HEAD, SHARDED
from stream_programs import PROGRAMS as ORDINARY
from support import ProgramCase, run

LAUNCH_LOG = sys.argv.pop(1)
PROGRAMS = ORDINARY | BORDERS
# In these, calls of one stream come in another order than in the step as written.
REORDERED = ("synchronizes",)
# These poll. On a device that runs nothing before the host waits they would poll for ever.
POLLING = ("asks",)


class Streams(ProgramCase):
    def go(self, program, *arguments, tag, standin=(), **variables):
        """What the program printed, its warnings and counters, and what each of its processes queued, by step."""
        result = run(
            ["sh", "-c", f'LD_PRELOAD={LAUNCH_LOG}:$LD_PRELOAD exec "$0" "$@"', *arguments],
            folder=self.folder,
            standin=standin,
            LAUNCH_LOG=str(self.folder / tag),
            **variables,
        )
        self.assertEqual(result.returncode, 0, (result.stdout + result.stderr)[-3000:])
        self.assertNotIn("violation", result.stderr)
        stats = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
        logs = [stream_order.steps_of(stream_order.lines_of(one)) for one in sorted(self.folder.glob(f"{tag}.*"))]
        return result.stdout, stats, [one for one in logs if "step 0" in one]

    def check(self, name, pace):
        program = self.write(f"{name}.py", HEAD + PROGRAMS[name][0] + "\nmain(make)\n")
        standin = ("--pace", pace, "--devices", "2")
        values, _, (eager,) = self.go(name, sys.executable, program, "eager", tag=f"{name}.eager", standin=standin)
        for how in ("plain", "offload"):
            found, (stats,), (queued,) = self.go(
                name, sys.executable, program, how, tag=f"{name}.{how}", standin=standin
            )
            with self.subTest(name, how=how):
                self.assertEqual(found, values)
                self.assertGreaterEqual(stats["scheduled"], PROGRAMS[name][1], stats)
                for step in eager if name not in REORDERED else ():
                    if step.startswith("step"):
                        different = stream_order.difference(eager[step], queued[step], exactly=how == "plain")
                        self.assertEqual(different, "", step)

    def check_all(self, names):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(self.check, name, pace) for name, pace in names]:
                done.result()

    def test_work_of_several_streams_is_ordered_as_written(self):
        paces = ("random", "lazy")
        self.check_all([(name, "random" if name in POLLING else paces[n % 2]) for n, name in enumerate(PROGRAMS)])

    def test_sharded_parameters(self):
        """FSDP2 gathers weights on streams of its own."""
        self.write("train.py", SHARDED)
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
        devices = ("--devices", "2")
        _, _, eager = self.go("eager", sys.executable, *launcher, tag="eager", standin=devices)
        # Copies of optimizer state meet the first budget that is below the whole; a time budget plans none.
        changes = {
            ("--budget", "100%"): (False, False),
            ("--budget", "80%"): (False, True),
            ("--time-budget", "0.3"): (True, False),
            ("--fit",): (False, False),
        }
        for options, (recomputes, copies) in changes.items():
            tag = "".join(options).strip("-").replace("%", "")
            _, stats, found = self.go(
                tag,
                sys.executable,
                "-m",
                "berth",
                "run",
                "--device",
                "cuda",
                *options,
                *["torchrun", *launcher[2:]],
                tag=tag,
                standin=devices,
                PATH=f"{sys.prefix}/bin:/usr/bin:/bin",
            )
            with self.subTest(options):
                self.assertEqual([one["scheduled"] >= 8 for one in stats], [True, True], stats)
                self.assertEqual([one["recomputed"] > 0 for one in stats], 2 * [recomputes], stats)
                self.assertEqual([one["offloaded_bytes"] > 0 for one in stats], 2 * [copies], stats)
                for theirs in found:
                    # While steps are not known, calls over lists run in parts.
                    for step in [one for one in eager[0] if one.startswith("step")][3:]:
                        different = stream_order.difference(
                            eager[0][step], theirs[step], exactly=not (recomputes or copies)
                        )
                        self.assertEqual(different, "", step)


if __name__ == "__main__":
    unittest.main()
