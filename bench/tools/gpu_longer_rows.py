"""Rows of bench/gpu beyond the half hour: they run where they are named, or with --more."""

import json
import shutil
import statistics

import training
from gpu_bench import CHILDREN
from gpu_figure_rows import NATIVE, beside, latencies, numbers, numerics, soak, soaked, stepped, steps, times
from gpu_rows import ALLOCATORS, Group, Skip, failed, measured, misses, passed, size
from training import ROOT, mebibytes

for name, (text, *how) in {
    "gpt2 fp16": ("GPT-2 with autocast, GradScaler and clipping", "gpt2", "--precision", "fp16", "--clip"),
    "resnet50 fp16": (
        "ResNet-50 with autocast and GradScaler, channels last",
        "resnet50",
        "--precision",
        "fp16",
        "--channels-last",
    ),
}.items():
    numerics.row(name, text, wants=110, point=1, more=True)(numbers(*how))
soak.row("native", "the same under PyTorch's own allocator: the program keeps its rules", wants=40, more=True)(
    soaked(1, {"BERTH_MODE": "off"}, 20)
)
soak.row("four threads", "four threads with four streams each, two minutes", wants=150, point=3, more=True)(
    soaked(4, {"BERTH_MODE": "learn"}, 120)
)
soak.row("checked", "two threads with BERTH_CHECK=full", wants=70, point=3, more=True)(
    soaked(2, {"BERTH_MODE": "learn", "BERTH_CHECK": "full"}, 40)
)


