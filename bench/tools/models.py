"""bench/models: training steps of real models in full size, under libtorch's own CUDA allocators and under berth, on the stand-in (no GPU).

The networks that OLLA was measured on at batch 1 and 32, and today's: from torchvision and transformers with random weights. Each row is run once
under each allocator, a process of its own: caching (libtorch's), expandable (its expandable segments), pool (berth recording a trace), learning
(berth, planning meanwhile), serving (berth with the plan of that trace, from the first request on) and plain (learning on plain memory,
BERTH_MEMORY=plain: cudaMalloc throughout, as caching has it). Live is the largest sum of blocks rounded
to 512 bytes over the whole process, the least that any of them counted; reserved is each one's own count of what it held at most.
A run is of 12 steps, recording of 24, with a plan of 32. A step's figures are those of the last 6. Misses are requests that did not get the bytes that the plan has for them, and those that it has none for.
Memory calls are cudaMalloc, cudaFree and cuMem*; ms is what they cost the host on an H100 (csrc/device/driver_costs.h). The plan's arena and bound are those of `berth plan` for the trace.
Programs whose steps change are rows of bench/changing.

--from-traces runs no program whose trace is there, and the others only to record it: what each allocator holds is what `berth replay` of
the trace says, which takes a fifth of the time. Memory calls are all that it counts then, and nothing is served from the start.

What is done is kept in build/models, with the trace, for the programs and libraries that it was measured with: an interrupted run goes on.
torchvision comes by bench/models --setup.
"""

import argparse
import concurrent.futures
import datetime
import gzip
import hashlib
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import packages  # noqa: E402
import standin_programs  # noqa: E402
import training  # noqa: E402
from training import ROOT, Failure, note  # noqa: E402

