"""bench/demo: one table that shows what berth changes, from training two real models on real data.

Each model is trained under glibc, under berth learning in place, and under a plan that was recorded and made before
(berth record, berth plan, berth verify, BERTH_MODE=serve): the same steps from the same seed, so that losses must agree to
the last bit. Runs take turns, so that a slow moment of the machine meets all of them.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from training import Failure, Training, note  # noqa: E402

MODELS = {
    "gpt": "4-layer GPT on the characters of six novels",
    "resnet18": "ResNet-18 on the UCI digits",
}
SMOKE_MODELS = ["mlp"]


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="bench/demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=[*MODELS, "all"], default="all", help="default: all")
    parser.add_argument("--steps", type=int, help="measured steps a run (default: 10)")
    parser.add_argument("--warmup", type=int, help="steps before them (default: 6)")
    parser.add_argument("--rounds", type=int, help="runs of each kind (default: 2)")
    parser.add_argument("--threads", type=int, help="of libtorch (default: one a core)")
    parser.add_argument("--time-limit", type=float, default=10, help="seconds for berth plan (default: %(default)s)")
    parser.add_argument("--data", type=pathlib.Path, default=training.ROOT / "build/data", help="folder of the inputs")
    parser.add_argument("--smoke", action="store_true", help="the smallest form: a small model, few steps; for tests")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument(
        "--build-dir",
        type=pathlib.Path,
        default=training.ROOT / "build/release",
        help="use this build; implies --no-build",
    )
    parser.add_argument("--no-build", action="store_true", help="no set-up, no build: take what is there")
    arguments = parser.parse_args(argv)
    for name, usual, smoke in (("steps", 10, 4), ("warmup", 6, 8), ("rounds", 2, 1)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, smoke if arguments.smoke else usual)
        if getattr(arguments, name) < (0 if name == "warmup" else 1):
            parser.error(f"--{name} is {getattr(arguments, name)}: it must be positive")
    # One thread: two of them wait for each other in busy loops where tests run side by side.
    if arguments.smoke and arguments.threads is None:
        arguments.threads = 1
    for name in ("build_dir", "data"):
        setattr(arguments, name, getattr(arguments, name).resolve())
    for file in ("digits.csv", "text.txt"):
        if not (arguments.data / file).is_file():
            raise Failure(f"{arguments.data / file} is missing: cmake/setup puts it into build/data")
    return arguments


def measure(model, arguments, folder):
    """All runs of one model: its part of the JSON object."""
    problem = Training(arguments.build_dir, model, arguments.steps, arguments.warmup, arguments.data, arguments.threads)
    total, done, start = 1 + 3 * arguments.rounds, 0, time.monotonic()

    def progress(what):
        nonlocal done
        done += 1
        note(f"demo: {model}: {done}/{total} {what} ({time.monotonic() - start:.0f} s)")

    progress("berth record, plan, verify")
    plan, said, recorded = problem.record_and_plan(folder, arguments.time_limit)
    environments = {
        "glibc": {"BERTH_MODE": "off"},
        "berth learn": {"BERTH_MODE": "learn"},
        "berth serve": {"BERTH_MODE": "serve", "BERTH_PLAN": str(plan)},
    }
    runs = {name: [] for name in environments}
    for round_number in range(arguments.rounds):
        for name, environment in environments.items():
            progress(f"{name}, round {round_number + 1}")
            runs[name].append(problem.run(environment))
    everything = [recorded, *(result for results in runs.values() for result in results)]
    answer = {
        "model": model,
        "description": runs["glibc"][0].get("description", model),
        "plan": said,
        "losses_agree": training.losses_agree(everything),
        "losses_compared": len(runs["glibc"][0]["losses_hex"]),
        "allocators": {},
    }
    for name, results in runs.items():
        last = results[-1]
        stats = last["stats"] or {}
        answer["allocators"][name] = {
            **training.summary(results),
            "speed_over_glibc": statistics.median(training.paired_ratios(results, runs["glibc"])),
            "counts": last["counts"],
            "arena_bytes": stats.get("arena"),
            "arena_bound_bytes": stats.get("arena_bound"),
            "losses_agree": training.losses_agree([runs["glibc"][0], *results]),
        }
    return answer


def text_table(answers):
    header = ["", "step", "spread", "speed", "page faults", "peak memory", "arena / bound", "hits", "misses", "losses"]
    parts = []
    for answer in answers:
        rows = []
        for name, one in answer["allocators"].items():
            time_ms, counts = one["step_ms"], one["counts"]
            planned = one["arena_bytes"] and one["arena_bound_bytes"]
            arena = (
                f"{training.mebibytes(one['arena_bytes'])} / {one['arena_bytes'] / one['arena_bound_bytes']:.3f}"
                if planned
                else "-"
            )
            rows.append(
                [
                    name,
                    f"{time_ms['median']:.1f} ms",
                    f"{time_ms['p25']:.1f}..{time_ms['p75']:.1f}",
                    f"{one['speed_over_glibc']:.2f}x",
                    f"{one['minor_faults_per_step']:,.0f}",
                    training.mebibytes(one["peak_rss_bytes"]),
                    arena,
                    f"{counts['hits']:,.0f}" if counts else "-",
                    f"{counts['misses'] + counts['unplanned']:,.1f}" if counts else "-",
                    "equal" if one["losses_agree"] else "DIFFER",
                ]
            )
        parts.append(answer["description"] + "\n\n" + training.table(header, rows))
    parts.append(
        "step: median of the measured steps, spread: its quartiles; page faults, hits and misses are those of one step;\n"
        "speed: glibc's time over its own, in the same round; losses: all bits of the loss of every step, beside glibc's."
    )
    return "\n\n".join(parts)


def main(argv):
    arguments = parse(argv)
    models = (
        SMOKE_MODELS
        if arguments.smoke and arguments.model == "all"
        else list(MODELS)
        if arguments.model == "all"
        else [arguments.model]
    )
    with tempfile.TemporaryDirectory() as folder:
        answers = [measure(model, arguments, pathlib.Path(folder)) for model in models]
    if arguments.json:
        print(json.dumps({"machine": training.machine(), "commit": training.commit(), "models": answers}, indent=1))
    else:
        print(text_table(answers))
    if not all(answer["losses_agree"] for answer in answers):
        raise Failure("losses differ between allocators: this must never be; please report it")
    return 0


if __name__ == "__main__":
    training.run_main("demo", main)