@soak.row("sanitizer", "a short one under compute-sanitizer", point=3, wants=120, more=True)
def sanitizer(bench):
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if bench.standin or not found:
        raise Skip("no compute-sanitizer here" if not bench.standin else "the stand-in has its own checker")
    path = bench.folder / "child.json"
    environment = {"BERTH_MODE": "learn"}
    inner, _ = bench.launch(
        [
            bench.python,
            "-B",
            CHILDREN / "soak.py",
            "--json",
            path,
            "--seconds",
            20,
            "--blocks",
            30,
            "--largest",
            1 << 20,
        ],
        environment,
    )
    said = bench.run(
        [found, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", 9, *inner], environment
    )
    wrong = json.loads(path.read_text())["wrong_words"]
    last = next((line for line in reversed(said.splitlines()) if "ERROR SUMMARY" in line), "no summary")
    return passed(f"{last.strip('= ')}, {wrong} wrong words") if wrong == 0 else failed(f"{wrong} wrong words")


repeats = Group(
    "repeats", "whether a step's requests repeat with the real libraries: misses of a plan learned in place"
)


def repeated(model, *how):
    def run(bench):
        steps = 12 if bench.small else 40
        found = bench.child(
            "train",
            "--model",
            model,
            "--steps",
            steps,
            "--warmup",
            0,
            *how,
            *size(bench),
            environment={"BERTH_MODE": "learn"},
        )
        late = misses(found)
        counts = sorted({step["requests"] for step in found["steps"][len(found["steps"]) // 2 :]})
        calls = sum(step["driver_calls"] for step in found["steps"][len(found["steps"]) // 2 :])
        text = (
            f"{found['description']}: {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} requests a step, "
            f"{statistics.mean(late):.1f} misses a step, {max(late)} at most; {calls} driver calls in {len(late)} steps"
        )
        return measured(
            text,
            description=found["description"],
            requests=counts,
            misses=late,
            driver_calls=calls,
            stats=found["stats"],
        )

    return run


for name, how in {
    "gpt2": ("gpt2",),
    "gpt2 bf16": ("gpt2", "--precision", "bf16", "--fused-optimizer"),
    "gpt2 fp16": ("gpt2", "--precision", "fp16", "--clip", "--accumulate", 2),
    "resnet50": ("resnet50",),
    "resnet50 benchmark": ("resnet50", "--benchmark", "--precision", "bf16", "--channels-last"),
    "llama bf16": ("llama", "--precision", "bf16"),
    "mlp": ("mlp",),
}.items():
    repeats.row(name, " ".join(map(str, how)), wants=60, point=2, more=True)(repeated(*how))


@repeats.row(
    "snapshot",
    "a real snapshot of an MLP's memory, kept beside the results for the readers' tests",
    wants=30,
    point=2,
    more=True,
)
def snapshot(bench):
    path = bench.folder / "snapshot-mlp.pickle"
    found = bench.child("snapshot", "--pickle", path, environment={"BERTH_MODE": "off"})
    shutil.copy(path, bench.kept / path.name)
    return measured(
        f"{found['entries']} entries, {found['segments']} segments, {path.stat().st_size} bytes, without stack frames",
        **found,
    )


latency = Group("latency", "what an allocation, the start, and waiting for an event cost")
latency.row("4 threads", "allocate and free, each thread on a stream of its own", wants=60, point=6, more=True)(
    latencies(4)
)


@latency.row(
    "startup",
    "what installing berth and loading a plan of many slots adds to the first request, the mapping of the arena included",
    wants=60,
    point=6,
    more=True,
)
def startup(bench):
    program, requests = bench.program("bench/cuda_latency"), 500 if bench.small else 10000
    trace, plan = bench.folder / "run.trace", bench.folder / "run.plan"
    command = [program, "--requests", requests, "--steps", 1]
    bench.cuda([*command, "--warmup", 5], {"BERTH_MODE": "record", "BERTH_TRACE": trace}, installs=True)
    said = json.loads(bench.run([bench.program("berth"), "plan", trace, "-o", plan, "--time-limit", 2, "--json"]))
    modes = {"caching": {"BERTH_MODE": "off"}, "berth": {"BERTH_MODE": "serve", "BERTH_PLAN": plan}}
    times = {name: [] for name in modes}
    for turn in range(1 if bench.small else 7):
        for name in list(modes)[:: 1 if turn % 2 == 0 else -1]:
            times[name].append(
                json.loads(bench.cuda([*command, "--warmup", 0], modes[name], installs=True))["start_ms"]
            )
    added = [ours - theirs for ours, theirs in zip(times["berth"], times["caching"])]
    return measured(
        f"{statistics.median(added):.1f} ms ({min(added):.1f} to {max(added):.1f}) with {said['buffers']} slots, arena "
        f"{mebibytes(said['arena_bytes'])}",
        start_ms=times,
        slots=said["buffers"],
        arena_bytes=said["arena_bytes"],
    )


@latency.row(
    "wait", "a stream waits for an event that is over, between two small kernels", wants=30, point=3, more=True
)
def wait(bench):
    found = bench.child("wait_cost", *(["--pairs", 50] if bench.small else []), environment={"BERTH_MODE": "off"})
    waits, alone = found["wait for what is over"], found["kernel alone"]
    return measured(
        f"host {waits['host_us'] - alone['host_us']:.2f} us, device {waits['device_us'] - alone['device_us']:.2f} us over a kernel alone "
        f"({alone['device_us']:.2f} us)",
        **found,
    )


times.row("llama", "a Llama of 1.1 B weights, cudaMallocAsync too", wants=240, more=True)(
    beside("llama", ("--precision", "bf16"), 2, (*NATIVE, "async"))
)
times.row(
    "resnet50 benchmark", "ResNet-50 where cuDNN tries its algorithms, cudaMallocAsync too", wants=200, more=True
)(beside("resnet50", ("--precision", "bf16", "--channels-last", "--benchmark"), 1, (*NATIVE, "async")))


train_cpp = Group("train-cpp", "the C++ programs of bench/train: memory and step time")


def cpp(model):
    def run(bench):
        data_folder = next(
            (folder for folder in (ROOT / "build/data", bench.build / "data") if (folder / "text.txt").is_file()), None
        )
        if data_folder is None:
            raise Skip("no data: cmake/setup fetches it into build/data, and bench/gpu --pack takes it along")
        found = {"rounds": []}
        for turn in range(1 if bench.small else 3):
            one = {}
            for name in list(ALLOCATORS)[:: 1 if turn % 2 == 0 else -1]:
                path = bench.folder / "run.json"
                bench.cuda(
                    [
                        bench.program("bench/train/train_cuda"),
                        "--device",
                        "cuda",
                        "--model",
                        model,
                        "--data",
                        data_folder,
                        "--steps",
                        3 if bench.small else 20,
                        "--warmup",
                        8 if bench.small else 20,
                        "--threads",
                        1,
                        "--quiet",
                        "--json",
                        path,
                        *training.settling(ALLOCATORS[name]),
                    ],
                    ALLOCATORS[name],
                    installs=True,
                )
                result = json.loads(path.read_text())
                one[name] = {
                    "step_ms": statistics.median(step["ms"] for step in result["steps"]),
                    **result["memory"],
                    "losses": result["losses_hex"],
                }
            found["rounds"].append(one)
        first = found["rounds"][0]
        length = min(len(one["losses"]) for one in first.values())
        found["losses_equal"] = (
            None
            if bench.standin
            else {name: one["losses"][:length] == first["caching"]["losses"][:length] for name, one in first.items()}
        )
        for one in found["rounds"]:
            for result in one.values():
                del result["losses"]
        said = "; ".join(
            f"{name} {mebibytes(first[name]['reserved_peak_bytes'])} "
            f"({first[name]['reserved_peak_bytes'] / max(first[name]['allocated_peak_bytes'], 1):.3f}), "
            f"{statistics.median(one[name]['step_ms'] for one in found['rounds']):.1f} ms"
            for name in first
        )
        return measured(f"{result_text(model)}: {said}", **found)

    return run


def result_text(model):
    return {"gpt": "GPT of 4 layers", "resnet18": "ResNet-18", "lstm": "LSTM", "mlp": "MLP"}[model]


for model in ("gpt", "resnet18", "lstm", "mlp"):
    train_cpp.row(model, f"bench/train's {result_text(model)} under every allocator", wants=60, more=True)(cpp(model))
for model, precision in (("gpt2", "fp32"), ("resnet50", "bf16")):
    steps.row(
        f"{model} {precision}",
        f"{model}, {precision}: eager, checkpoints, engines and budgets in turns",
        wants=200,
        more=True,
    )(stepped(model, precision))