ALLOCATORS = ["caching", "expandable", "pool", "learning", "serving", "plain"]
# By the names that `berth replay` has for them.
REPLAYED = {"caching": "caching", "expandable": "expandable", "pool": "pool", "planned": "learning"}
SMOKE = ["transformer-1"]  # which needs nothing but torch
STEPS, RECORDED_STEPS, LAST = 12, 24, 6
# Whatever a model takes: what a GPU has is another question.
MEMORY = 1 << 38
PLANNED = ("buffers", "arena_bytes", "lower_bound_bytes", "proven_optimal", "engine")
# What `berth doctor` says of a trace, and what it is of.
FORECASTS = {
    "planned_reserved_bytes": "learning",
    "pool_reserved_bytes": "pool",
    "caching_model_bytes": "caching",
    "expandable_model_bytes": "expandable",
}
# What the results depend on.
PARTS = ["berth", "berth-replay-torch", "libberth_torch_cuda.so", "libberth_torch_cuda_allocator.so", "standin"]


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.berth = training.program(arguments.build_dir, "berth")
        self.commit = training.commit()
        self.doctor = subprocess.run([self.berth, "help", "doctor"], capture_output=True, check=False).returncode == 0
        digest = hashlib.sha256(b"small" if arguments.smoke else b"full")
        files = [path for name in PARTS for path in [standin_programs.built(arguments, name)]]
        files += [packages.NETWORKS, *standin_programs.CHILDREN]
        for top in files:
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    digest.update(path.name.encode() + b"\0" + path.read_bytes())
        self.state = digest.hexdigest()[:16]

    def path(self, name):
        return self.arguments.folder / f"{name}{'.replayed' if self.arguments.from_traces else ''}.json"

    def done(self, name):
        """The row as it was measured, or None."""
        path = self.path(name)
        row = json.loads(path.read_text()) if path.is_file() else {}
        return row if row.get("state") == self.state else None

    def run(self, name, environment, *options):
        found = standin_programs.run(self.arguments, "rows", name, environment, *options, memory=MEMORY)
        if found["out_of_memory"] or found["violations"]:
            raise Failure(found["out_of_memory"] or f"{found['violations']} violations of the order of streams")
        return found

    def say(self, *command):
        return json.loads(training.run([self.berth, *command, "--json"]))

    def record(self, name, trace):
        return self.run(name, {"BERTH_MODE": "record", "BERTH_TRACE": str(trace)}, "--steps", RECORDED_STEPS)

    def measure(self, name, does):
        """Takes the row and keeps it."""
        begun = time.monotonic()
        row = {
            "row": name,
            "does": does,
            **(self.replay(name) if self.arguments.from_traces else self.measured(name)),
            "seconds": time.monotonic() - begun,
            "commit": self.commit,
            "state": self.state,
        }
        self.path(name).write_text(json.dumps(row, indent=1) + "\n")
        ratios = ", ".join(f"{one} {found['ratio']:.4f}" for one, found in row["allocators"].items())
        note(f"models: {name}: {ratios}; arena / bound {quotient(row['plan']):.4f}; {row['seconds']:.0f} s")
        return row

    def replay(self, name):
        trace = self.arguments.folder / f"{name}.trace.gz"
        with tempfile.TemporaryDirectory() as folder:
            if not trace.is_file():
                plain = pathlib.Path(folder) / "run.trace"
                self.record(name, plain)
                self.keep_trace(name, plain)
            said = self.say("plan", trace, "-o", pathlib.Path(folder) / "run.plan")
        replayed = self.say("replay", trace, "--steps", "--allocator", ",".join(REPLAYED))
        live, forecast = replayed["live_peak_bytes"], self.forecast(trace)
        return {
            "live_peak_bytes": live,
            "allocators": {
                REPLAYED[one]: replayed_digest(found, live) for one, found in replayed["allocators"].items()
            },
            "plan": {key: said[key] for key in PLANNED},
            "forecast": forecast,
        }

    def forecast(self, trace):
        said = self.say("doctor", trace) if self.doctor else {}
        return {key: said[key] for key in FORECASTS if key in said}

    def measured(self, name):
        with tempfile.TemporaryDirectory() as folder:
            trace, plan = pathlib.Path(folder) / "run.trace", pathlib.Path(folder) / "run.plan"
            short = ["--steps", STEPS]
            runs = {
                "caching": self.run(name, {}, *short),
                "expandable": self.run(name, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, *short),
                "pool": self.record(name, trace),
                "learning": self.run(
                    name, {"BERTH_MODE": "learn"}, "--settle", 10, "--pace-ms", self.arguments.pace_ms
                ),
            }
            said = self.say("plan", trace, "-o", plan)
            training.run([self.berth, "verify", plan, trace])
            plain = self.run(
                name,
                {"BERTH_MODE": "learn", "BERTH_MEMORY": "plain"},
                "--settle",
                10,
                "--pace-ms",
                self.arguments.pace_ms,
            )
            runs["serving"] = self.run(name, {"BERTH_MODE": "serve", "BERTH_PLAN": str(plan)})
            runs["plain"] = plain
            if len({runs[one]["steps"][-1]["requests"] for one in ("pool", "learning", "serving", "plain")}) != 1:
                raise Failure("its steps differ from run to run: does it read values back, which are noise here?")
            replayed, forecast = self.say("replay", trace, "--allocator", ",".join(REPLAYED)), self.forecast(trace)
            self.keep_trace(name, trace)
        live = min(one["allocated_peak_bytes"] for one in runs.values())
        learned = runs["learning"]["stats"]
        return {
            "live_peak_bytes": live,
            "allocators": {one: digest(found, live) for one, found in runs.items()},
            "plan": {key: said[key] for key in PLANNED},
            "learned": {
                "arena_bytes": learned["arena"],
                "bound_bytes": learned["arena_bound"],
                "plans": learned["plans_learned"],
            },
            "replayed_bytes": {
                REPLAYED[theirs]: one["reserved_peak_bytes"] for theirs, one in replayed["allocators"].items()
            },
            "forecast": forecast,
        }

    def keep_trace(self, name, trace):
        with (
            open(trace, "rb") as plain,
            gzip.GzipFile(self.arguments.folder / f"{name}.trace.gz", "wb", mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed)


def quotient(plan):
    return plan["arena_bytes"] / plan["lower_bound_bytes"]


def replayed_digest(found, live):
    """The same of one allocator that `berth replay` tells of."""
    last = found.get("steps", [])[-LAST:]
    mean = lambda name: sum(step[name] for step in last) / len(last) if last else 0  # noqa: E731
    return {
        "reserved_peak_bytes": found["reserved_peak_bytes"],
        "ratio": found["reserved_peak_bytes"] / live,
        "memory_calls": found["driver_calls"],
        "memory_calls_a_step": None,
        "driver_ms": found["driver_ms"],
        "requests_a_step": mean("requests"),
        "unplanned_a_step": mean("requests") - mean("hits") - mean("misses"),
        "misses_a_step": mean("misses"),
    }


def digest(found, live):
    """One run: its peaks, and a step's figures at its end."""
    last = found["steps"][-LAST:]
    mean = lambda *names: sum(step[name] for name in names for step in last) / len(last)  # noqa: E731
    return {
        "reserved_peak_bytes": found["reserved_peak_bytes"],
        "allocated_peak_bytes": found["allocated_peak_bytes"],
        "ratio": found["reserved_peak_bytes"] / live,
        "memory_calls": sum(step["memory_calls"] for step in found["steps"]),
        "memory_calls_a_step": mean("memory_calls"),
        "driver_ms": sum(step["driver_us"] for step in found["steps"]) / 1000,
        "waits_a_step": mean("waits"),
        "requests_a_step": mean("requests"),
        "unplanned_a_step": mean("unplanned"),
        "misses_a_step": mean("lent", "misses_size", "misses_busy", "misses_lane"),
    }


def allocators_of(rows):
    return [one for one in ALLOCATORS if one in rows[0]["allocators"]]


def memory_table(rows):
    allocators, forecast = allocators_of(rows), all(row["forecast"] for row in rows)
    cells = [
        [
            row["row"],
            f"{row['live_peak_bytes'] / 2**20:,.0f}",
            *(
                f"{found['reserved_peak_bytes'] / 2**20:,.0f} ({found['ratio']:.3f})"
                for found in (row["allocators"][one] for one in allocators)
            ),
            f"{quotient(row['plan']):.3f}",
            *([f"{row['forecast']['planned_reserved_bytes'] / 2**20:,.0f}"] if forecast else []),
        ]
        for row in rows
    ]
    return training.table(
        ["row", "live", *allocators, "arena / bound", *(["doctor's forecast"] if forecast else [])], cells
    )


def calls_table(rows):
    allocators, cells = allocators_of(rows), []
    planned = [one for one in allocators if one in ("learning", "serving", "plain")]
    for row in rows:
        found = row["allocators"]
        cells.append(
            [
                row["row"],
                f"{found['pool']['requests_a_step']:,.0f}",
                *(f"{found[one]['misses_a_step']:,.1f} + {found[one]['unplanned_a_step']:,.1f}" for one in planned),
                *(
                    f"{found[one]['memory_calls']:,}"
                    + (
                        ""
                        if found[one]["memory_calls_a_step"] is None
                        else f" ({found[one]['memory_calls_a_step']:,.1f})"
                    )
                    for one in allocators
                ),
                *(f"{found[one]['driver_ms']:,.1f}" for one in allocators),
            ]
        )
    return training.table(
        [
            "row",
            "requests",
            *(f"misses + unplanned: {one}" for one in planned),
            *(f"memory calls: {one}" for one in allocators),
            *(f"ms: {one}" for one in allocators),
        ],
        cells,
    )


def most_off(rows, said, measured):
    """How far what was said of each allocator is from what it held, at most, and in which row."""
    off = {
        one: max((abs(row[said][key] / row["allocators"][one]["reserved_peak_bytes"] - 1), row["row"]) for row in rows)
        for key, one in measured.items()
    }
    return (
        ", ".join(f"{100 * value:.2f} % ({one}{': ' + where if value else ''})" for one, (value, where) in off.items())
        + "."
    )


def summary(rows):
    within = lambda of, count: f"{count} of {len(of)}"  # noqa: E731
    lines = [
        f"Arena / bound is 1.000 in {within(rows, sum(round(quotient(row['plan']), 3) == 1 for row in rows))} rows."
    ]
    above = {
        one: [
            row["row"]
            for row in rows
            if row["allocators"][one]["reserved_peak_bytes"] > row["allocators"]["expandable"]["reserved_peak_bytes"]
        ]
        for one in allocators_of(rows)[2:]
        if one != "plain"
    }
    for one, names in above.items():
        mean, most = (
            how(row["allocators"][one]["ratio"] for row in rows)
            for how in (lambda values: sum(values) / len(rows), max)
        )
        lines.append(
            f"{one.capitalize()} holds no more than expandable segments in {within(rows, len(rows) - len(names))}"
            f"{' (not in ' + ', '.join(names) + ')' if names else ''}; reserved / live is {mean:.4f} on average, {most:.3f} at most."
        )
    for one, other in (("learning", "expandable"), ("serving", "expandable"), ("plain", "caching")):
        if one not in allocators_of(rows):
            continue
        pairs = [(row["allocators"][one], row["allocators"][other]) for row in rows]
        held = sum(ours["reserved_peak_bytes"] <= theirs["reserved_peak_bytes"] for ours, theirs in pairs)
        ratios = [ours["ratio"] for ours, _ in pairs]
        memory = (
            (
                f"holds no more than the caching allocator in {within(rows, held)}; reserved / live is {sum(ratios) / len(rows):.4f} on average, "
                f"{max(ratios):.3f} at most. It "
            )
            if one == "plain"
            else ""
        )
        fewer, cheaper = (
            sum(ours[what] <= theirs[what] for ours, theirs in pairs) for what in ("memory_calls", "driver_ms")
        )
        lines.append(
            f"{one.capitalize()} {memory}makes no more memory calls than {'the caching allocator' if one == 'plain' else 'expandable segments'} in "
            f"{within(rows, fewer)}, which cost no more in {within(rows, cheaper)}."
        )
    mean = {one: sum(row["allocators"][one]["ratio"] for row in rows) / len(rows) for one in ("caching", "expandable")}
    lines.append(
        f"Expandable segments are at {mean['expandable']:.4f} on average, the caching allocator at {mean['caching']:.4f}."
    )
    if "replayed_bytes" in rows[0]:
        lines.append(
            "`berth replay` of the trace alone differs from what was measured by at most "
            + most_off(rows, "replayed_bytes", {one: one for one in REPLAYED.values()})
        )
    if all(row["forecast"] for row in rows):
        lines.append(
            "`berth doctor`'s forecast from the trace alone differs from what was measured by at most "
            + most_off(rows, "forecast", FORECASTS)
        )
    return "\n".join(f"- {line}" for line in lines)


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="bench/models", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    standin_programs.add_options(add)
    add("--rows", type=int, metavar="N", help="measure at most so many rows in this call")
    add("--jobs", type=int, default=1, help="rows at a time; each takes up to 1 GiB (default: %(default)s)")
    add(
        "--from-traces",
        action="store_true",
        help="replay the rows' traces, recorded where they are not there, instead of running programs",
    )
    add("--again", action="store_true", help="measure what is done as well")
    add(
        "--pace-ms",
        type=float,
        default=30,
        help="how long a step lasts at least while berth learns (default: %(default)s)",
    )
    add(
        "--folder",
        type=pathlib.Path,
        help="where rows and traces are kept (default: build/models; of --smoke a temporary one)",
    )
    add("--output", type=pathlib.Path, default=ROOT / "bench/results/models", help="without suffix")
    add(
        "--smoke",
        action="store_true",
        help="one row in a small size, for tests: writes nothing but --output where given",
    )
    arguments = parser.parse_args(argv)
    if arguments.jobs < 1 or (arguments.rows is not None and arguments.rows < 1):
        parser.error("--jobs and --rows are 1 or more")
    arguments.build_dir = arguments.build_dir.resolve()
    return parser, arguments


def report(bench, argv, rows, failed, left):
    host, date = training.machine(), datetime.date.today().isoformat()
    # Files and folders by their names only.
    command = shlex.join(["bench/models", *(pathlib.Path(word).name if "/" in word else word for word in argv)])
    commits = sorted({row["commit"] for row in rows})
    where = f"{host['cpu']}, {host['cores']} cores, {host['memory_bytes'] / 2**30:.0f} GiB"
    text = (
        "\n\n".join(
            part
            for part in (
                f"# bench/models\n\nCommit {', '.join(commits)}, {date}, {where}; stand-in; `{command}`",
                summary(rows),
                "**Memory**, MiB: the peak that lived, what was reserved at its peak (beside live), and the plan\n\n"
                + memory_table(rows),
                "**A step**: requests, those that the plan missed and those that it has no place for; **memory calls** of the whole run (a step at its end)\n\n"
                + calls_table(rows),
                "\n".join(["What they are:", "", *(f"- {row['row']}: {row['does']}" for row in rows)]),
                f"Failed: {', '.join(failed)}." if failed else "",
                f"Not measured yet: {', '.join(left)}." if left else "",
            )
            if part
        )
        + "\n"
    )
    if not bench.arguments.smoke or "--output" in argv:
        bench.arguments.output.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            "command": command,
            "commits": commits,
            "date": date,
            "machine": host,
            "rows": rows,
            "failed": failed,
            "left": left,
        }
        bench.arguments.output.with_suffix(".json").write_text(json.dumps(kept, indent=1) + "\n")
        bench.arguments.output.with_suffix(".md").write_text(text)
    print(text, end="")


