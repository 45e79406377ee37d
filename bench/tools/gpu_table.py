"""The rows of bench/gpu in the order of worth. A row takes the Bench and returns an Answer; what it raises is its failure."""

import json
import os
import pathlib
import re
import shutil
import statistics
import time

import training
from gpu_bench import CHILDREN
from gpu_rows import Group, Skip, failed, measured, passed, ran
from training import ROOT, Failure, mebibytes

ALLOCATORS = {
    "caching": {"BERTH_MODE": "off"},
    "expandable": {"BERTH_MODE": "off", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "async": {"BERTH_MODE": "off", "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    "berth learn": {"BERTH_MODE": "learn"},
}


def decided(bench, good, text, **data):
    """pass or fail on a GPU; on the stand-in values mean nothing, so only that it ran."""
    if bench.standin:
        return ran(text, **data)
    return passed(text, **data) if good else failed(text, **data)


def size(bench):
    return ["--size", "small"] if bench.small else []


def misses(result):
    """Per step, over the second half of the steps: requests that did not get the bytes that the plan has for them."""
    steps = result["steps"][len(result["steps"]) // 2 :]
    return [step["misses"] + step["unplanned"] for step in steps]


# ----------------------------------------------------------------------------------------------- does it run at all

start = Group("start", "whether it runs at all")


@start.row("doctor", "what the driver can do, and what berth takes of it", wants=10, point=4)
def doctor(bench):
    found = json.loads(bench.cuda([bench.program("berth"), "doctor", "--device", "--json"]))
    device = found["devices"][0]
    works = ", ".join(
        f"{one['name']}: {'not promised' if not one['promised'] else 'works' if one['works'] else one['error']}"
        for one in device["tries"]
    )
    return passed(f"{device['name']}, CUDA {found['driver']}: {device['why']}; {works}", **found)


def trains_equally(environment):
    def run(bench):
        given = ["--model", "mlp", "--deterministic", "--weights", "--steps", 20, "--warmup", 0, *size(bench)]
        ours = bench.child("train", *given, environment={"BERTH_MODE": "learn", **environment})
        native = bench.child("train", *given, environment={"BERTH_MODE": "off"})
        equal = ours["losses_hex"] == native["losses_hex"] and ours["weights_sha256"] == native["weights_sha256"]
        stats = ours["stats"]
        text = (
            f"{ours['description']}: {stats['hits']} hits of {stats['requests']} requests, {stats['driver_calls']} driver calls, "
            f"{stats['device_memory']}; losses and weights {'not compared' if bench.standin else 'equal' if equal else 'DIFFER'}"
        )
        return decided(
            bench,
            equal,
            text,
            equal=None if bench.standin else equal,
            stats=stats,
            native_loss=native["last_loss"],
            loss=ours["last_loss"],
        )

    return run


start.row(
    "train",
    "an MLP: allocated, freed, trained, planned; losses and weights are the native allocator's",
    wants=50,
    point=1,
)(trains_equally({}))

# ---------------------------------------------------------------------------------------------------- what calls cost

cost = Group("cost", "what the driver's calls cost, and which of them wait for the device")


@cost.row(
    "calls",
    "by live handles, by the size of a handle, for several mappings at once; Device's own calls; while the device copies",
    wants=60,
    point=7,
)
def page_costs(bench):
    small = ["--smoke"] if bench.small else []
    found = json.loads(bench.cuda([bench.program("bench/page_costs"), *small]))
    most = max(map(int, found["us"]["alias"]))
    each = ", ".join(
        f"{call} {found['us'][call]['1']:.1f} us alone, {found['us'][call][str(most)] / most:.2f} us a page of {most}"
        for call in ("commit", "alias", "decommit")
    )
    handles = ", ".join(
        f"{count}: {us:.1f}"
        for count, us in sorted(found["live_handles_us"]["cuMemCreate"].items(), key=lambda one: int(one[0]))
    )
    large = ", ".join(f"{call} {times[str(most)]:.1f}" for call, times in found["one_handle_us"].items())
    waits = [name for name, one in found["busy"]["calls"].items() if one["waited"] > found["rounds"] / 2]
    event = "event: {record:.2f} us to record, {query:.2f} us to ask, {wait:.1f} us to wait".format(**found["event_us"])
    waiting = "" if bench.standin else f"; these wait for the device: {', '.join(waits) or 'none'}"
    return measured(
        f"cuMemCreate by live handles, us: {handles}; one handle of {most} pages, us: {large}; {each}; {event}{waiting}",
        **found,
    )


# ------------------------------------------------------------------------------------------------------ the device

device = Group("device", "the cases of tests/cuda/gpu_test.cc, each a process")


def device_case(case):
    def run(bench):
        said = bench.cuda(
            [bench.program("tests/cuda/berth_cuda_gpu_test"), case.replace(",", "\\,"), "--durations", "yes"],
            {"BERTH_MODE": "off"},
            copies=True,
            accept=(0, 77),
        )
        if bench.last_code == 77:
            raise Failure(f"the test finds no GPU: {bench.last_errors.strip() or said.strip()}")
        if "No test cases matched" in said + bench.last_errors or "No test ran" in said:
            raise Failure(f"the program has no case '{case}': it was built from other sources")
        figures = [line.removeprefix("figure: ") for line in said.splitlines() if line.startswith("figure: ")]
        return passed("; ".join([said.strip().splitlines()[-1], *figures]), figures=figures)

    return run


CASES = re.findall(r'TEST_CASE\("([^"]+)",\s*"\[gpu\]\[(\w+)\]"\)', (ROOT / "tests/cuda/gpu_test.cc").read_text())
for number, (case, topic) in enumerate(CASES, 1):
    device.row(f"{number} {topic}", case, wants=8, point=7 if topic == "alias" else 4)(device_case(case))

# ------------------------------------------------------------------------------------------------- the ends of a program

ends = Group("ends", "exit, fork, signals")


@ends.row("exit", "blocks, streams and graphs that outlive main", wants=20, point=5)
def exits(bench):
    bench.child("lifecycle", "--how", "exit", environment={"BERTH_MODE": "learn"})
    words = bench.last_errors.strip()
    return (
        failed(f"it complains: {words.splitlines()[-1]}", tail=words.splitlines())
        if words
        else passed("silent, exit code 0")
    )


@ends.row("fork", "frees in a forked child reach no driver, and the parent goes on", wants=20, point=5)
def forks(bench):
    found = bench.child("lifecycle", "--how", "fork", environment={"BERTH_MODE": "learn"})
    good = found["child_exit_code"] == 0 and found["sums_right"] and found["kept_right"]
    text = f"the child ended with {found['child_exit_code']}, the parent's values are {'right' if found['sums_right'] and found['kept_right'] else 'WRONG'}"
    return passed(text, **found) if good else failed(text, **found)


@ends.row(
    "signals",
    "a program that trains ends by SIGTERM, by Ctrl-C as an exception, by SIGKILL; its memory comes back",
    wants=40,
    point=5,
)
def signals(bench):
    found = bench.child("lifecycle", "--how", "signals", environment={"BERTH_MODE": "learn"})
    wrong = [
        f"{one['signal']}: ended with {one['exit_code']} instead of {one['wanted']}, {mebibytes(one['kept_bytes'])} kept"
        for one in found["ends"]
        if one["exit_code"] != one["wanted"] or one["kept_bytes"] > 64 << 20
    ]
    slowest = max(one["seconds"] for one in found["ends"])
    text = "; ".join(wrong) or f"{len(found['ends'])} signals, the slowest end after {slowest:.2f} s"
    return failed(text, **found) if wrong else passed(text, **found)


# --------------------------------------------------------------------------------------------------------------- graphs

graphs = Group("graphs", "captured graphs: losses beside the native allocator's")


def graphed(how):
    def run(bench):
        if how == "compile":
            try:
                bench.run(
                    [
                        bench.python,
                        "-c",
                        "import importlib.util as u; import sys; sys.exit(0 if u.find_spec('triton') else 3)",
                    ]
                )
            except Failure:
                raise Skip("no triton here, which torch.compile needs") from None
            if bench.standin:
                raise Skip("triton's kernels do not load on the stand-in")
        given = ["--how", how, "--steps", 6 if bench.small else 30, *size(bench)]
        ours = bench.child("graphs", *given, environment={"BERTH_MODE": "learn"})
        theirs = bench.child("graphs", *given, environment={"BERTH_MODE": "off"})
        same = ours["losses_hex"] == theirs["losses_hex"]
        return decided(
            bench,
            same,
            f"{len(ours['losses_hex'])} losses {'not compared' if bench.standin else 'equal' if same else 'DIFFER'}; reserved "
            f"{mebibytes(ours['reserved_peak_bytes'])} under berth, {mebibytes(theirs['reserved_peak_bytes'])} under the native allocator",
            berth={key: ours[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")},
            native={key: theirs[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")},
        )

    return run


graphs.row("graph", "a whole step in one CUDAGraph, memory asked for beside it", wants=30, point=5)(graphed("graph"))
graphs.row("callables", "make_graphed_callables", wants=30, point=5)(graphed("callables"))
graphs.row(
    "compile", "torch.compile, mode reduce-overhead: states of the pool are saved and restored", wants=80, point=5
)(graphed("compile"))

# -------------------------------------------------------------------------------------------------------------- sharing

sharing = Group("sharing", "CUDA IPC, other GPUs, NCCL")


def shared(consumer):
    def run(bench):
        found = bench.child(
            "sharing", "--consumer", consumer, "--rounds", 3 if bench.small else 40, environment={"BERTH_MODE": "learn"}
        )
        good = found["exit_code"] == 0 and not found["wrong"]
        values = "values not compared" if bench.standin else f"{len(found['wrong'])} wrong"
        text = f"{found['rounds']} tensors shared with a process under '{found['consumer']}', {values}"
        if bench.standin:
            return ran(text, **found) if found["exit_code"] == 0 else failed(text, **found)
        return passed(text, **found) if good else failed(text, **found)

    return run


sharing.row("berth", "tensors of virtual memory, shared with a process that runs berth", wants=30, point=4)(
    shared("same")
)
sharing.row("native", "the same with a process under PyTorch's own allocator", wants=30, point=4)(shared("native"))


@sharing.row("peers", "copies between two GPUs", wants=20, point=4)
def peers(bench):
    if not bench.standin and bench.gpus < 2:
        raise Skip("one GPU here")
    found = bench.child("peers", environment={"BERTH_MODE": "learn"}, devices=2)
    return decided(
        bench,
        not found["wrong"],
        f"{len(found['sizes'])} sizes, {len(found['wrong'])} of them wrong, peer access: {found['can_access']}",
        **found,
    )


@sharing.row("nccl", "one rank: set_device first, collectives, DDP, a registered pool", wants=40, point=4)
def nccl(bench):
    found = bench.child("distributed", *(["--steps", 5] if bench.small else []), environment={"BERTH_MODE": "learn"})
    return decided(
        bench,
        found["equal"],
        f"collectives {'not compared' if bench.standin else 'equal' if found['equal'] else 'DIFFER'}, registered pool: {found['registered_pool']}",
        **found,
    )


# ------------------------------------------------------------------------------------------------------------- numerics

numerics = Group(
    "numerics",
    "losses and weights of planned training, bit for bit those of the native allocator, deterministic algorithms on",
)


def numbers(model, *how):
    def run(bench):
        steps = 10 if bench.small else 40
        given = [
            "--model",
            model,
            "--deterministic",
            "--written-out",
            "--weights",
            "--steps",
            steps,
            "--warmup",
            0,
            *how,
            *size(bench),
        ]
        trace, plan = bench.folder / "run.trace", bench.folder / "run.plan"
        train = lambda **environment: bench.child("train", *given, environment=environment)  # noqa: E731
        runs = {"native": train(BERTH_MODE="off")}
        runs["berth record"] = train(BERTH_MODE="record", BERTH_TRACE=trace)
        planned = json.loads(bench.run([bench.program("berth"), "plan", trace, "-o", plan, "--json"]))
        bench.run([bench.program("berth"), "verify", plan, trace])
        runs["berth serve"] = train(BERTH_MODE="serve", BERTH_PLAN=plan)
        runs["berth learn"] = train(BERTH_MODE="learn")
        native = runs["native"]
        same = lambda run: (
            run["losses_hex"] == native["losses_hex"] and run["weights_sha256"] == native["weights_sha256"]
        )  # noqa: E731
        equal = {name: same(run) for name, run in runs.items()}
        differ = [] if bench.standin else [name for name, good in equal.items() if not good]
        if differ:  # whose fault it is
            equal["native again"] = same(train(BERTH_MODE="off"))
        served = {
            name: statistics.mean(misses(run)) for name, run in runs.items() if name in ("berth serve", "berth learn")
        }
        requests = runs["berth serve"]["steps"][-1]["requests"]
        data = {
            "description": native["description"],
            "equal": None if bench.standin else equal,
            "misses_a_step": served,
            "requests_a_step": requests,
            "last_loss": None if bench.standin else native["last_loss"],
            "arena_bytes": planned["arena_bytes"],
            "lower_bound_bytes": planned["lower_bound_bytes"],
            "warnings": native["warnings"],
        }
        said = ", ".join(f"{name} {count:.1f}" for name, count in served.items())
        bound = planned["arena_bytes"] / planned["lower_bound_bytes"]
        text = f"{native['description']}: misses a step of {requests} requests: {said}; arena / bound {bound:.3f}"
        if bench.standin:
            return ran(text, **data)
        if not equal.get("native again", True):
            return failed(f"the native allocator does not repeat itself, so nothing is shown; {text}", **data)
        planned_steps = sum(step["hits"] > 0.9 * step["requests"] for step in runs["berth learn"]["steps"])
        if not differ and planned_steps < steps // 2:
            return failed(f"equal, but berth learn served only {planned_steps} of {steps} steps; {text}", **data)
        return (
            failed(f"DIFFER: {', '.join(differ)}; {text}", **data)
            if differ
            else passed(f"equal over {steps} steps; {text}", **data)
        )

    return run


numerics.row("gpt2", "GPT-2, fp32", wants=100, point=1)(numbers("gpt2"))
numerics.row("resnet50", "ResNet-50, fp32", wants=100, point=1)(numbers("resnet50"))

# ------------------------------------------------------------------------------------------------------------ step time

times = Group("time", "reserved memory and step time beside PyTorch's own allocators, in rounds")
NATIVE = ("caching", "expandable", "berth learn")


def beside(model, how, rounds, names):
    """Every allocator once a round, in an order that changes; what berth serves was recorded and planned before."""

    def run(bench):
        steps, warmup = (3, 8) if bench.small else (20, 20)
        given = ["--model", model, *how, "--steps", steps, "--warmup", warmup, *size(bench)]
        trace, plan = bench.folder / "run.trace", bench.folder / "run.plan"
        settings = {name: ALLOCATORS[name] for name in names}
        recorded = bench.child("train", *given, environment={"BERTH_MODE": "record", "BERTH_TRACE": trace})
        bench.run([bench.program("berth"), "plan", trace, "-o", plan])
        settings["berth serve"] = {"BERTH_MODE": "serve", "BERTH_PLAN": plan}
        runs, broken, longest = {name: [] for name in settings}, {}, 0.0
        for turn in range(1 if bench.small else rounds):
            if turn > 0 and bench.left() < 1.2 * longest * len(settings):
                break  # what is there is whole rounds
            for name in list(settings)[:: 1 if turn % 2 == 0 else -1]:
                if name in broken:
                    continue
                start = time.monotonic()
                try:
                    runs[name].append(bench.child("train", *given, environment=settings[name]))
                    longest = max(longest, time.monotonic() - start)
                except Failure as failure:
                    if name == "caching" or name.startswith("berth"):
                        raise
                    broken[name] = str(failure).splitlines()[-1][:200]
        data = {
            "description": runs["caching"][0]["description"],
            "rounds": len(runs["caching"]),
            "steps": steps,
            "broken": broken,
            "allocators": {},
        }
        median = lambda result, key: statistics.median(step[key] for step in result["steps"][warmup:])  # noqa: E731
        for name, results in runs.items():
            if not results:
                continue
            every = sorted(step["ms"] for result in results for step in result["steps"][warmup:])
            ratios = [median(ours, "ms") / median(theirs, "ms") for ours, theirs in zip(results, runs["caching"])]
            last = results[-1]
            data["allocators"][name] = {
                "step_ms": {
                    "median": statistics.median(every),
                    "p25": every[len(every) // 4],
                    "p75": every[3 * len(every) // 4],
                },
                "step_over_caching": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
                "queue_ms": statistics.median(median(result, "queue_ms") for result in results),
                "reserved_peak_bytes": last["reserved_peak_bytes"],
                "allocated_peak_bytes": last["allocated_peak_bytes"],
                "reserved_over_allocated": last["reserved_peak_bytes"] / max(last["allocated_peak_bytes"], 1),
                "device_used_bytes": last["device_used_bytes"],
                "misses_a_step": statistics.mean(misses(last)) if last["stats"] else None,
                "driver_calls_a_step": statistics.mean(step["driver_calls"] for step in last["steps"][warmup:])
                if last["stats"]
                else None,
                "arena_bytes": last["stats"].get("arena"),
                "arena_bound_bytes": last["stats"].get("arena_bound"),
            }
        data["berth_pool"] = {key: recorded[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")}
        said = "; ".join(
            f"{name} {mebibytes(one['reserved_peak_bytes'])} ({one['reserved_over_allocated']:.3f}), {one['step_ms']['median']:.1f} ms"
            for name, one in data["allocators"].items()
        )
        return measured(
            f"{data['description']}: {said}" + "".join(f"; {name}: {why}" for name, why in broken.items()), **data
        )

    return run


times.row("gpt2", "GPT-2 small, bf16: caching, expandable segments, berth learn, berth serve", wants=130)(
    beside("gpt2", ("--precision", "bf16"), 3, NATIVE)
)
times.row("resnet50", "ResNet-50, bf16, channels last: the same", wants=130)(
    beside("resnet50", ("--precision", "bf16", "--channels-last"), 3, NATIVE)
)


def latencies(threads):
    def run(bench):
        program, rounds = bench.program("bench/cuda_latency"), 1 if bench.small else 5
        times = {"caching": [], "berth": []}
        modes = {"caching": "off", "berth": "learn"}
        for turn in range(rounds):
            for name in list(modes)[:: 1 if turn % 2 == 0 else -1]:
                said = bench.cuda(
                    [program, "--threads", threads, "--steps", 20 if bench.small else 300],
                    {"BERTH_MODE": modes[name]},
                    installs=True,
                )
                times[name].append(json.loads(said)["median_ns"])
        ratios = [ours / theirs for ours, theirs in zip(times["berth"], times["caching"])]
        data = {
            "ns": {
                name: {"median": statistics.median(found), "min": min(found), "max": max(found)}
                for name, found in times.items()
            },
            "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
            "rounds": rounds,
            "threads": threads,
        }
        return measured(
            "berth {:.0f} ns, caching {:.0f} ns: {median:.3f} ({min:.3f} to {max:.3f})".format(
                data["ns"]["berth"]["median"], data["ns"]["caching"]["median"], **data["ratio"]
            ),
            **data,
        )

    return run


times.row("small operators", "one allocation and its free beside PyTorch's caching allocator", wants=40, point=6)(
    latencies(1)
)

# -------------------------------------------------------------------------------------------------------- step programs

steps = Group(
    "steps",
    "step programs: memory and time beside eager and checkpoints, predicted beside measured, cuDNN's algorithms by choice",
)


def stepped(model, precision):
    def run(bench):
        algorithms = bench.folder / "algorithms"
        given = [
            "--model",
            model,
            "--precision",
            precision,
            "--steps",
            2 if bench.small else 15,
            *size(bench),
            "--algorithms",
            algorithms,
            "--library",
            bench.program("libberth_torch_cuda_allocator.so"),
        ]
        found = bench.child("steps", *given, environment={"BERTH_MODE": "off"})
        eager = next(one for one in found["runs"] if one["label"] == "eager")
        rows, wrong = [], []
        for one in found["runs"]:
            program = one.get("program", {})
            ratios = [ours / theirs for ours, theirs in zip(one["ms"], eager["ms"])]
            rows.append(
                {
                    "label": one["label"],
                    "peak_bytes": one["peak"],
                    "predicted_bytes": one.get("predicted"),
                    "ms": statistics.median(one["ms"]),
                    "queued_ms": statistics.median(one["queued_ms"]),
                    "ratio": statistics.median(ratios),
                    "predicted_ratio": program["predicted_ns"] / program["recorded_ns"]
                    if program.get("recorded_ns")
                    else None,
                    "losses_equal": None if bench.standin else one["losses_hex"] == eager["losses_hex"],
                    **{
                        name: program.get(name)
                        for name in (
                            "scheduled",
                            "recomputed",
                            "alternatives",
                            "chosen",
                            "budget_not_met",
                            "last_refusal",
                        )
                    },
                }
            )
            if program and (not program["scheduled"] or program["last_refusal"]):
                wrong.append(f"{one['label']} ran no schedule: {program['last_refusal']}")
            if not bench.standin and "other bits" not in one["label"] and one["losses_hex"] != eager["losses_hex"]:
                wrong.append(f"{one['label']} has other losses")
        known = len(algorithms.read_text().splitlines()) - 2 if algorithms.is_file() else 0
        off = [row["peak_bytes"] - row["predicted_bytes"] for row in rows if row["predicted_bytes"] is not None]
        said = "; ".join(f"{row['label']} {mebibytes(row['peak_bytes'])} {row['ratio']:.2f} x" for row in rows)
        said += f"; {sum(one == 0 for one in off)} of {len(off)} predicted peaks are the measured ones, at most {max(map(abs, off))} bytes off"
        data = {"description": found["description"], "runs": rows, "shapes_measured": known}
        if wrong:
            return failed(f"{'; '.join(wrong)}: {found['description']}: {said}", **data)
        return decided(bench, True, f"{found['description']}: {said}", **data)

    return run


steps.row("gpt2", "GPT-2, bf16: eager, checkpoints, engines and budgets in turns", wants=100)(stepped("gpt2", "bf16"))
steps.row("resnet50", "ResNet-50, fp32: the same, and algorithms by choice", wants=120)(stepped("resnet50", "fp32"))

# ----------------------------------------------------------------------------------------------------------------- soak

soak = Group("soak", "patterns in blocks on four streams, used on others, checked before the free")


def soaked(threads, environment, seconds):
    def run(bench):
        given = [
            "--seconds",
            1 if bench.small else seconds,
            "--threads",
            threads,
            *(["--blocks", 30, "--largest", 1 << 20] if bench.small else []),
        ]
        found = bench.child("soak", *given, environment=environment)
        stats = found["stats"]
        served = f", {stats['hits']} hits of {stats['requests']} requests" if stats else ""
        words = "values not compared" if bench.standin else f"{found['wrong_words']} wrong words"
        text = (
            f"{words} in {found['blocks']} blocks, {found['bytes'] / 2**30:.1f} GiB, {found['crossings']} uses on another "
            f"stream{served}"
        )
        return decided(bench, found["wrong_words"] == 0, text, **found)

    return run


soak.row("berth", "one thread, learning in place, 30 s", wants=45, point=3)(soaked(1, {"BERTH_MODE": "learn"}, 30))
soak.row("two threads", "two threads with four streams each, 15 s", wants=35, point=3)(
    soaked(2, {"BERTH_MODE": "learn"}, 15)
)
times.row("two threads", "allocate and free, each thread on a stream of its own", wants=40, point=6)(latencies(2))

# ------------------------------------------------------------------------------------------------------------- promises

promised = Group("promises", "tests/torch/cuda_*_test.py on the driver; plain memory; libberth.so")


def promises(topic):
    def run(bench):
        script = ROOT / f"tests/torch/cuda_{topic}_test.py"
        extra = [shutil.which("cc") or shutil.which("gcc") or "cc"] if topic == "pools" else []
        said, wrong, tail = {}, {}, []
        # PyTorch's own allocator shows that a test is right: where one fails, that is asked.
        for name, environment in {"berth": {"BERTH_MODE": "learn"}, "native": {"BERTH_MODE": "off"}}.items():
            bench.cuda([bench.python, "-B", script, *extra], {**environment, "TEST_ALLOCATOR": name}, accept=(0, 1))
            lines = bench.last_errors.strip().splitlines()
            said[name] = lines[-1] if lines else "said nothing"
            wrong[name] = [line.split()[1] for line in lines if line.startswith(("FAIL:", "ERROR:"))]
            if bench.last_code != 0 and not wrong[name]:
                raise Failure(f"{script.name} under {name} ended with 1\n" + "\n".join(lines[-30:]))
            if not wrong["berth"]:
                return passed(said["berth"])
            tail = tail or lines[-60:]
        ours = [case for case in wrong["berth"] if case not in wrong["native"]]
        text = f"under berth: {said['berth']}; under PyTorch's own: {said['native']}"
        if ours:
            return failed(f"{', '.join(ours)}; {text}", wrong=wrong, tail=tail)
        return passed(f"{text}; not to be had on this machine under either: {', '.join(wrong['native'])}", wrong=wrong)

    return run


for topic in ("streams", "pools", "statistics", "snapshot"):
    promised.row(
        topic,
        f"tests/torch/cuda_{topic}_test.py under berth; where one fails, under PyTorch's own allocator too",
        wants=20,
        point=3 if topic == "streams" else 0,
    )(promises(topic))
promised.row("plain", "the MLP of start/train with BERTH_MEMORY=plain", wants=30, point=4)(
    trains_equally({"BERTH_MEMORY": "plain"})
)


@promised.row("plug", "libberth.so as PyTorch's pluggable allocator: losses beside the native allocator's", wants=30)
def plug(bench):
    steps = ["--steps", 4 if bench.small else 30, *size(bench)]
    ours = bench.child(
        "plug", "--library", bench.program("libberth.so"), *steps, environment={"BERTH_MODE": "learn"}, installs=True
    )
    theirs = bench.child("plug", *steps, environment={"BERTH_MODE": "off"})
    return decided(
        bench,
        ours["losses_hex"] == theirs["losses_hex"],
        f"{len(ours['losses_hex'])} losses of an MLP under '{ours['allocator']}'",
        losses_equal=None if bench.standin else ours["losses_hex"] == theirs["losses_hex"],
    )


# ---------------------------------------------------------------------------------------------- beyond the half hour

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
