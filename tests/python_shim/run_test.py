"""`python -m berth run` and `berth record -- python`: programs as they are. run_test.py BERTH, with the program of the build."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

import berth
from support import STANDIN, ProgramCase, run, heed_interrupts

BERTH = pathlib.Path(sys.argv[1])
TRAIN = """
import os, sys
import torch
torch.manual_seed(0)
device = "cuda" if "cuda" in sys.argv else "cpu"
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to(device)
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(int(os.environ.get("STEPS", 200))):
    x = torch.randn(32, 64, device=device)
    (net(x) - x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", os.environ.get("RANK", "alone"))
"""


class RunCase(ProgramCase):
    def berth_run(self, *arguments, **options):
        return self.ran([sys.executable, "-m", "berth", "run", *arguments], **options)

    def stats(self, name="stats.json"):
        return json.loads((self.folder / name).read_text())


class Programs(RunCase):
    def test_a_script_trains_under_berth_on_either_device(self):
        self.write("train.py", TRAIN)
        for device in ("cpu", "cuda"):
            out = self.berth_run(
                "--device", device, "--stats", "stats.json", "--plan", "x.plan", "--verbose", "train.py", device
            )
            self.assertEqual(out, "trained alone\n")
            self.assertIn("hits", self.stderr)
            stats = self.stats()
            self.assertEqual(stats["steps"], 200)
            self.assertGreater(stats["hits"], 0.5 * stats["requests"])
            (self.folder / "x.plan").unlink()
        self.berth_run("--stats", "stats.json", "train.py", "cuda")  # auto: there is a GPU
        self.assertGreater(self.stats()["hits"], 0)

    def test_arguments_main_and_pickles_are_those_of_the_program(self):
        text = """
            import pickle, sys
            import torch
            class Mine:
                value = 5
            if __name__ == "__main__":
                torch.save(Mine(), "mine.pt")
                print(sys.argv, __name__, __file__, sys.path[0], pickle.dumps(Mine).count(b"__main__"),
                      torch.load("mine.pt", weights_only=False).value, sys.flags.optimize, __spec__ is None)
        """
        self.write("program.py", text)
        self.write("package/__init__.py", "")
        self.write("package/program.py", text)
        for words in (
            ["program.py", "--plan", "a b", "-m"],
            ["-m", "package.program", "--verbose"],
            [str(self.folder / "program.py")],
        ):
            native = self.ran([sys.executable, "-O", *words])
            self.assertEqual(self.ran([sys.executable, "-O", "-m", "berth", "run", *words]), native)

    def test_code_and_standard_input_are_those_of_python(self):
        text = "import sys, torch; print(sys.argv, __name__, sys.path[0], '__file__' in globals(), torch.ones(3).sum().item())"
        (self.folder / "program.txt").write_text(text)
        under = [sys.executable, "-m", "berth", "run", "--device", "cpu"]
        for words in (
            ["-c", text],
            ["-c", text, "--plan", "-m", "-"],
            ["-c" + text],
            ["-c", "-1"],
            ["-c"],
            ["-m"],
            ["-c", "1/0"],
        ):
            native, ours = (run([*start, *words], folder=self.folder) for start in ([sys.executable], under))
            self.assertEqual(
                (ours.returncode, ours.stdout, ours.stderr), (native.returncode, native.stdout, native.stderr), words
            )
        for words in (["-"], ["-", "--plan", "x"]):
            with open(self.folder / "program.txt") as first, open(self.folder / "program.txt") as second:
                native = run([sys.executable, *words], folder=self.folder, stdin=first)
                ours = run([*under, *words], folder=self.folder, stdin=second)
            self.assertEqual(
                (ours.returncode, ours.stdout, ours.stderr), (native.returncode, native.stdout, native.stderr), words
            )
        self.write("train.py", TRAIN)
        self.assertEqual(self.berth_run("--device", "cpu", "--stats", "stats.json", "-c", TRAIN), "trained alone\n")
        self.assertGreater(self.stats()["hits"], 0)

    def test_no_file_is_written_over_another_or_over_the_script(self):
        self.write("program.py", "print('ran')")
        (self.folder / "link").symlink_to("x.plan")
        for words, text in (
            (["--plan", "x.plan", "--trace", "x.plan"], "--trace 'x.plan' would be written over --plan"),
            (["--plan", "x.plan", "--stats", "link"], "--stats 'link' would be written over --plan"),
            (["--stats", "program.py"], "--stats 'program.py' would be written over 'program.py'"),
        ):
            self.berth_run(*words, "program.py", code=2)
            self.assertIn(text, self.stderr)
        self.berth_run("--nope", "program.py", code=2)
        self.assertIn("unrecognized arguments: --nope", self.stderr)

    def test_help_fits_80_columns(self):
        for line in self.berth_run("--help").splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_exit_codes_signals_and_tracebacks_are_those_of_the_program(self):
        self.write(
            "program.py",
            """
            import os, signal, sys
            import torch
            if sys.argv[1] == "exit":
                sys.exit(7)
            if sys.argv[1] == "raise":
                raise ValueError("mine")
            os.kill(os.getpid(), int(sys.argv[1]))
        """,
        )
        for word in ("exit", "raise", str(int(signal.SIGTERM)), str(int(signal.SIGKILL)), str(int(signal.SIGINT))):
            native = run([sys.executable, "program.py", word], folder=self.folder, fork=False)
            under = run([sys.executable, "-m", "berth", "run", "program.py", word], folder=self.folder)
            self.assertEqual(
                (under.returncode, under.stdout, under.stderr), (native.returncode, native.stdout, native.stderr), word
            )

    def test_cuda_that_is_opened_first_thing_is_no_error(self):
        self.write(
            "program.py",
            """
            import torch
            torch.cuda.set_device(0)
            import berth
            print(berth.install("cuda"), torch.cuda.get_allocator_backend())
            berth.install("cuda", mode="record", trace="mine.trace")
        """,
        )
        self.assertEqual(self.berth_run("program.py"), "True berth\n")
        self.assertEqual(self.stderr.count("[installed-already]"), 1, self.stderr)

    def test_ranks_have_a_file_each_and_the_launcher_has_none(self):
        self.write("train.py", TRAIN)
        for device in ("cpu", "cuda"):
            out = self.berth_run(
                "--device",
                device,
                "--stats",
                device + "-{rank}-{pid}.json",
                "--plan",
                device + "-{rank}.plan",
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
                "train.py",
                device,
            )
            self.assertEqual(sorted(out.splitlines()), ["trained 0", "trained 1"])
            self.assertEqual(
                sorted(path.name.split("-")[1] for path in self.folder.glob(f"{device}-*.json")), ["0", "1"]
            )
            self.assertEqual(
                sorted(path.name for path in self.folder.glob(f"{device}-*.plan")),
                [f"{device}-0.plan", f"{device}-1.plan"],
            )

    def test_processes_that_it_spawns_train_on_cuda_and_load_data_with_the_systems_memory(self):
        self.write(
            "program.py",
            """
            import torch
            import torch.multiprocessing as mp
            import berth
            def work(rank):
                made = torch.ones(1000, device="cuda") if torch.cuda.is_available() else None
                print(rank, torch.cuda.get_allocator_backend(), berth.installed("cpu"), flush=True)
            if __name__ == "__main__":
                mp.spawn(work, nprocs=1)
                print(berth.installed("cpu"))
        """,
        )
        self.assertEqual(self.berth_run("--device", "all", "program.py").splitlines(), ["0 berth False", "True"])

    def test_what_cannot_be_run_is_one_error(self):
        for words, code, text in (
            ([], 2, "no program to run: see `python -m berth run --help`"),
            (["absent"], 2, "'absent' is no script here and no program on PATH"),
            (["--mode", "lern", "x.py"], 2, "invalid choice: 'lern'"),
            (["--device", "all", "--plan", "x.plan", "x.py"], 2, "with --device all the name must hold {device}"),
            (["--memory-limit", "apples", "program.py"], 2, "BERTH_MEMORY_LIMIT is 'apples'"),
            (["--mode", "serve", "program.py"], 2, "BERTH_MODE is 'serve' and BERTH_PLAN names no plan"),
            (["--mode", "serve", "--plan", "absent.plan", "program.py"], 3, "absent.plan"),
            (["absent.py"], 2, "can't open file"),
        ):
            self.write("program.py", "import torch\nprint(torch.ones(5).sum())\n")
            with self.subTest(text):
                self.berth_run(*words, code=code)
                self.assertIn(text, self.stderr)
                self.assertNotIn("Traceback", self.stderr)
        self.assertIn("examples:", self.berth_run("--help"))
        self.assertIn("berth run", self.ran([sys.executable, "-m", "berth"], code=2) + self.stderr)
        self.assertEqual(self.ran([sys.executable, "-m", "berth", "--version"]), f"berth {berth.__version__}\n")

    def test_a_program_without_torch_is_left_alone(self):
        self.assertEqual(self.berth_run("sh", "-c", "echo $BERTH_MODE"), "learn\n")
        self.assertEqual(self.berth_run("--mode", "off", "sh", "-c", "echo $BERTH_MODE"), "off\n")


class Record(RunCase):
    def record(self, *arguments, program=BERTH, **options):
        return self.ran([program, "record", *arguments], **options)

    def test_a_python_program_is_recorded_by_the_program_berth(self):
        self.write("train.py", TRAIN)
        packaged = pathlib.Path(berth.__file__).parent / "bin" / "berth"
        for program, device, words in ((BERTH, "cpu", []), (packaged, "cuda", ["--operators"]), (BERTH, "auto", [])):
            self.record(
                "-o",
                "x.trace",
                "--device",
                device,
                *words,
                "--",
                sys.executable,
                "train.py",
                "cpu" if device == "cpu" else "cuda",
                program=program,
                STEPS="6",
            )
            trace = berth.Trace.load(self.folder / "x.trace")
            self.assertEqual(trace.marks, 6)
            self.assertEqual(trace.program["device_name"] == "cpu", device == "cpu")
            self.assertIn("the step repeats", self.stderr)
        self.ran([sys.executable, "-m", "berth", "plan", "x.trace", "-o", "x.plan"])
        self.assertIsNone(berth.Plan.load(self.folder / "x.plan").verify())

    def test_scripts_of_python_are_known_by_their_first_line(self):
        self.write("train.py", TRAIN)
        script = self.write(
            "launch", f"#!{sys.executable}\n" + "import runpy, sys\nrunpy.run_path('train.py', run_name='__main__')\n"
        )
        script.chmod(0o755)
        self.record("-o", "x.trace", "--device", "cpu", "--", script, STEPS="4")
        self.assertEqual(berth.Trace.load(self.folder / "x.trace").marks, 4)

    def test_each_device_has_a_trace(self):
        self.write("train.py", TRAIN)
        self.record("-o", "x.trace", "--device", "all", "--", sys.executable, "train.py", code=2)
        self.assertIn("must hold {device}", self.stderr)
        self.record("-o", "x-{device}.trace", "--device", "all", "--", sys.executable, "train.py", "cuda", STEPS="4")
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.trace")), ["x-0.trace", "x-cpu.trace"])

    def test_an_interrupted_program_leaves_a_whole_trace(self):
        self.write("train.py", TRAIN + "print('now', flush=True)\nimport time\ntime.sleep(60)\n")
        process = subprocess.Popen(
            [STANDIN, "--", BERTH, "record", "-o", "x.trace", "--device", "cpu", "--", sys.executable, "train.py"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "STEPS": "5"},
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        self.assertIn("now\n", iter(process.stdout.readline, ""))
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()
        self.assertEqual(process.returncode, 130)
        trace = berth.Trace.load(self.folder / "x.trace")
        self.assertEqual((trace.marks, trace.closed), (5, True))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
