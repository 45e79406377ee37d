"""Programs that install berth on CUDA, on the stand-in: learning, what opened CUDA too early, graphs, traces, both devices at once."""

import json
import os
import sys
import unittest

from support import PREAMBLE, ProgramCase, run

NETWORK = (
    PREAMBLE
    + """
def make(device="cuda"):
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    def step():
        x = torch.randn(2048, 512, device=device)
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""
)

# Each rank prints what lived and what was reserved at most.
SHARDED = """
import json, os, sys, torch, torch.distributed as dist
if sys.argv[1] == "learn":
    import berth
    berth.install("cuda")
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
layer = lambda: torch.nn.TransformerEncoderLayer(4096, 32, 14336, dropout=0, batch_first=True)
net = torch.nn.Sequential(*(layer() for _ in range(3)), torch.nn.Linear(4096, 32000)).cuda()
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for one in net:
    fully_shard(one, mp_policy=precision)
fully_shard(net, mp_policy=precision)
optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
for step in range(8):
    optimizer.zero_grad()
    out = net(torch.randn(2, 4096, 4096, device="cuda"))
    torch.nn.functional.cross_entropy(out.flatten(0, 1).float(), torch.zeros(8192, dtype=torch.long, device="cuda")).backward()
    del out
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
line = {"rank": rank, "live": torch.cuda.max_memory_allocated(), "held": torch.cuda.max_memory_reserved()}
if sys.argv[1] == "learn":
    line["hits"] = berth.stats("cuda").hits
os.write(1, (json.dumps(line) + "\\n").encode())
dist.destroy_process_group()
"""


class Cuda(ProgramCase):
    def test_a_program_learns_with_one_line(self):
        program = (
            "import berth\nprint(berth.install(), berth.installed('cuda'), berth.installed('cpu'))\n"
            + NETWORK
            + """
step = make()
for _ in range(10):
    step()
print(hits_of(step)[0] > 0.98, hits_of(step)[1])
print(torch.cuda.get_allocator_backend(), torch.cuda.memory_allocated() > 0, berth.stats().reserved == torch.cuda.memory_reserved())
with berth.record("x-{device}.trace", operators=True):
    for _ in range(3):
        step()
trace = berth.Trace.load("x-0.trace")
print(trace.marks, trace.alignment, trace.program["device_name"] == torch.cuda.get_device_name())
print(berth.save_plan("x.plan"), berth.Plan.load("x.plan").verify())
gc.collect()
print(berth.release() > 0, hits_of(step)[0] > 0.98)
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(str(error)[:37])
"""
        )
        self.assertEqual(
            self.python(program).splitlines(),
            [
                "True True False",
                "True 1",
                "berth True True",
                "3 512 True",
                "True None",
                "True True",
                "CUDA out of memory. Tried to allocate",
            ],
        )

    def test_both_devices_at_once_have_a_file_each(self):
        program = (
            "import berth\nberth.install('all', plan='{device}.plan', stats='{device}.json')\n"
            + NETWORK
            + """
both = make("cuda"), make("cpu")
def step():
    for one in both:
        one()
    berth.mark_step()
for _ in range(10):
    step()
print(hits_of(step, device="cuda")[0] > 0.98, hits_of(step, device="cpu")[0] > 0.98)
"""
        )
        self.assertEqual(self.python(program).split(), ["True", "True"])
        for name in ("0.plan", "cpu.plan", "0.json", "cpu.json"):
            self.assertTrue((self.folder / name).exists(), name)

    def test_cuda_graphs_are_captured_beside_a_plan(self):
        program = (
            "import berth\nberth.install('cuda')\n"
            + NETWORK
            + """
step = make()
for _ in range(10):
    step()
assert hits_of(step)[0] > 0.98
held = torch.zeros(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    made = held * 2 + 1
pointer = made.data_ptr()
for _ in range(20):
    graph.replay()
    step()
print(hits_of(step)[0] > 0.98, made.data_ptr() == pointer)
"""
        )
        self.assertEqual(self.python(program).split(), ["True", "True"])

    def test_a_planned_block_has_the_same_address_in_every_step(self):
        program = (
            "import sys\nimport berth\nberth.install('cuda', mode=sys.argv[1])\n"
            + NETWORK
            + """
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to("cuda")
optimizer = torch.optim.AdamW(net.parameters())
addresses, keep = [], []
def step():
    seen, x = [], torch.randn(32, 64, device="cuda")
    for layer in net:
        x = layer(x)
        seen.append(x.data_ptr())
    x.square().mean().backward()
    seen += [parameter.grad.data_ptr() for parameter in net.parameters()]
    optimizer.step()
    optimizer.zero_grad()
    addresses.append(seen)
step()
once = torch.empty(16 << 20, device="cuda")  # on plain memory a plan may hold as much as was held
del once
for _ in range(10):
    step()
if sys.argv[1] == "learn":
    assert hits_of(step)[0] > 0.98
    step()
addresses.clear()
for number in range(100):
    step()
    keep.append(torch.empty(100 * (number % 40) + 1, device="cuda"))  # what lives on is no part of the step
print(torch.cuda.get_allocator_backend(), sum(one != other for a, b in zip(addresses, addresses[1:]) for one, other in zip(a, b)))
"""
        )
        native, learned = (self.python(program, mode).split() for mode in ("off", "learn"))
        print(
            f"addresses that changed from step to step in 100 steps: caching allocator {native[1]}, berth {learned[1]}"
        )
        self.assertEqual((native[0], learned), ("native", ["berth", "0"]))

    @unittest.skipIf(os.environ.get("BERTH_MEMORY") == "plain", "what lives in plain memory cannot leave its addresses")
    def test_everything_leaves_the_gpu_for_a_while_and_comes_back(self):
        program = (
            "import berth\nberth.install('cuda')\n"
            + NETWORK
            + """
step = make()
held = torch.arange(3 << 20).to("cuda")
for _ in range(10):
    step()
assert hits_of(step)[0] > 0.98
pointer, free = held.data_ptr(), torch.cuda.mem_get_info()[0]
before = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
given = berth.release(keep_contents=True)
print(given == before[0], torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0] - free == given, torch.cuda.memory_allocated() == before[1])
print((24 << 20) < berth.stats().parked <= given, berth.stats().reserved, berth.release(keep_contents=True))
meanwhile = torch.arange(1 << 20).to("cuda")  # served from memory of its own
print((24 << 20) < berth.stats().parked <= given, int(meanwhile.cpu().sum()) == (1 << 19) * ((1 << 20) - 1))
print(berth.resume() > 0, berth.stats().parked, held.data_ptr() == pointer, int(held.cpu().sum()) == (3 << 19) * ((3 << 20) - 1))
print(int(meanwhile.cpu().sum()) == (1 << 19) * ((1 << 20) - 1), hits_of(step)[0] > 0.98)
del meanwhile
berth.release(keep_contents=True)
greedy = torch.empty(torch.cuda.mem_get_info()[0] - (4 << 20), dtype=torch.uint8, device="cuda")
try:
    berth.resume()
except torch.OutOfMemoryError as error:
    print("cannot come back" in str(error), berth.stats().parked > 0)
del greedy
print(berth.resume() > 0, int(held.cpu().sum()) == (3 << 19) * ((3 << 20) - 1), hits_of(step)[0] > 0.98)
print(berth.release() > 0, berth.resume() > 0, hits_of(step)[0] > 0.98)
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        berth.release(keep_contents=True)
except berth.UsageError as error:
    print("graph is being captured" in str(error))
berth.release(keep_contents=True)
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    try:
        berth.resume()
    except berth.UsageError as error:
        print("while a graph is being captured" in str(error), berth.stats().parked > 0)
print(berth.resume() > 0, int(held.cpu().sum()) == (3 << 19) * ((3 << 20) - 1), hits_of(step)[0] > 0.98)
"""
        )
        self.assertEqual(
            self.python(program, standin=()).splitlines(),
            [
                "True 0 True True",
                "True 0 0",
                "True True",
                "True 0 True True",
                "True True",
                "True True",
                "True True True",
                "True True True",
                "True",
                "True True",
                "True True True",
            ],
        )

    def test_the_line_that_opened_cuda_too_early_is_named(self):
        seen = self.python("""
            import torch
            import berth

            def prepare():
                torch.cuda.set_device(0)

            prepare()
            try:
                berth.install("cuda")
            except berth.UsageError as error:
                print(error)
        """)
        self.assertIn("CUDA is in use already", seen)
        self.assertIn(f"It was opened by {self.folder}/program.py, line 6.", seen)
        self.assertIn(
            "Put `import berth; berth.install()` above that line, or run the program unchanged with `python -m berth run`",
            seen,
        )
        guessed = self.python("""
            import torch
            x = torch.ones(5).to("cuda")
            import berth
            try:
                berth.install("cuda")
            except berth.UsageError as error:
                print(error)
        """)
        self.assertIn(
            f'It may have been opened by {self.folder}/program.py, line 3: `x = torch.ones(5).to("cuda")`.', guessed
        )

    def test_memory_is_had_as_it_was_asked_for_or_as_it_works(self):
        program = (
            "import berth\nberth.install('cuda', memory=sys.argv[1], verbose=True)\n"
            + NETWORK
            + """
try:
    step = make()
    for _ in range(10):
        step()
    print(hits_of(step)[0] > 0.98)
except RuntimeError as error:
    print(str(error).split("; plain memory")[0])
print(berth.stats().device_memory)
"""
        )
        program = "import sys\n" + program
        for driver, memory, said in (
            ("full", "auto", "virtual, in pages of 2.0 MiB, with file descriptors and RDMA"),
            ("full", "plain", "plain, as requested"),
            ("wsl", "virtual", "virtual, in pages of 2.0 MiB, with file descriptors, without RDMA; in vain: "),
            ("no-virtual", "auto", "plain, its virtual memory does not work: "),
        ):
            with self.subTest(driver=driver, memory=memory):
                served, device_memory = self.python(program, memory, standin=("--driver", driver)).splitlines()
                self.assertEqual(served, "True")
                self.assertTrue(device_memory.startswith(said), device_memory)
                self.assertIn(f"; memory: {device_memory}", self.stderr)
        refused = """
            import sys, berth
            try:
                berth.install("cuda", memory=sys.argv[1])
            except berth.SystemFailure as error:
                print(error)
            print(berth.installed("cuda"))
        """
        error, installed = self.python(refused, "virtual", standin=("--driver", "no-virtual")).splitlines()
        self.assertIn("virtual memory was requested on cuda:0 (NVIDIA H100 80GB HBM3), which has none: ", error)
        self.assertIn("cuMemCreate failed: operation not supported (cudaErrorNotSupported, 801)", error)
        self.assertEqual(installed, "False")
        self.python("import berth\nberth.install('cuda', memory='managed')", code=1)
        self.assertIn("memory is 'managed', legal are: auto, virtual, plain", self.stderr)

    def test_what_was_asked_of_the_wrong_gpu_is_one_error(self):
        out = self.python(
            """
            import berth
            berth.install("cuda")
            import torch
            print(berth.stats().requests, berth.stats(1).requests)
            for wrong in (7, "cuda:7"):
                try:
                    berth.load_plan("absent.plan", device=wrong)
                except berth.Error as error:
                    print(type(error).__name__, "absent.plan" in str(error))
            try:
                with berth.record("x.trace", device=7):
                    pass
            except berth.Error as error:
                print(type(error).__name__, "7" in str(error))
            x = torch.ones(5, device="cuda:1")
            print(berth.stats(0).requests, berth.stats("cuda:1").requests, torch.cuda.current_device())
        """,
            standin=("--devices", "2", "--copy-limit", "1048576"),
        )
        self.assertEqual(out.splitlines(), ["0 0", "InputError True", "InputError True", "SystemFailure True", "0 1 0"])


class Ranks(ProgramCase):
    def ranks(self, mode, **variables):
        self.write("sharded.py", SHARDED)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 4]
        result = run(
            [*launcher, "sharded.py", mode],
            folder=self.folder,
            standin=("--devices", "4", "--copy-limit", "65536"),
            **variables,
        )
        self.assertEqual(result.returncode, 0, result.stderr[-3000:])
        found = sorted((json.loads(line) for line in result.stdout.splitlines()), key=lambda one: one["rank"])
        self.assertEqual([one["rank"] for one in found], [0, 1, 2, 3])
        return found

    def test_equal_ranks_hold_the_same_and_what_lives(self):
        """Streams of collectives go at their own pace on each rank."""
        learning = self.ranks("learn")
        natively = self.ranks("native", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        held = [one["held"] for one in learning]
        self.assertLess(max(held), 1.01 * min(held), learning)
        for ours, theirs in zip(learning, natively):
            self.assertEqual(ours["live"], theirs["live"])
            self.assertLessEqual(ours["held"], theirs["held"], (ours, theirs))
            self.assertLess(ours["held"], 1.02 * ours["live"] + (2 << 20), ours)
            self.assertGreater(ours["hits"], 0)


if __name__ == "__main__":
    unittest.main()
