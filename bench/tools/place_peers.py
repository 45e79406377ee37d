"""bench/place_peers: peak, time and memory of berth's planner beside MiniMalloc (github.com/google/minimalloc) and idealloc
(github.com/cappadokes/idealloc), on the same files in one run.

Each is a process of its own, on one thread; time is what each says of itself, without reading and writing, memory the
process's most. MiniMalloc is asked for the max load, since it searches for a capacity given. Placements are checked; idealloc
keeps its own to itself. The other planners are named by their program or by a checkout that was built as its own
README says; those that are not named are left out.
"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import training  # noqa: E402
from training import Failure, note  # noqa: E402

PROGRAMS = {
    "minimalloc": ["minimalloc", "build/minimalloc", "build/release/minimalloc"],
    "idealloc": ["target/release/idealloc"],
}


def find_program(name, path):
    """The program that the user names, by itself or by the checkout it was built in."""
    if not path:
        note(f"place_peers: {name} is left out: --{name} names its program or its checkout")
        return None
    for candidate in [path, *(path / inner for inner in PROGRAMS[name])]:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.resolve()
    raise Failure(
        f"--{name} '{path}' is no program and holds none of {', '.join(PROGRAMS[name])}: build it as its README says"
    )


def instances(paths, only):
    """(name, rows) of every lifetimes CSV named or in a folder named."""
    files = [file for path in paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    for file in files:
        rows = peers.read_lifetimes(file) if only in file.name else None
        if rows:
            yield file.stem, rows


def smoke_instances():
    yield "smoke", [(i, i + 1 + i % 17, 1 + i * 7919 % 97) for i in range(200)]


def measure(rows, arguments, programs):
    with tempfile.TemporaryDirectory() as folder:
        path, doubled = pathlib.Path(folder) / "rows.csv", pathlib.Path(folder) / "doubled.csv"
        peers.write_lifetimes(path, rows)
        peers.write_lifetimes(doubled, rows, 2)
        bound = peers.max_load(rows)
        results = {"berth": peers.run_berth(programs["berth"], path, rows, arguments.time_limit)}
        if programs["minimalloc"]:
            results["MiniMalloc"] = peers.run_minimalloc(
                programs["minimalloc"], path, rows, arguments.time_limit, bound
            )
        if programs["idealloc"]:
            for tries in sorted({1, arguments.tries}):
                results[f"idealloc, {tries}"] = peers.run_idealloc(
                    programs["idealloc"], doubled, rows, arguments.time_limit, tries
                )
        return {"buffers": len(rows), "bound": bound, "results": results}


def row(name, one):
    cells = [name, f"{one['buffers']:,}"]
    for result in one["results"].values():
        gap = (
            f"{100 * (result['peak'] / one['bound'] - 1):.4f}" if result["peak"] else result.get("error", "none found")
        )
        cells += [gap, f"{result['seconds']:.3f}", training.mebibytes(result["memory_bytes"])]
    return cells


def main(argv):
    report = peers.Report("place_peers", __doc__)
    add = report.parser.add_argument
    add("paths", nargs="*", type=pathlib.Path, help="lifetimes CSVs (id,lower,upper,size), or folders of them")
    add("--minimalloc", type=pathlib.Path, help="the program or its checkout")
    add("--idealloc", type=pathlib.Path, help="the program or its checkout")
    add("--only", default="", help="files whose name holds this")
    add("--tries", type=int, default=20, help="of idealloc, beside a run of one (default: %(default)s)")
    arguments = report.parser.parse_args(argv)
    if not arguments.paths and not arguments.smoke:
        report.parser.error("name a file or a folder")
    for path in arguments.paths:
        if not path.exists():
            report.parser.error(f"there is no '{path}'")
    programs = {
        "berth": training.program(arguments.build_dir.resolve(), "berth"),
        "minimalloc": find_program("minimalloc", arguments.minimalloc),
        "idealloc": find_program("idealloc", arguments.idealloc),
    }
    rows, header = [], None
    for name, lifetimes in smoke_instances() if arguments.smoke else instances(arguments.paths, arguments.only):
        note(f"place_peers: {name}")
        one = measure(lifetimes, arguments, programs)
        header = ["instance", "buffers"] + [
            f"{planner}: {what}" for planner in one["results"] for what in ("gap, %", "s", "memory")
        ]
        rows.append(row(name, one))
    if not rows:
        raise Failure("none of the files is a lifetimes CSV")
    report.keep(
        argv,
        arguments,
        "Gap: peak over max load, less 1. MiniMalloc is asked for the max load; where it finds nothing in "
        f"{arguments.time_limit:g} s it has no peak.",
        header,
        rows,
    )
    return 0


if __name__ == "__main__":
    training.run_main("place_peers", main)
