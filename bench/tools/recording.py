"""bench/recording: what recording adds to the time of a training step, in paired runs.

Every round trains the same steps three times, in an order that changes from round to round: served by berth's pool without recording,
recording requests, and recording operators too. The run without recording has a plan of another program and marks no steps, so that all
goes to the pool as it does while recording. Ratios are taken within a round. Needs a quiet machine. Writes NAME.json and NAME.md.
"""

import argparse
import datetime
import json
import pathlib
import shlex
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from training import Failure, Training, note  # noqa: E402


def measure(model, arguments, folder):
    other, _, _ = Training(arguments.build_dir, "mlp" if model != "mlp" else "lstm", 2, 0, arguments.data, 1, 8).record_and_plan(folder, 1)
    problem = Training(arguments.build_dir, model, arguments.steps, arguments.warmup, arguments.data, arguments.threads, arguments.batch)
    unmarked = Training(arguments.build_dir, model, arguments.steps, arguments.warmup, arguments.data, arguments.threads, arguments.batch)
    unmarked.arguments.append("--no-mark")
    trace = {"BERTH_MODE": "record", "BERTH_TRACE": str(folder / "run.trace")}
    settings = {
        "pool, not recorded": {"BERTH_MODE": "serve", "BERTH_PLAN": str(other)},
        "requests": trace,
        "requests and operators": {**trace, "BERTH_RECORD": "operators"},
    }
    runs, names = {name: [] for name in settings}, list(settings)
    for turn in range(arguments.rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            runs[name].append((unmarked if name == names[0] else problem).run(settings[name]))
            note(f"recording: {model}: round {turn + 1}/{arguments.rounds}: {name}: {statistics.median(training.step_times(runs[name][-1:])):.1f} ms")
    if any(result["stats"]["hits"] for result in runs["pool, not recorded"]):
        raise Failure("the plan of another program served requests: the baseline is none")
    if not training.losses_agree([result for results in runs.values() for result in results]):
        raise Failure("losses differ between runs")
    answer = {"model": model, "description": runs[names[0]][0].get("description", model), "recorded": {}}
    for name, results in runs.items():
        # baseline over this one; its inverse is how much longer the step takes
        ratios = [1 / ratio for ratio in training.paired_ratios(results, runs[names[0]])]
        answer["recorded"][name] = {**training.summary(results), "time_over_pool": {
            "median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}}
    return answer


def markdown(report):
    parts = [f"Commit {report['commit']}, {report['date']}, {report['machine']['cpu']}, {report['machine']['cores']} cores, "
             f"{report['machine']['memory_bytes'] / 2**30:.0f} GiB, {report['machine']['libc']}; `{report['command']}`"]
    for answer in report["models"]:
        rows = [[name, f"{one['step_ms']['median']:.1f}", f"{one['step_ms']['p25']:.1f}..{one['step_ms']['p75']:.1f}",
                 "{median:.3f} ({min:.3f}..{max:.3f})".format(**one["time_over_pool"])] for name, one in answer["recorded"].items()]
        parts.append(f"**{answer['model']}**: {answer['description']}\n\n" + training.table(["recorded", "step, ms", "quartiles", "time over pool"], rows))
    return "\n\n".join(parts) + "\n"


def main(argv):
    parser = argparse.ArgumentParser(prog="bench/recording", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="may be repeated (default: gpt)")
    parser.add_argument("--steps", type=int, default=20, help="measured steps a run (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="of libtorch (default: one a core)")
    parser.add_argument("--batch", type=int, help="samples a step (default: the model's own)")
    parser.add_argument("--data", type=pathlib.Path, default=training.ROOT / "build/data")
    parser.add_argument("--build-dir", type=pathlib.Path, default=training.ROOT / "build/release")
    parser.add_argument("--output", type=pathlib.Path, default=training.ROOT / "bench/results/recording", help="without suffix")
    parser.add_argument("--smoke", action="store_true", help="the smallest form, for tests: writes nothing but --output where given")
    arguments = parser.parse_args(argv)
    if arguments.smoke:
        arguments.model, arguments.steps, arguments.warmup, arguments.rounds = ["mlp"], 2, 1, 1
        arguments.threads, arguments.batch = 1, 64
    arguments.build_dir, arguments.data = arguments.build_dir.resolve(), arguments.data.resolve()
    with tempfile.TemporaryDirectory() as folder:
        models = [measure(model, arguments, pathlib.Path(folder)) for model in arguments.model or ["gpt"]]
    report = {"command": shlex.join(["bench/recording", *argv]), "commit": training.commit(), "date": datetime.date.today().isoformat(),
              "machine": training.machine(), "models": models}
    text = markdown(report)
    if not arguments.smoke or "--output" in argv:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        arguments.output.with_suffix(".md").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        sys.exit(f"recording: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
