#!/usr/bin/env python3
"""berth dry-run on programs in Python and C++. Usage: dry_run_test.py BERTH PYTHON CUDA_PROGRAM [unittest's arguments]"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

BERTH, PYTHON, CUDA_PROGRAM = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
MIB = 1 << 20
TRAINS = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
batch = parser.parse_args().batch_size
net = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 256)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(4):
    loss = net(torch.randn(256 * batch, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
"""
# A step whose activations are most of it. With an argument it prints how its steps were run.
DEEP = """
import argparse, json, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4096)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--told", action="store_true")
given = parser.parse_args()
layers = [torch.nn.Linear(1024, 1024) if k % 2 == 0 else torch.nn.GELU() for k in range(16)]
net = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(given.steps):
    loss = net(torch.randn(given.batch_size, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if given.told:
    import berth
    from berth import _loop
    stats = _loop.stats()
    print(json.dumps({name: getattr(stats, name) for name in (
        "scheduled", "predicted_peak", "recorded_peak", "offloaded_bytes", "recomputed", "schedule_not_taken", "recovered", "made",
    )} | {"held": berth.stats("cuda").reserved_peak}))
"""
SHARDED = """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
net = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(2))).cuda()
for layer in net:
    fully_shard(layer)
fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters())
for step in range(10**9):
    net(torch.randn(4, 64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
REPLICATED = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    net(torch.randn(1024 * (1 + dist.get_rank()), 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def text_of(program):
    """A program as a word of a command."""
    return [PYTHON, "-B", "-c", program]


class DryRunCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.trace = pathlib.Path(self.folder.name) / "x.trace"

    def run_dry(self, *options, program, variables=None):
        return subprocess.run(
            [BERTH, "dry-run", "-o", str(self.trace), *options, "--", *program],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **(variables or {})},
            cwd=self.folder.name,
        )

    def json_of(self, *options, program, code=0):
        done = self.run_dry("--json", *options, program=program)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)


class DryRun(DryRunCase):
    def test_what_a_program_needs_has_stable_names(self):
        found = self.json_of(program=text_of(TRAINS))
        self.assertEqual(
            (found["gpu"], found["gpus"], found["exit_code"], found["fits"], found["worst_rank"]),
            ("H100-80", 1, 0, True, 0),
        )
        rank = found["ranks"][0]
        self.assertEqual(rank["steps"], 4)
        weights = 4 * (2 * 256 * 4096 + 4096 + 256)
        self.assertGreaterEqual(rank["live_peak_bytes"], 4 * weights)  # with gradients and the optimizer's two
        self.assertLess(rank["live_peak_bytes"], 4 * weights + 160 * MIB)  # with activations and workspaces
        for name in ("caching", "expandable", "learning", "planned"):
            one = rank["allocators"][name]
            self.assertGreaterEqual(one["least_bytes"], rank["live_peak_bytes"])
            self.assertGreaterEqual(one["reserved_peak_bytes"], one["least_bytes"])
            self.assertEqual(
                found["devices"][0]["allocators"][name]["least_device_bytes"],
                one["least_bytes"] + found["context_bytes"],
            )
        self.assertGreaterEqual(rank["held_in_run_bytes"], rank["live_peak_bytes"])
        self.assertEqual(found["lacking_code"], [])
        self.assertEqual(
            found["left_out"]["context"], {"bytes": found["context_bytes"], "counted": True, "estimate": True}
        )
        self.assertEqual(found["left_out"]["nccl"]["communicators"], 0)
        self.assertGreaterEqual(rank["plan"]["arena_bytes"], rank["plan"]["lower_bound_bytes"])
        self.assertGreaterEqual(rank["plan"]["outside_arena_bytes"], rank["plan"]["resident_bytes"])
        self.assertGreaterEqual(rank["plan"]["resident_bytes"], 3 * weights)
        # Who holds the peak: the layers of a Sequential, by number, are one.
        self.assertLessEqual(len(rank["holders"]), 10)
        self.assertIn("*", {holder["module"] for holder in rank["holders_by_module"]})
        roles = {holder["role"]: holder["bytes"] for holder in rank["holders_by_role"]}
        self.assertEqual(roles["parameter"], weights)
        self.assertGreaterEqual(roles["optimizer"], 2 * weights)
        verified = subprocess.run(
            [BERTH, "verify", rank["plan"]["file"], rank["trace"]], capture_output=True, text=True
        )
        self.assertEqual(verified.returncode, 0, verified.stderr)

    def test_what_does_not_fit_is_said_and_by_how_much(self):
        done = self.run_dry(
            "--gpu",
            "A100-40",
            "--total",
            "540MiB",
            "--steps",
            "4",
            program=text_of(TRAINS.replace("range(4)", "range(10**9)")),
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("loss 0.0", done.stdout)
        for words in (
            "Dry run on NVIDIA A100-SXM4-40GB",
            "PyTorch, caching",
            "PyTorch, expandable",
            "berth, with the plan",
            "too much",
            "Larger than the GPU: berth trains it",
            "Who holds the peak",
            "4 steps",
            "The host read results of kernels 3 times",
            "What a dry run cannot know",
            "wrote " + str(self.trace),
        ):
            self.assertIn(words, done.stdout)

    def test_what_a_schedule_costs_is_said_in_words(self):
        script = pathlib.Path(self.folder.name) / "deep.py"
        script.write_text(DEEP)
        dry = [PYTHON, "-B", str(script)]
        done = self.run_dry("--gpu", "L4", "--total", f"{300 + 320}MiB", "--time-limit", "0.5", program=dry)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the program runs once more", done.stderr)
        text = " ".join(done.stdout.split())
        for words in (
            "Larger than the GPU: berth trains it by a schedule",
            f"-m berth run --fit {script}",
            "by the roofline of NVIDIA L4",
            "alone needs",
            "host memory",
        ):
            self.assertIn(words, text)

    def test_a_program_that_needs_many_times_the_gpu_is_run_by_copies(self):
        script = pathlib.Path(self.folder.name) / "deep.py"
        script.write_text(DEEP)
        dry = [PYTHON, "-B", str(script), "--steps", "4"]
        found = self.json_of("--gpu", "L4", "--total", f"{100 + 320}MiB", "--time-limit", "0.5", program=dry, code=1)
        self.assertEqual(found["exit_code"], 0)
        (step,) = found["scheduled"]
        self.assertGreater(step["resident_bytes"], 4 * 8 * 1024 * 1024 * 3 - 1)  # with the optimizer's two
        self.assertGreater(step["base_peak_bytes"], 4 * step["budget_bytes"])
        # State alone leaves no room; what the largest operator takes of it and makes does.
        self.assertGreater(step["resident_bytes"], step["budget_bytes"])
        self.assertLess(step["bound_bytes"], step["budget_bytes"])
        self.assertTrue(step["fits"], step)
        # Copies that are planned do.
        self.assertLessEqual(step["peak_bytes"], step["budget_bytes"])
        self.assertEqual(step["spilled_bytes"], 0)

    def test_a_program_whose_steps_are_no_ones_of_an_optimizer_has_no_schedule(self):
        large = "import torch\nfor k in range(4): torch.ones(700 << 20, dtype=torch.uint8, device='cuda')"
        found = self.json_of("--gpu", "L4", "--total", f"{300 + 320}MiB", program=text_of(large), code=1)
        (step,) = found["scheduled"]
        self.assertEqual((step["fits"], step["reason"]), (False, "no optimizer of torch's made three steps"))
        found = self.json_of("--total", "640MiB", program=[CUDA_PROGRAM, "4", "4096"], code=1)
        self.assertNotIn("scheduled", found)
        self.assertIn("is not Python", found["why_not_scheduled"])

    def test_what_pytorch_finishes_after_retries_fits(self):
        # Batches of growing length: each has a segment of its own, and PyTorch's allocator gives its cache back.
        grows = """
