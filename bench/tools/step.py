"""bench/step: training steps by schedules, beside the step as written: memory, time and losses for each planner and budget.

Each model is trained as written, with torch.utils.checkpoint around its blocks, and by step programs, all in one process: every turn each of
them takes a step, so that times are paired. The C++ programs of bench/train are processes, in turns. Memory is what a step holds beside what is
there between steps, as libtorch's allocator counts it; "predicted" is the same by the program. A budget of 60 % is that share of what the step as
written holds so. Runs on the CPU, on the stand-in's launcher, since torch wants NVIDIA's libraries. Needs a quiet machine, and there some four
minutes a model.
Writes NAME.md and NAME.svg.
"""

import json
import math
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import step_cpp  # noqa: E402
import training  # noqa: E402
from python_programs import launcher  # noqa: E402
from training import Failure, note  # noqa: E402

HERE = pathlib.Path(__file__).parent
sys.path.insert(1, str(HERE / "step_children"))
import rows  # noqa: E402

COPY_RATE = 4_000_000_000  # bytes a second, of the C++ programs
MODELS = ["gpt", "resnet18", "vit", "lstm", "unet", "bert", *step_cpp.MODELS]
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 480, 260, 50, 30, 110, 40
LEAST = 0.7  # time, of eager, where the pictures begin


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def child(script, arguments, *words):
    """What a script of step_children says to these words."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.json"
        command, environment = launcher(arguments)
        environment["PYTHONPATH"] += f":{HERE / 'python_children'}"
        training.run([*command, HERE / "step_children" / script, *words, path], environment, show=True)
        return json.loads(path.read_text())


def measure(model, arguments):
    """One answer of the child a round."""
    note(f"step: {model}: planning")
    if model not in step_cpp.MODELS:
        return child("step.py", arguments, model, arguments.steps, arguments.rounds)
    program = step_cpp.Program(model, arguments, rows.rows(), COPY_RATE)
    answers = []
    for turn in range(arguments.rounds):
        note(f"step: {model}: round {turn + 1}/{arguments.rounds}")
        answers.append(program.round(turn))
    return answers


def rows_of(answers):
    """By label: what all rounds say of it together."""
    found = []
    for k, first in enumerate(answers[0]["runs"]):
        runs = [answer["runs"][k] for answer in answers]
        plain = [answer["runs"][0] for answer in answers]
        losses = [answer["runs"][0]["losses"] for answer in answers]
        row = {"label": first["label"], "peak": first["peak"], "activations": answers[0]["activations"],
               "ms": [statistics.median(run["ms"]) for run in runs],
               "over_eager": [statistics.median(b / a for a, b in zip(base["ms"], run["ms"])) for base, run in zip(plain, runs)],
               "equal": all(run["losses"][:n] == base[:n] for run, base in zip(runs, losses) for n in [min(len(run["losses"]), len(base))])}
        if program := first.get("program"):
            row["predicted"] = program["predicted_peak"] - program["resident"]
            row["again"], row["operators"] = program["runs_again"], program["operators"]
            row["predicted_time"] = program["predicted_ns"] / program["recorded_ns"]
            row["ghost"] = [(run["program"]["step_ns"] - run["program"]["schedule_ns"]) / 1e6 / statistics.median(base["ms"])
                            for run, base in zip(runs, plain)]
            row["remark"] = program["last_refusal"] if program["scheduled"] == 0 else "not met" if program["budget_not_met"] else ""
            row["copied"] = program["copied_out"]
        found.append(row)
    return found


def table_of(rows):
    mib = lambda one: f"{one / 2**20:.1f}"  # noqa: E731
    lines = []
    for row in rows:
        program = "predicted" in row
        lines.append([row["label"], mib(row["peak"]), f"{100 * row['peak'] / row['activations']:.1f}", f"{row['predicted'] - row['peak']:+,}" if program else "",
                      str(row["again"]) if program else "", mib(row["copied"]) if row.get("copied") else "",
                      spread(row["ms"], 1), spread(row["over_eager"]),
                      f"{row['predicted_time']:.2f}" if program else "", spread(row["ghost"]) if program else "", "yes" if row["equal"] else "NO",
                      row.get("remark", "")])
    return training.table(["run", "peak, MiB", "of eager, %", "predicted - peak, bytes", "run again", "copied, MiB", "step, ms", "over eager",
                           "predicted", "ghost, of eager", "equal", ""], lines)


# By what a row's label begins with: color, and the marker as a path around its place.
ROUND, SQUARE, DIAMOND, TRIANGLE = ("M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0", "M-3.2,-3.2h6.4v6.4h-6.4z", "M0,-4.5l4.5,4.5l-4.5,4.5l-4.5,-4.5z",
                                    "M0,-4.5l4.4,7.6h-8.8z")
MARKERS = {"eager": ("#111", ROUND), "checkpoint": ("#c60", TRIANGLE), "release": ("#888", ROUND), "olla": ("#0a8", SQUARE), "chen": ("#a3a", DIAMOND),
           "checkmate": ("#a52", SQUARE), "knapsack": ("#d48", TRIANGLE), "monet": ("#393", DIAMOND), "vdnn": ("#c22", SQUARE), "dymem": ("#c22", DIAMOND),
           "berth with copies": ("#06c", TRIANGLE), "berth": ("#06c", ROUND)}


def engine_of(label):
    return next(name for name in MARKERS if label.startswith(name))


def marker(x, y, engine, label=""):
    color, path = MARKERS[engine]
    return f'<path transform="translate({x:.1f},{y:.1f})" d="{path}" fill="{color}" fill-opacity="0.75" stroke="{color}"><title>{label}</title></path>'


def panel(model, rows):
    """Peak over time: what lies further left and lower is better. A line joins what berth takes within budgets."""
    points = [(row["peak"] / row["activations"], statistics.median(row["over_eager"]), row["label"]) for row in rows if not row.get("remark")]
    least, most = min(LEAST, *(y for _, y, _ in points)), max(1.3, *(y * 1.05 for _, y, _ in points))
    at = lambda x, y: (LEFT + x / 1.1 * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - (y - least) / (most - least) * (HEIGHT - TOP - BOTTOM))  # noqa: E731
    parts = [f'<text x="{LEFT}" y="18" fill="#111">{model}</text>']
    for x in (0, 0.2, 0.4, 0.6, 0.8, 1):
        (left, bottom), (_, top) = at(x, least), at(x, most)
        parts += [f'<line x1="{left:.1f}" y1="{bottom:.1f}" x2="{left:.1f}" y2="{top:.1f}" stroke="#ddd"/>',
                  f'<text x="{left:.1f}" y="{bottom + 16:.1f}" text-anchor="middle" fill="#444">{x:g}</text>']
    for y in (step / 10 for step in range(math.ceil(10 * least), int(most * 10) + 1)):
        (left, height), (right, _) = at(0, y), at(1.1, y)
        parts += [f'<line x1="{left:.1f}" y1="{height:.1f}" x2="{right:.1f}" y2="{height:.1f}" stroke="#ddd"/>',
                  f'<text x="{left - 6:.1f}" y="{height + 4:.1f}" text-anchor="end" fill="#444">{y:g}</text>']
    front = sorted(at(x, y) for x, y, label in points if label == "olla" or label.startswith(("berth, 8", "berth, 6", "berth, 4", "berth, least")))
    parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in front)}" fill="none" stroke="#06c" stroke-opacity="0.5"/>')
    parts += [marker(*at(x, y), engine_of(label), label) for x, y, label in points]
    return parts


def picture(models):
    panels = []
    for k, (model, rows) in enumerate(models.items()):
        panels += [f'<g transform="translate({k % 2 * WIDTH},{k // 2 * HEIGHT})">', *panel(model, rows), "</g>"]
    height = (len(models) + 1) // 2 * HEIGHT
    legend = [f'<text x="{LEFT}" y="{height + 8}" fill="#444">across: memory of the step, of eager; up: time of the step, of eager; '
              "what meets its budget</text>"]
    for k, name in enumerate(MARKERS):
        x, y = LEFT + k % 6 * 150, height + 30 + k // 6 * 20
        legend += [marker(x, y, name), f'<text x="{x + 10}" y="{y + 4}" fill="#111">{name}</text>']
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {height + 66}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{2 * WIDTH}" height="{height + 66}" fill="#fff"/>', *panels, *legend, "</svg>"]) + "\n"


def main(argv):
    report = peers.Report("step", __doc__, limit=None)
    add = report.parser.add_argument
    add("--model", action="append", choices=MODELS, help=f"may be repeated (default: {', '.join(MODELS)})")
    add("--steps", type=int, default=20, help="measured steps a run (default: %(default)s)")
    add("--rounds", type=int, default=3, help="default: %(default)s")
    add("--data", type=pathlib.Path, default=training.ROOT / "build/data", help="of bench/train: cmake/setup fetches it")
    add("--threads", type=int, default=2, help="of torch (default: %(default)s)")
    arguments = report.parser.parse_args(argv)
    if arguments.smoke:
        arguments.model, arguments.steps, arguments.rounds, arguments.threads = ["lstm"], 2, 1, 1
    arguments.build_dir = arguments.build_dir.resolve()
    models = {model: rows_of(measure(model, arguments)) for model in arguments.model or MODELS}
    report.keep_text(argv, arguments, "\n\n".join([
        "Medians over rounds of paired ratios, with the least and the most. `over eager`: time of the step; `predicted`: the same by the times of the "
        "record; `ghost`: the body without kernels and the checks. `olla` orders alone; what `with copies` copies goes to plain "
        "memory, at half the rate of this machine's memory (of C++ programs at 4 GB a second).",
        *(f"**{model}**, {rows[2].get('operators', 0)} operators\n\n{table_of(rows)}" for model, rows in models.items())]))
    if not arguments.smoke:
        arguments.output.with_suffix(".svg").write_text(picture(models))
    wrong = [f"{model}, {row['label']}" for model, rows in models.items() for row in rows if not row["equal"]]
    if wrong:
        raise Failure(f"losses differ from those of the step as written: {'; '.join(wrong)}")
    return 0


if __name__ == "__main__":
    training.run_main("step", main)
