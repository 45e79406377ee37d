"""bench/allocators: step time, page faults and peak memory of training under each allocator, paired in one run.

Every round runs each allocator once, in an order that changes from round to round; ratios are taken within a round. The
program is the same binary for all: others are preloaded or set by their environment variables, with BERTH_MODE=off.
"processor" is that of the thread that trains, in a step. User and system time and peak memory are those of whole runs;
one that learns makes a step or two more.
Needs a quiet machine. Writes NAME.json and NAME.md.
"""

import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from training import Failure, Report, Training, note  # noqa: E402

# glibc caps the threshold at 32 MiB and ignores larger values; so one more form never maps at all.
RAISED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
UNMAPPED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_TOP_PAD_": str(64 << 20)}
PRELOADED = {
    "jemalloc": r"libjemalloc\.so\.2",
    "tcmalloc": r"libtcmalloc_minimal\.so\.4",
    "mimalloc": r"libmimalloc\.so\.[23]",
}
OTHERS = ["glibc", "glibc, raised thresholds", "glibc, no mapping", *PRELOADED]


def library(pattern):
    """The path of an installed shared library, or None."""
    for loader in ("ldconfig", "/sbin/ldconfig"):
        try:
            cache = subprocess.run([loader, "-p"], capture_output=True, text=True).stdout
        except FileNotFoundError:
            continue
        match = re.search(rf"^\s*{pattern}[.\d]* .*=> (\S+)$", cache, re.MULTILINE)
        return match.group(1) if match else None
    return None


def environments(plan, only):
    """Allocator -> environment; those that are not installed are named and left out."""
    found = {
        "glibc": {},
        "glibc, raised thresholds": RAISED,
        "glibc, no mapping": UNMAPPED,
    }
    for name, pattern in PRELOADED.items():
        path = library(pattern)
        if path:
            found[name] = {"LD_PRELOAD": path}
        else:
            note(f"allocators: {name} is not installed and is left out; cmake/setup installs it")
    found = {name: {"BERTH_MODE": "off", **extra} for name, extra in found.items()}
    # A folder without plans: the pool serves all, and nothing is recorded.
    empty = plan.parent / "no-plans"
    empty.mkdir(exist_ok=True)
    found["berth, no plan"] = {"BERTH_MODE": "serve", "BERTH_PLAN": f"{empty}/"}
    found["berth learn"] = {"BERTH_MODE": "learn"}
    found["berth serve"] = {"BERTH_MODE": "serve", "BERTH_PLAN": str(plan)}
    return {name: extra for name, extra in found.items() if not only or name in only or name == "glibc"}


def measure(model, arguments, folder):
    problem = Training(
        arguments.build_dir,
        model,
        arguments.steps,
        arguments.warmup,
        arguments.data,
        arguments.threads,
        arguments.batch,
    )
    note(f"allocators: {model}: record and plan")
    plan, said, _ = problem.record_and_plan(folder, arguments.time_limit)
    settings = environments(plan, arguments.only)
    runs = {name: [] for name in settings}
    names, start = list(settings), time.monotonic()
    for turn in range(arguments.rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            result = problem.run(settings[name])
            runs[name].append(result)
            note(
                f"allocators: {model}: round {turn + 1}/{arguments.rounds}: {name}: "
                f"{statistics.median(training.step_times([result])):.1f} ms ({time.monotonic() - start:.0f} s)"
            )
    others = [name for name in OTHERS if name in runs]
    best = min(others, key=lambda name: training.summary(runs[name])["step_ms"]["median"])
    answer = {
        "model": model,
        "description": runs["glibc"][0].get("description", model),
        "plan": said,
        "best_other": best,
        "losses_agree": training.losses_agree([r for results in runs.values() for r in results]),
        "allocators": {},
    }
    for name, results in runs.items():
        ratios = {
            "glibc": training.paired_ratios(results, runs["glibc"]),
            "best_other": training.paired_ratios(results, runs[best]),
        }
        answer["allocators"][name] = {
            **training.summary(results),
            "median_step_ms_by_round": [statistics.median(training.step_times([r])) for r in results],
            "speed_over": {
                key: {"median": statistics.median(value), "min": min(value), "max": max(value)}
                for key, value in ratios.items()
            },
            "counts": results[-1]["counts"],
            "arena_bytes": (results[-1]["stats"] or {}).get("arena"),
            "arena_bound_bytes": (results[-1]["stats"] or {}).get("arena_bound"),
        }
    return answer


def section(answer):
    rows = []
    for name, one in answer["allocators"].items():
        time_ms, over, best = one["step_ms"], one["speed_over"]["glibc"], one["speed_over"]["best_other"]
        rows.append(
            [
                name,
                f"{time_ms['median']:.1f}",
                f"{time_ms['p25']:.1f}..{time_ms['p75']:.1f}",
                f"{over['median']:.3f} ({over['min']:.3f}..{over['max']:.3f})",
                f"{best['median']:.3f} ({best['min']:.3f}..{best['max']:.3f})",
                f"{one['minor_faults_per_step']:,.0f}",
                training.mebibytes(one["peak_rss_bytes"]),
                f"{one['thread_ms_per_step']:.1f}",
                f"{one['user_seconds']:.2f}",
                f"{one['system_seconds']:.2f}",
            ]
        )
    losses = "losses of all runs equal to the last bit" if answer["losses_agree"] else "LOSSES DIFFER"
    return (
        f"**{answer['model']}**: {answer['description']}; best other: {answer['best_other']}; {losses}\n\n"
        + training.table(
            [
                "allocator",
                "step, ms",
                "quartiles",
                "speed over glibc",
                "speed over best other",
                "faults a step",
                "peak memory",
                "processor, ms",
                "user, s",
                "system, s",
            ],
            rows,
        )
    )


def main(argv):
    report = Report("allocators", __doc__, ["gpt", "resnet18"], steps=10, warmup=6, rounds=5, output="cpu-allocators")
    report.parser.add_argument(
        "--only", action="append", help="an allocator of the table; may be repeated; glibc always runs"
    )
    report.parser.add_argument(
        "--time-limit", type=float, default=10, help="seconds for berth plan (default: %(default)s)"
    )
    arguments = report.parse(argv)
    known = [*OTHERS, "berth, no plan", "berth learn", "berth serve"]
    for name in arguments.only or []:
        if name not in known:
            report.parser.error(f"--only '{name}': the allocators are {', '.join(known)}")
    answers = report.make(arguments, argv, measure, section)
    if not all(answer["losses_agree"] for answer in answers):
        raise Failure("losses differ between allocators")
    return 0


if __name__ == "__main__":
    training.run_main("allocators", main)