import torch
weight = torch.ones(1024, device="cuda")
for step in range(1, 13):
    batch = torch.empty(step << 26, device="cuda", dtype=torch.uint8)
    del batch
"""
        found = self.json_of("--gpu", "A100-40", "--total", f"{1024 + 512}MiB", program=text_of(grows))
        caching = found["ranks"][0]["allocators"]["caching"]
        self.assertTrue(caching["fits"])
        self.assertEqual(caching["retries"], 6)
        self.assertGreaterEqual(caching["reserved_peak_bytes"], 78 * 64 * MIB)
        self.assertLess(caching["least_bytes"], (12 * 64 + 4) * MIB)
        emptied = self.json_of(
            "--gpu", "A100-40", program=text_of(grows.replace("del batch", "del batch; torch.cuda.empty_cache()"))
        )
        self.assertLess(emptied["ranks"][0]["allocators"]["caching"]["reserved_peak_bytes"], (12 * 64 + 4) * MIB)

    def test_settings_of_pytorchs_allocator_are_followed_or_named(self):
        program = text_of(
            "import torch; a = torch.empty(100 << 20, device='cuda', dtype=torch.uint8); del a;"
            " b = torch.empty(30 << 20, device='cuda', dtype=torch.uint8)"
        )
        reserved = {}
        for setting in ("", "max_split_size_mb:64,garbage_collection_threshold:0.8"):
            done = self.run_dry("--json", program=program, variables={"PYTORCH_ALLOC_CONF": setting})
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            reserved[setting] = found["ranks"][0]["allocators"]["caching"]["reserved_peak_bytes"]
        self.assertEqual(list(reserved.values()), [100 * MIB, 130 * MIB])
        self.assertEqual(found["torch_settings_not_followed"], ["garbage_collection_threshold:0.8"])

    def test_a_gpu_that_torch_has_no_code_for_is_named(self):
        asks = "import torch; print('sm_70' in (torch._C._cuda_getArchFlags() or '').split())"
        known = subprocess.run(
            [os.path.join(os.path.dirname(BERTH), "standin", "berth-standin"), "--", PYTHON, "-c", asks],
            capture_output=True,
            text=True,
        )
        if known.stdout.strip() != "False":
            self.skipTest("this torch has code for a V100")
        program = text_of("import torch; torch.ones(1).cuda()")
        done = self.run_dry("--gpu", "V100-16", program=program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("libtorch_cuda.so has no code for this GPU (sm_70", done.stdout)
        found = self.json_of("--gpu", "V100-16", program=program)
        self.assertIn("libtorch_cuda.so", [os.path.basename(one["library"]) for one in found["lacking_code"]])
        self.assertEqual(self.json_of("--gpu", "RTX4090", program=program)["lacking_code"], [])

    def test_a_gpu_runs_the_code_of_an_older_one_of_its_generation(self):
        # The gradient of an embedding sorts, and CUB chooses how by the version of the code that runs: sm_86 on an L4.
        embeds = """
