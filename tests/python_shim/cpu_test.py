"""Programs that install berth on the CPU: steps are found and served, nothing that they compute changes, misuse is one error each."""

import json
import unittest

from support import PREAMBLE, ProgramCase

NETWORK = (
    PREAMBLE
    + """
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))

def forward():
    x = torch.randn(32, 64)
    return (net(x) - x).square().mean()
"""
)


class Installs(ProgramCase):
    def test_losses_are_the_same_to_the_bit_and_every_request_is_a_hit(self):
        program = (
            """
            import sys
            import berth
            berth.install("cpu", mode=sys.argv[1])
        """
            + "\n".join(" " * 12 + line for line in NETWORK.splitlines())
            + """
            optimizer = torch.optim.AdamW(net.parameters())
            losses = []
            def step():
                loss = forward()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item().hex())
            for _ in range(60):
                step()
            print(json.dumps(losses))
            if sys.argv[1] == "learn":
                share, marks = hits_of(step)
                print(share, marks)
        """
        )
        native = self.python(program, "off").splitlines()[0]
        losses, hits = self.python(program, "learn").splitlines()
        self.assertEqual(losses, native)
        share, marks = map(float, hits.split())
        self.assertGreater(share, 0.98)
        self.assertEqual(marks, 1)

    def test_steps_are_found_whatever_the_optimizer(self):
        """Gradient accumulation, fused, two optimizers, marked by the user; a compiled one emits no mark, and its step is found."""
        program = (
            "import berth\nberth.install('cpu')\n"
            + NETWORK
            + """
kind = sys.argv[1]
if kind == "accumulation":
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    def step():
        for _ in range(4):
            (forward() / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
elif kind == "fused":
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    def step():
        forward().backward()
        optimizer.step()
        optimizer.zero_grad()
elif kind == "gan":
    other = torch.nn.Linear(64, 1)
    optimizers = torch.optim.Adam(net.parameters()), torch.optim.Adam(other.parameters())
    def step():
        real = torch.randn(32, 64)
        loss = other(net(real).detach()).mean() - other(real).mean()
        loss.backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        loss = -other(net(real)).mean()
        loss.backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        other.zero_grad()
elif kind == "compiled":
    optimizer = torch.optim.AdamW(net.parameters())
    compiled = torch.compile(optimizer.step, backend="aot_eager")
    def step():
        forward().backward()
        compiled()
        optimizer.zero_grad()
else:
    optimizer = torch.optim.AdamW(net.parameters())
    def step():
        for _ in range(2):
            forward().backward()
            optimizer.step()
            optimizer.zero_grad()
        berth.mark_step()
for _ in range(10):
    step()
share, marks = hits_of(step)
print(round(share, 4), marks)
"""
        )
        for kind, marks in (("accumulation", 1), ("fused", 1), ("gan", 2), ("compiled", 0), ("marked", 1)):
            with self.subTest(kind):
                share, seen = map(float, self.python(program, kind).split())
                self.assertGreater(share, 0.98)
                self.assertEqual(seen, marks)

    def test_a_planned_block_has_the_same_address_in_every_step(self):
        program = (
            "import sys\nimport berth\nberth.install('cpu', mode=sys.argv[1])\n"
            + NETWORK
            + """
optimizer = torch.optim.AdamW(net.parameters())
addresses = []
def step():
    seen = []
    x = torch.randn(32, 64)
    seen.append(x.data_ptr())
    for layer in net:
        x = layer(x)
        seen.append(x.data_ptr())
    loss = x.square().mean()
    seen.append(loss.data_ptr())
    loss.backward()
    seen += [parameter.grad.data_ptr() for parameter in net.parameters()]
    optimizer.step()
    optimizer.zero_grad()
    addresses.append(seen)
if sys.argv[1] == "learn":
    for _ in range(10):
        step()
    assert hits_of(step)[0] > 0.98
    step()
    addresses.clear()
keep = []
for number in range(100):
    step()
    keep.append(torch.empty(100 * number + 1))  # what lives on is no part of the step
print(sum(one != other for a, b in zip(addresses, addresses[1:]) for one, other in zip(a, b)))
"""
        )
        changes = {mode: int(self.python(program, mode)) for mode in ("off", "learn")}
        print(
            f"addresses that changed from step to step in 100 steps: glibc {changes['off']}, berth {changes['learn']}"
        )
        self.assertEqual(changes["learn"], 0)

    def test_traces_plans_and_memory_are_at_hand(self):
        program = (
            "import berth\nberth.install('cpu', verbose=True)\n"
            + NETWORK
            + """
optimizer = torch.optim.AdamW(net.parameters())
def step():
    with berth.scope("forward"):
        loss = forward()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(berth.save_plan("none.plan"))
for _ in range(10):
    step()
assert hits_of(step)[0] > 0.98
print(berth.save_plan("x.plan"))
with berth.record("x-{device}.trace", operators=True):
    for _ in range(5):
        step()
    try:
        with berth.record("y.trace"):
            pass
    except berth.UsageError as error:
        print(error)
with berth.record("requests.trace"):
    step()
for _ in range(3):
    step()
trace = berth.Trace.load("x-cpu.trace")
operators = [one["name"] for one in json.loads(berth.Graph.from_trace(trace).to_json())["operators"]]
print(trace.marks, operators.count("aten::addmm"), any(trace.requests.tags))
try:
    berth.Graph.from_trace(berth.Trace.load("requests.trace"))
except berth.InputError as error:
    print("operators" in str(error))
plan = berth.plan(trace, iterations=20)
plan.save("again.plan")
berth.load_plan("again.plan")
print(hits_of(step)[0] > 0.98)
gc.collect()
print(berth.release() > 0, hits_of(step)[0] > 0.98, berth.release() > 0, berth.resume() > 0, hits_of(step)[0] > 0.98)
try:
    berth.load_plan("x-cpu.trace")
except berth.InputError as error:
    print("x-cpu.trace" in str(error))
print(berth.stats().trace_entries_lost)
"""
        )
        self.assertEqual(
            self.python(program).splitlines(),
            [
                "False",
                "True",
                "a recording is open already: end that one first",
                "5 2 True",
                "True",
                "True",
                "True True True True True",
                "True",
                "0",
            ],
        )
        self.assertIn("berth: cpu: ", self.stderr)
        self.assertFalse((self.folder / "none.plan").exists() or (self.folder / "y.trace").exists())

    def test_a_plan_is_kept_and_served_and_one_of_another_model_is_a_warning(self):
        program = (
            "import dataclasses, sys\nimport berth\nberth.install('cpu', plan='net.plan', mode=sys.argv[1], stats='stats.json')\n"
            + NETWORK
            + """
if len(sys.argv) > 2:
    net = torch.nn.Sequential(*[layer for width in range(65, 75) for layer in (torch.nn.Linear(width, width + 1), torch.nn.Tanh())])
    def forward():
        return net(torch.randn(7, 65)).sum()
optimizer = (torch.optim.SGD if len(sys.argv) > 2 else torch.optim.AdamW)(net.parameters())
def step():
    forward().backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(300):
    step()
    if berth.stats().hits > 500:
        break
    time.sleep(0.005)
for _ in range(50):
    step()
print(json.dumps(dataclasses.asdict(berth.stats())))
"""
        )
        self.python(program, "learn")
        self.assertTrue((self.folder / "net.plan").exists())
        self.python(program, "serve")
        stats = json.loads((self.folder / "stats.json").read_text())
        self.assertGreater(stats["hits"] / stats["requests"], 0.9)
        self.assertEqual(stats["plans_learned"], 0)
        seen = json.loads(self.python(program, "serve", "other"))
        self.assertEqual(self.stderr.count("plan-misfit"), 1, self.stderr)
        # Numbers, texts and misses are those of the file, but for what the program's end frees.
        stats = json.loads((self.folder / "stats.json").read_text())
        self.assertEqual(seen.keys(), stats.keys())
        self.assertTrue(seen["misses"])
        for name in ("misses", "requests", "hits", "misses_size", "unplanned", "steps", "live_peak", "device_memory"):
            self.assertEqual(seen[name], stats[name], name)
        self.python(program, "learn", "other")
        self.assertGreater(json.loads((self.folder / "stats.json").read_text())["hits"], 500)


