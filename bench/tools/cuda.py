"""bench/cuda: berth beside libtorch's own CUDA allocators, on the stand-in runtime (no GPU) or, with --gpu, on the GPU that is there.

Memory: each model trains under the caching allocator, the same with expandable segments, berth's pool (while it records), berth serving the
plan of that recording and berth learning in place. Peaks are over the whole process, the first steps and the switch included; the ratio is to the
largest sum of requests rounded to 512 bytes. Memory calls are cudaMalloc, cudaFree and cuMem* in the measured steps.
Time: bench/cuda_latency, one allocation and its free, in paired runs of the caching allocator and berth learning. On the stand-in
the driver costs nothing, which favours neither: both are measured after their last call of it. Also of requests in an order that changes, which no
plan knows, with the slowest in a thousand.
Start: what installing berth and loading a plan of 10,000 slots adds, in new processes. Writes NAME.json and NAME.md.
"""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from training import Failure, Report, note, run  # noqa: E402


def launcher(arguments):
    return [] if arguments.gpu else [arguments.build_dir / "standin/berth-standin"]


def train(model, arguments, folder, environment):
    path = folder / "run.json"
    program = arguments.build_dir / "bench/train/train_cuda"
    if not program.is_file():
        raise Failure(f"{program} is missing: it needs a libtorch for CUDA and CUDA's headers (cmake/setup)")
    run(
        [
            *launcher(arguments),
            program,
            "--device",
            "cuda",
            "--model",
            model,
            "--data",
            arguments.data,
            "--steps",
            arguments.steps,
            "--warmup",
            arguments.warmup,
            "--threads",
            arguments.threads or 1,
            "--quiet",
            "--json",
            path,
            *training.settling(environment),
            *(["--batch", arguments.batch] if arguments.batch else []),
        ],
        environment,
    )
    return json.loads(path.read_text())