def main(argv):
    parser, arguments = parse(argv)
    if arguments.setup:
        packages.setup(arguments.python)
        return 0
    known = standin_programs.known(arguments, "rows")
    if arguments.list:
        print("\n".join(f"{name}: {does}" for name, (does, _) in known.items()))
        return 0
    names = standin_programs.chosen(parser, arguments.only or (SMOKE if arguments.smoke else None), known, "row")
    with tempfile.TemporaryDirectory() as temporary:
        arguments.folder = arguments.folder or (pathlib.Path(temporary) if arguments.smoke else ROOT / "build/models")
        arguments.folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(arguments)
        rows = {name: None if arguments.again else bench.done(name) for name in names}
        wanted = [name for name in names if rows[name] is None]
        lacking = [name for name in wanted if known[name][1]]
        wanted = [name for name in wanted if not known[name][1]][: arguments.rows]
        if lacking:
            note(f"models: left out for want of bench/models --setup: {', '.join(lacking)}")
        failed = []
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            coming = {pool.submit(bench.measure, name, known[name][0]): name for name in wanted}
            for future in concurrent.futures.as_completed(coming):
                name = coming[future]
                try:
                    rows[name] = future.result()
                except Failure as failure:
                    failed.append(name)
                    note(f"models: {name}: {failure}")
        found = [row for row in rows.values() if row]
        if not found:
            raise Failure("no row was measured")
        report(bench, argv, found, failed, [name for name in names if rows[name] is None and name not in failed])
    return 1 if failed else 0


if __name__ == "__main__":
    training.run_main("models", main)