class Processes(ProgramCase):
    def test_data_loaders_and_shared_tensors_work(self):
        """Workers, forked and spawned, keep the system's memory; tensors go between processes by files and descriptors."""
        out = self.python("""
            import berth
            import torch
            import torch.multiprocessing as mp
            from torch.utils.data import DataLoader, Dataset

            class Numbers(Dataset):
                def __len__(self):
                    return 64
                def __getitem__(self, k):
                    before = berth.stats().requests if berth.installed("cpu") else -1
                    made = torch.full((100,), float(k))
                    served = berth.stats().requests - before if berth.installed("cpu") else 0
                    return made, served

            def add_one(shared, queue, taken):
                shared += 1
                queue.put(shared.clone())
                taken.wait()

            if __name__ == "__main__":
                berth.install("cpu")
                for method in ("fork", "spawn"):
                    total, served = 0.0, 0
                    for batch, counts in DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context=method):
                        total += float(batch.sum())
                        served += int(counts.sum())
                    print(method, total, served)
                for strategy in ("file_descriptor", "file_system"):
                    mp.set_sharing_strategy(strategy)
                    context = mp.get_context("spawn")
                    queue = context.Queue()
                    taken = context.Event()
                    shared = torch.zeros(1000).share_memory_()
                    process = context.Process(target=add_one, args=(shared, queue, taken))
                    process.start()
                    got = queue.get()
                    taken.set()
                    process.join()
                    print(strategy, float(shared.sum()), float(got.sum()), process.exitcode)
        """)
        self.assertEqual(
            out.splitlines(),
            ["fork 201600.0 0", "spawn 201600.0 0", "file_descriptor 1000.0 1000.0 0", "file_system 1000.0 1000.0 0"],
        )

    def test_whatever_ends_a_program_ends_it_well(self):
        program = """
            import os, signal, sys, threading
            import berth
            berth.install("cpu", stats="stats.json")
            import torch
            kept = torch.ones(1000)
            kind = sys.argv[1]
            class Late:
                tensor = torch.ones(10)
                def __del__(self):
                    self.tensor + 1
                    berth.mark_step()
                    berth.installed()
            late = Late()
            if kind == "thread":
                def work():
                    try:
                        torch.ones(10) + kept.sum()
                        sys.exit(3)
                    finally:
                        berth.mark_step()
                thread = threading.Thread(target=work); thread.start(); thread.join()
            if kind == "raise":
                raise ValueError("mine")
            if kind == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            if kind == "exit":
                sys.exit(7)
        """
        for kind, code in (("thread", 0), ("raise", 1), ("interrupt", -2), ("exit", 7)):
            with self.subTest(kind):
                (self.folder / "stats.json").unlink(missing_ok=True)
                self.python(program, kind, code=code)
                self.assertTrue((self.folder / "stats.json").exists())


