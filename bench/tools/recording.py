"""bench/recording: what recording adds to the time of a training step, in paired runs.

Every round trains the same steps three times, in an order that changes from round to round: served by berth's pool without recording,
recording requests, and recording operators too. The run without recording has a plan of another program and marks no steps, so that all
goes to the pool as it does while recording. Ratios are taken within a round. Needs a quiet machine. Writes NAME.json and NAME.md.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import training  # noqa: E402
from training import Failure, Report, Training, note  # noqa: E402


def measure(model, arguments, folder):
    other, _, _ = Training(
        arguments.build_dir, "mlp" if model != "mlp" else "lstm", 2, 0, arguments.data, 1, 8
    ).record_and_plan(folder, 1)
    problem = Training(
        arguments.build_dir,
        model,
        arguments.steps,
        arguments.warmup,
        arguments.data,
        arguments.threads,
        arguments.batch,
    )
    unmarked = Training(
        arguments.build_dir,
        model,
        arguments.steps,
        arguments.warmup,
        arguments.data,
        arguments.threads,
        arguments.batch,
    )
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
            note(
                f"recording: {model}: round {turn + 1}/{arguments.rounds}: {name}: {statistics.median(training.step_times(runs[name][-1:])):.1f} ms"
            )
    if any(result["stats"]["hits"] for result in runs["pool, not recorded"]):
        raise Failure("the plan of another program served requests: the baseline is none")
    if not training.losses_agree([result for results in runs.values() for result in results]):
        raise Failure("losses differ between runs")
    answer = {"model": model, "description": runs[names[0]][0].get("description", model), "recorded": {}}
    for name, results in runs.items():
        # baseline over this one; its inverse is how much longer the step takes
        ratios = [1 / ratio for ratio in training.paired_ratios(results, runs[names[0]])]
        answer["recorded"][name] = {
            **training.summary(results),
            "time_over_pool": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
        }
    return answer


def section(answer):
    rows = [
        [
            name,
            f"{one['step_ms']['median']:.1f}",
            f"{one['step_ms']['p25']:.1f}..{one['step_ms']['p75']:.1f}",
            "{median:.3f} ({min:.3f}..{max:.3f})".format(**one["time_over_pool"]),
        ]
        for name, one in answer["recorded"].items()
    ]
    return f"**{answer['model']}**: {answer['description']}\n\n" + training.table(
        ["recorded", "step, ms", "quartiles", "time over pool"], rows
    )


def main(argv):
    report = Report("recording", __doc__, ["gpt"], steps=20, warmup=3, rounds=6, output="recording")
    report.make(report.parse(argv), argv, measure, section)
    return 0


if __name__ == "__main__":
    training.run_main("recording", main)