import torch
words = torch.nn.Embedding(5000, 64).cuda()
words(torch.randint(5000, (8, 512), device="cuda")).sum().backward()
"""
        for gpu in ("L4", "RTX4090", "H100-80"):
            done = self.run_dry("--gpu", gpu, program=text_of(embeds))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_wrong_usage_is_named(self):
        done = self.run_dry("--gpu", "H100-81", program=["true"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("H100-80", done.stderr)
        self.assertIn("RTX4090-24", done.stderr)
        done = self.run_dry("--gpu", "H100", program=["true"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("'H100' fits several GPUs: H100-80, H100-PCIe-80 or H100-NVL-94", done.stderr)
        self.assertEqual(self.run_dry("--values", "some", program=["true"]).returncode, 2)
        done = self.run_dry("--gpus", "2", "--schedule", "x.schedule", program=["true"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("must hold {rank}", done.stderr)
        self.assertEqual(self.run_dry("--schedule", str(self.trace), program=["true"]).returncode, 2)
        for program in ([], None):
            done = subprocess.run(
                [BERTH, "dry-run", *(["--"] if program == [] else [])], capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn("no program to run", done.stderr)

    def test_a_compiled_model_is_run_as_well(self):
        triton = pathlib.Path(PYTHON).parent.parent / "triton"
        if not triton.is_dir():
            self.skipTest("no Triton: cmake/setup fetches it")
        done = self.run_dry(
            "--json",
            program=text_of(TRAINS.replace("optimizer = ", "net.compile()\noptimizer = ")),
            variables={"PYTHONPATH": str(triton)},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNotNone(json.loads(done.stdout)["ranks"][0]["plan"])

    def test_the_program_sees_the_gpu_and_values_that_were_chosen(self):
        asks = (
            "import torch; print(torch.cuda.get_device_name(), torch.cuda.device_count(), torch.cuda.mem_get_info()[1]);"
            " a = torch.randn(64, device='cuda'); print(a.sum().item(), a.sum().half().item(), (a > 0).any().item(), a[:2].tolist(),"
            " torch.tensor([3, 4]).cuda().tolist(), a.argmax().item())"
        )
        done = self.run_dry("--gpu", "l4", "--gpus", "3", "--total", "2GiB", "--values", "1.5", program=text_of(asks))
        self.assertIn(f"NVIDIA L4 3 {2 << 30}", done.stdout)
        self.assertIn("1.5 1.5 True [1.5, 1.5] [3, 4] 1", done.stdout)
        self.assertIn("and got 1.5", done.stdout)

    def test_the_largest_batch_is_found_and_verified(self):
        found = self.json_of("--total", "2GiB", "--fit", "batch=2", program=[CUDA_PROGRAM, "4", "4096"])
        self.assertEqual(found["fit"]["argument"], "batch")
        self.assertEqual(sorted(found["fit"]["largest"]), ["caching", "expandable", "learning", "planned"])
        for name, row in found["fit"]["largest"].items():
            self.assertEqual(row["step"], 8, name)  # the program wants multiples of 4
            self.assertGreater(row["largest"], 0, name)
            self.assertLessEqual(row["smallest_too_large"] - row["largest"], max(8, row["largest"] / 100), name)
            self.assertEqual(row["exact"], row["smallest_too_large"] == row["largest"] + 8)
        largest = found["fit"]["largest"]
        self.assertGreaterEqual(largest["planned"]["largest"], largest["caching"]["largest"])
        self.assertLessEqual(found["fit"]["runs"], 16)

    def test_an_argument_that_the_program_refuses_is_named(self):
        done = self.run_dry("--fit", "batch=--no-such", program=text_of(TRAINS))
        self.assertEqual(done.returncode, 2)
        self.assertIn("the program refuses '--no-such 1'", done.stderr)
        for fit, words in (
            ("batch=9", "argument 9 of the program, which has 3"),
            ("batch=1", "whose value is '-B'"),
            ("batch=", "are wanted"),
            ("batch=size", "an option of the program is wanted"),
        ):
            done = self.run_dry("--fit", fit, program=text_of(TRAINS))
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_a_program_that_fails_keeps_its_traceback_its_code_and_its_trace(self):
        done = self.run_dry(program=text_of("import torch; torch.ones(1).cuda(); raise ValueError('it went wrong')"))
        self.assertEqual(done.returncode, 4)  # 1 is "does not fit", and nothing else
        self.assertNotIn("berth:", done.stderr[: done.stderr.index("ValueError: it went wrong")])
        self.assertIn("ended with exit code 1", done.stderr)
        self.assertTrue(self.trace.exists())
        self.assertFalse(self.trace.with_suffix(".plan").exists())
        self.trace.unlink()
        # Before it used CUDA, too: it has said why itself.
        done = self.run_dry(program=text_of("raise SystemExit(7)"))
        self.assertEqual(done.returncode, 4)
        self.assertIn("ended with exit code 7", done.stderr)
        self.assertNotIn("CUDA", done.stderr)
        # Its data is missing, or it is missing itself.
        self.assertEqual(self.run_dry(program=text_of("open('/no/such/data')")).returncode, 4)
        self.assertEqual(self.run_dry(program=[PYTHON, "/no/such/script.py"]).returncode, 4)
        done = self.run_dry(program=["sh", "-c", "kill -9 $$"])
        self.assertEqual(done.returncode, 128 + signal.SIGKILL)
        self.assertIn("was ended by signal 9", done.stderr)

    def test_a_program_that_never_uses_cuda_is_told_so(self):
        for program in (text_of("import torch; torch.ones(1)"), ["true"]):
            done = self.run_dry(program=program)
            self.assertEqual(done.returncode, 3)
            self.assertIn("never used CUDA", done.stderr)

    def test_a_program_in_cpp_ends_after_the_steps_that_it_marks(self):
        found = self.json_of("--steps", "4", program=[CUDA_PROGRAM, "1000000000"])
        rank = found["ranks"][0]
        self.assertEqual((found["exit_code"], rank["steps"]), (0, 4))
        self.assertIsNotNone(rank["plan"])
        self.assertIn("parameter", {holder["role"] for holder in rank["holders_by_role"]})

    def test_marked_steps_in_python_end_it_as_an_exit_would_and_none_are_missed(self):
        marks = """