class Misuse(ProgramCase):
    def test_each_is_one_error_that_says_what_is_legal(self):
        out = self.python("""
            import berth
            def refused(function, *arguments, **options):
                try:
                    function(*arguments, **options)
                except berth.UsageError as error:
                    print(error)
                else:
                    print("not refused", arguments, options)
            refused(berth.install, "gpu")
            refused(berth.install, "cpu", mode="lern")
            refused(berth.install, "cpu", mode="serve")
            refused(berth.install, "cpu", memory_limit="6 apples")
            refused(berth.install, "cpu", plan_time_limit=-1)
            refused(berth.install, "all", plan="one.plan")
            print(berth.install("cpu", mode="off"), berth.installed())
            print(berth.install("cpu"), berth.install("cpu"), berth.installed("cpu"), berth.installed("all"))
            refused(berth.install, "cpu", mode="record")
            refused(berth.install, "cpu", tag="x", verbose=True)
            refused(berth.stats, "cuda")
            refused(berth.stats, "tpu:1")
            refused(berth.stats, 1)
            refused(berth.release, "cpu", keep_contents=True)
            print(berth.stats("cpu").requests >= 0)
            import torch
            try:
                torch.empty(1 << 60, dtype=torch.uint8)
            except RuntimeError as error:
                print(type(error).__name__, str(error)[:40])
        """)
        self.assertEqual(
            out.splitlines(),
            [
                "device is 'gpu', legal are: 'cpu', 'cuda', 'all', None for CUDA where there is a GPU and else the CPU",
                "mode is 'lern', legal are: learn, record, serve, off",
                "mode is 'serve' and BERTH_PLAN names no plan: set it to a file that `berth plan` wrote",
                "memory_limit is '6 apples', legal are: a size such as 6GiB; 0: the device's own",
                "plan_time_limit_seconds is '-1', legal are: seconds, 0.001 to 86400",
                "plan is 'one.plan', and the CPU and each GPU have one: with device 'all' the name must hold {device}",
                "False False",
                "True True True False",
                "berth is installed on the CPU already, with other settings (mode), which stay for the life of the process: install it once",
                "berth is installed on the CPU already, with other settings (verbose, tag), which stay for the life of the process: install it once",
                "berth is not installed on cuda, but on cpu",
                "device is 'tpu:1', legal are: 'cpu', 'cuda', 'cuda:N', the index of a GPU, None for the one that is installed",
                "berth is not installed on cuda, but on cpu",
                "the CPU's tensors are in host memory already: release memory without contents",
                "True",
                "OutOfMemoryError DefaultCPUAllocator: can't allocate memo",
            ],
        )

    def test_another_torch_is_refused_with_both_versions(self):
        self.write("torch/__init__.py", "__version__ = '2.4.1+cpu'\n")
        program = """
            import berth
            try:
                berth.install("cpu")
            except berth.UsageError as error:
                print(error)
        """
        out = self.python(program, fork=False)
        self.assertRegex(out, r"berth was built for torch 2\.\d+\.\d+, torch 2\.4\.1\+cpu is imported: build it again")


if __name__ == "__main__":
    unittest.main()