def measure(model, arguments, folder):
    trace, plan = folder / "run.trace", folder / "run.plan"
    settings = {
        "caching": {"BERTH_MODE": "off"},
        "expandable": {"BERTH_MODE": "off", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        "berth pool": {"BERTH_MODE": "record", "BERTH_TRACE": str(trace)},
        "berth serve": {"BERTH_MODE": "serve", "BERTH_PLAN": str(plan)},
        "berth learn": {"BERTH_MODE": "learn"},
    }
    answer = {"model": model, "allocators": {}}
    for name, environment in settings.items():
        result = train(model, arguments, folder, environment)
        answer["description"] = result["description"]
        stats, before = result["stats"] or {}, result["stats_after_warmup"] or {}
        answer["allocators"][name] = {
            **result["memory"],
            "ratio": result["memory"]["reserved_peak_bytes"] / result["memory"]["allocated_peak_bytes"],
            "hits_per_step": (stats["hits"] - before["hits"]) / len(result["steps"]) if stats else None,
            "requests_per_step": (stats["requests"] - before["requests"]) / len(result["steps"]) if stats else None,
            "arena_bytes": stats.get("arena"),
            "arena_bound_bytes": stats.get("arena_bound"),
        }
        note(f"cuda: {model}: {name}: {training.mebibytes(result['memory']['reserved_peak_bytes'])} reserved")
        if name == "berth pool":
            run([training.program(arguments.build_dir, "berth"), "plan", trace, "-o", plan])
    return answer


def section(answer):
    rows = []
    for name, one in answer["allocators"].items():
        planned = one["arena_bytes"]
        rows.append(
            [
                name,
                training.mebibytes(one["allocated_peak_bytes"]),
                training.mebibytes(one["reserved_peak_bytes"]),
                f"{one['ratio']:.3f}",
                f"{one['memory_calls']}",
                f"{planned / one['arena_bound_bytes']:.3f}" if planned else "",
                f"{one['hits_per_step']:.0f} of {one['requests_per_step']:.0f}" if planned else "",
            ]
        )
    return f"**{answer['model']}**: {answer['description']}\n\n" + training.table(
        ["allocator", "live", "reserved", "reserved / live", "memory calls", "arena / bound", "hits a step"], rows
    )


def latency(arguments, threads):
    program, times = arguments.build_dir / "bench/cuda_latency", {"caching": [], "berth": []}
    modes = {"caching": "off", "berth": "learn"}
    for turn in range(arguments.rounds):
        for name in list(modes)[:: 1 if turn % 2 == 0 else -1]:
            said = run(
                [*launcher(arguments), program, "--threads", threads, "--steps", 20 if arguments.smoke else 200],
                {"BERTH_MODE": modes[name]},
            )
            times[name].append(json.loads(said)["median_ns" if threads == 1 else "mean_ns"])
    ratios = [ours / theirs for ours, theirs in zip(times["berth"], times["caching"])]
    return {
        "threads": threads,
        "caching_ns": statistics.median(times["caching"]),
        "berth_ns": statistics.median(times["berth"]),
        "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
    }


def unplanned(arguments):
    """The same where the order of the requests changes every step: each allocator's median, and the 99.9th percentile of single pairs."""
    program, modes = arguments.build_dir / "bench/cuda_latency", {"caching": "off", "berth": "learn"}
    found = {name: {"median_ns": [], "p999_ns": []} for name in modes}
    for turn in range(arguments.rounds):
        for name in list(modes)[:: 1 if turn % 2 == 0 else -1]:
            for what, extra in (("median_ns", []), ("p999_ns", ["--each"])):
                said = run(
                    [*launcher(arguments), program, "--vary", *extra, "--steps", 20 if arguments.smoke else 200],
                    {"BERTH_MODE": modes[name]},
                )
                found[name][what].append(json.loads(said)[what])
    return {name: {what: statistics.median(values) for what, values in one.items()} for name, one in found.items()}


def startup(arguments):
    """What installing berth and loading a plan of many slots adds to the first request, in paired runs of new processes."""
    program, requests = arguments.build_dir / "bench/cuda_latency", 500 if arguments.smoke else 10000
    with tempfile.TemporaryDirectory() as folder:
        trace, plan = pathlib.Path(folder) / "run.trace", pathlib.Path(folder) / "run.plan"
        command = [*launcher(arguments), program, "--requests", requests, "--steps", 1]
        run([*command, "--warmup", 5], {"BERTH_MODE": "record", "BERTH_TRACE": str(trace)})
        said = json.loads(
            run(
                [training.program(arguments.build_dir, "berth"), "plan", trace, "-o", plan, "--time-limit", 2, "--json"]
            )
        )
        modes = {"caching": {"BERTH_MODE": "off"}, "berth": {"BERTH_MODE": "serve", "BERTH_PLAN": str(plan)}}
        times = {name: [] for name in modes}
        for turn in range(arguments.rounds):
            for name in list(modes)[:: 1 if turn % 2 == 0 else -1]:
                times[name].append(json.loads(run([*command, "--warmup", 0], modes[name]))["start_ms"])
    added = [ours - theirs for ours, theirs in zip(times["berth"], times["caching"])]
    return {
        "slots": said["buffers"],
        "caching_ms": statistics.median(times["caching"]),
        "berth_ms": statistics.median(times["berth"]),
        "added_ms": {"median": statistics.median(added), "min": min(added), "max": max(added)},
    }


def main(argv):
    report = Report("cuda", __doc__, ["gpt", "resnet18", "lstm", "mlp"], steps=10, warmup=10, rounds=7, output="cuda")
    report.parser.add_argument("--gpu", action="store_true", help="on a real GPU, without the stand-in")
    arguments = report.parse(argv)
    if arguments.smoke:
        arguments.warmup = 8
    latencies = [latency(arguments, threads) for threads in ((1,) if arguments.smoke else (1, 2, 4))]
    start = startup(arguments)
    without = unplanned(arguments)
    rows = [
        [
            f"{one['threads']}",
            f"{one['caching_ns']:.0f}",
            f"{one['berth_ns']:.0f}",
            "{median:.3f} ({min:.3f}..{max:.3f})".format(**one["ratio"]),
        ]
        for one in latencies
    ]
    times = (
        "**Allocate + free**, ns, each thread on a stream of its own; of several threads the mean, with their waiting\n\n"
        + training.table(["threads", "caching", "berth", "berth / caching"], rows)
    )
    times += (
        "\n\n**Without a plan**, the same requests in another order each step: median of a pair {:.0f} ns under berth beside {:.0f}, one in a "
        "thousand above {:.0f} beside {:.0f} (medians; the second with the clock's own cost)".format(
            *(without[name][what] for what in ("median_ns", "p999_ns") for name in ("berth", "caching"))
        )
    )
    times += (
        "\n\n**Start**: installing berth and loading a plan of {slots:,} slots takes {median:.1f} ms ({min:.1f}..{max:.1f}) more up to the first "
        "request: {berth_ms:.1f} ms beside {caching_ms:.1f}".format(**start, **start["added_ms"])
    )
    first = [True]

    def section_with_times(answer):
        text = (times + "\n\n" if first[0] else "") + section(answer)
        first[0] = False
        return text

    def measure_with_times(model, given, folder):
        return {**measure(model, given, folder), "latencies": latencies, "unplanned": without, "start": start}

    report.make(arguments, argv, measure_with_times, section_with_times)
    return 0


if __name__ == "__main__":
    training.run_main("cuda", main)
