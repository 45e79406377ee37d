"""bench/olla: placement by OLLA's integer program (engine ilp_pyramid: as published, solved by HiGHS), by the same program with
all that berth knows (ilp), and by berth's own search (auto), on the first requests of one training step: a few of them, twice as
many, and so on up to the whole step.

A block that outlives the requests looked at lives to their end. Time is what each says of itself. The programs stop
at --time-limit; one that gives up, or is refused for its size, is not tried on longer pieces of that step.
"""

import csv
import gzip
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import training  # noqa: E402
from training import Failure, note  # noqa: E402

ENGINES = ["ilp_pyramid", "ilp", "auto"]


def step_of(path):
    """(birth, end or None, bytes) of the requests of a run's second step, in ticks of its requests."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="") as file:
        rows = csv.reader(file)
        if next(rows, []) != ["action", "id", "bytes", "stream"]:
            raise Failure(f"'{path}' is no events CSV: its first line is not action,id,bytes,stream")
        steps, born, tick, requests = 0, {}, 0, []
        for action, block, size, _ in rows:
            steps += action == "step"
            if steps == 2:
                break
            if steps == 1 and action == "alloc" and int(size) > 0:
                born[block] = len(requests)
                requests.append([tick, None, int(size)])
                tick += 1
            elif steps == 1 and action == "free" and block in born:
                requests[born.pop(block)][1] = tick
    if not requests:
        raise Failure(f"'{path}' has no second step")
    return requests


def first(requests, count):
    """Lifetimes of the first `count` requests, up to the birth of the next; sizes as PyTorch rounds them."""
    return [(birth, min(count, end or count), -(-size // 512) * 512) for birth, end, size in requests[:count]]


def pairs(rows):
    """How many pairs are alive together: the binaries of the program."""
    live, count = 0, 0
    for _, birth in sorted([(lower, 1) for lower, _, _ in rows] + [(upper, 0) for _, upper, _ in rows]):
        count += live if birth else 0
        live += 1 if birth else -1
    return count


def cells(result, bound):
    if result.get("error"):
        return ["refused", ""]
    if result["peak"] is None:
        return ["no answer", f"{result['seconds']:.1f}"]
    found = "" if result["by"].startswith("ilp") or result["engine"] == "auto" else " (first fit's)"
    proven = ", proven" if result["proven"] else ""
    return [f"{100 * (result['peak'] / bound - 1):.3f}{proven}{found}", f"{result['seconds']:.3f}"]


def measure(name, requests, arguments, berth):
    rows, gave_up = [], set()
    longest = min(arguments.last or len(requests), len(requests))
    count = min(arguments.first, longest)
    while True:
        lifetimes = first(requests, count)
        row = [name, f"{count:,}", f"{pairs(lifetimes):,}"]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            peers.write_lifetimes(path, lifetimes)
            for engine in arguments.engines:
                if engine in gave_up:
                    row += ["", ""]
                    continue
                note(f"olla: {name}: {count} requests: {engine}")
                result = peers.run_berth(berth, path, lifetimes, arguments.time_limit, "--engine", engine)
                if "HiGHS" in result.get("error", ""):
                    raise Failure(result["error"])
                result["engine"] = engine
                if result.get("error") or (not result["proven"] and engine != "auto"):
                    gave_up.add(engine)
                bound = result.get("bound") or peers.max_load(lifetimes)
                row += cells(result, bound)
        rows.append(row)
        if count == longest:
            return rows
        count = min(2 * count, longest)


def main(argv):
    report = peers.Report("olla", __doc__)
    add = report.parser.add_argument
    add("traces", nargs="*", type=pathlib.Path, help="recorded runs: events CSV, plain or gzip")
    add("--first", type=int, default=8, help="requests of the shortest piece (default: %(default)s)")
    add("--last", type=int, help="requests of the longest piece (default: all)")
    add("--engines", nargs="+", choices=ENGINES, default=ENGINES, help="which to run (default: all)")
    arguments = report.parser.parse_args(argv)
    if not arguments.traces and not arguments.smoke:
        report.parser.error("name a recorded run")
    berth = training.program(arguments.build_dir.resolve(), "berth")
    rows = []
    if arguments.smoke:
        arguments.time_limit = 2
        rows += measure("smoke", [[i, 31 - i, 512 * (1 + i * 7919 % 9)] for i in range(15)], arguments, berth)
    for path in arguments.traces:
        rows += measure(path.name.split(".")[0], step_of(path), arguments, berth)
    header = ["step", "requests", "pairs alive together"] + [
        f"{engine}: {what}" for engine in arguments.engines for what in ("gap, %", "s")
    ]
    report.keep(
        argv,
        arguments,
        "Gap: peak over the bound, less 1; sizes are multiples of 512 bytes, as PyTorch's. A program has "
        f"{arguments.time_limit:g} s; an empty cell is a longer piece than one it gave up on.",
        header,
        rows,
    )
    return 0


if __name__ == "__main__":
    training.run_main("olla", main)