import ctypes, sys, torch
x = torch.ones(64, device="cuda")
try:
    for step in range(int(sys.argv[1])):
        y = x + x
        if len(sys.argv) == 2:
            ctypes.CDLL(None).berth_torch_mark_step()
finally:
    print("cleaned up")
"""
        done = self.run_dry("--steps", "4", program=[*text_of(marks), str(10**9)])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cleaned up", done.stdout)
        self.assertIn("4 steps", done.stdout)
        done = self.run_dry("--steps", "4", program=[*text_of(marks), "6", "no marks"])
        self.assertIn("--steps ended nothing", done.stderr)

    def job(self, name, text, ranks):
        """What runs a script as a job of several ranks."""
        script = pathlib.Path(self.folder.name) / name
        script.write_text(text)
        return [
            PYTHON,
            "-B",
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            str(script),
        ]

    def test_a_sharded_model_has_a_plan_a_rank_with_its_share(self):
        # Ended in the middle: each rank by itself, once all have made their steps.
        found = self.json_of("--gpus", "2", "--steps", "4", program=self.job("sharded.py", SHARDED, 2))
        self.assertEqual(
            [(rank["rank"], rank["device"], rank["steps"]) for rank in found["ranks"]], [(0, 0, 4), (1, 1, 4)]
        )
        layer = 4 * 256 * 256 + 4 * 256 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256
        share = 2 * 4 * layer / 2
        self.assertEqual(
            found["left_out"]["nccl"], {"bytes": 544 * MIB, "communicators": 1, "counted": False, "estimate": True}
        )
        for rank in found["ranks"]:
            self.assertTrue(rank["trace"].endswith(f"x-{rank['rank']}-{rank['rank']}.trace"), rank["trace"])
            verified = subprocess.run(
                [BERTH, "verify", rank["plan"]["file"], rank["trace"]], capture_output=True, text=True
            )
            self.assertEqual(verified.returncode, 0, verified.stderr)
            roles = {holder["role"]: holder["bytes"] for holder in rank["holders_by_role"]}
            self.assertGreaterEqual(roles["parameter"], share)  # and what was gathered
            self.assertGreaterEqual(roles["optimizer"], 2 * share)
            self.assertLess(roles["optimizer"], 2.1 * share)

    def test_ranks_that_share_a_gpu_have_to_fit_together(self):
        program = self.job("replicated.py", REPLICATED, 2)
        found = self.json_of("--total", "1100MiB", program=program, code=1)
        self.assertEqual([(rank["rank"], rank["device"]) for rank in found["ranks"]], [(0, 0), (1, 0)])
        self.assertEqual((found["worst_rank"], len(found["devices"]), found["devices"][0]["processes"]), (1, 1, 2))
        for name, held in found["devices"][0]["allocators"].items():
            reserved = sum(rank["allocators"][name]["reserved_peak_bytes"] for rank in found["ranks"])
            self.assertEqual(held["held_bytes"], reserved + 2 * found["context_bytes"])
            self.assertEqual(held["least_device_bytes"], held["held_bytes"])  # nobody gives back what others want
            self.assertFalse(held["fits"])
        for rank in found["ranks"]:
            self.assertTrue(pathlib.Path(rank["trace"]).exists())
            self.assertTrue(pathlib.Path(rank["plan"]["file"]).exists())
        self.assertEqual(
            sorted(path.name for path in self.trace.parent.glob("*trace*")), ["x-0-0.trace", "x-1-0.trace"]
        )


class DryRunOfStepPrograms(DryRunCase):
    def test_a_step_that_does_not_fit_gets_a_schedule_that_a_run_follows(self):
        script, total = pathlib.Path(self.folder.name) / "deep.py", 300 * MIB + 320 * MIB
        script.write_text(DEEP)
        schedule = pathlib.Path(self.folder.name) / "deep.schedule"
        dry = [PYTHON, "-B", str(script)]
        found = self.json_of("--gpu", "L4", "--total", str(total), "--schedule", str(schedule), program=dry, code=1)
        (step,) = found["scheduled"]
        self.assertTrue(step["fits"], step)
        self.assertEqual(step["budget_bytes"], int(0.95 * 300 * MIB))
        self.assertLessEqual(step["peak_bytes"], step["budget_bytes"])
        self.assertGreater(step["base_peak_bytes"], step["budget_bytes"])
        self.assertGreaterEqual(step["time_ns"], step["base_time_ns"])
        self.assertGreater(step["recomputed"] + step["offloaded_bytes"], 0)
        self.assertLessEqual(step["bound_bytes"], step["least_bytes"])
        self.assertLessEqual(step["least_bytes"], step["peak_bytes"])
        self.assertEqual((step["times"], step["spilled_bytes"]), ("roofline", 0))
        # At least the products take their time: forward, and twice as much backward but for the first layer's input.
        products = 2 * 4096 * 1024 * 1024 * (8 + 8 + 7)
        self.assertGreater(step["base_time_ns"], 1e9 * products / 30.3e12)
        self.assertIn(f"BERTH_SCHEDULE={schedule}", step["command"])
        self.assertIn(f"-m berth run --fit {script}", step["command"])
        # The run has what the GPU leaves beside its context. It follows the schedule, and plans nothing else.
        ran = self.fit(script, total - 320 * MIB, schedule)
        self.assertEqual((ran["schedule_not_taken"], ran["made"], ran["recovered"]), ("", 1, 0))
        self.assertGreaterEqual(ran["scheduled"], 4)
        self.assertEqual((ran["offloaded_bytes"], ran["recomputed"]), (step["offloaded_bytes"], step["recomputed"]))
        self.assertLessEqual(ran["predicted_peak"], step["budget_bytes"])
        self.assertLessEqual(ran["held"], 300 * MIB)

    def fit(self, script, memory, schedule):
        """What a program says that `berth run --fit` runs on the stand-in."""
        folder = os.path.dirname(BERTH)
        done = subprocess.run(
            [os.path.join(folder, "standin", "berth-standin"), "--gpu", "L4", "--memory", str(memory)]
            + ["--pace", "eager", "--copy-limit", str(MIB), "--values", "zeros", "--", PYTHON, "-B", "-m", "berth"]
            + ["run", "--device", "cuda", "--fit", str(script), "--told"],
            capture_output=True,
            text=True,
            timeout=300,
            env={
                **os.environ,
                "PYTHONPATH": os.path.join(folder, "python"),
                "BERTH_SCHEDULE": str(schedule),
            },
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_step_programs_take_larger_batches_the_more_time_they_have(self):
        script = pathlib.Path(self.folder.name) / "deep.py"
        script.write_text(DEEP)
        dry = [PYTHON, "-B", str(script), "--steps", "4", "--batch-size", "2048"]
        fit = ["--fit", "batch=--batch-size", "--fit-runs", "6", "--time-limit", "0.3"]
        found = self.json_of("--gpu", "L4", "--total", f"{400 + 320}MiB", *fit, program=dry)
        rows = found["fit"]["scheduled"]
        self.assertEqual([row["more_time"] for row in rows], [0.1, 0.2, 0.5])
        largest = [found["fit"]["largest"]["planned"]["largest"], *(row["largest"] for row in rows)]
        self.assertEqual(largest, sorted(largest))
        self.assertGreater(largest[-1], largest[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
