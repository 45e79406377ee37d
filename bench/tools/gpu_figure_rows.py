"""Rows of bench/gpu: numerics, step time, step programs, and patterns in memory over a while."""

import json
import statistics
import time

from gpu_rows import ALLOCATORS, Group, decided, failed, measured, misses, passed, ran, size
from training import Failure, mebibytes

NATIVE = ("caching", "expandable", "berth learn")

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
