"""bench/gpu: what only a GPU can show, row by row in the order of worth, in half an hour.

For a machine with a GPU, torch 2.11 and CUDA 13 on which nothing is built or installed. What it runs was built elsewhere for x86-64:
`bench/gpu --pack` puts that into .carry/gpu, which travels with the working tree. Without .carry/gpu it takes build/release.

Each row is a process of its own, which may take twice what it wants. One that fails does not stop the others. After each row the
archive is written anew; it has a report, all figures and the logs. A second call goes on where the first was cut, also on another
machine, with --resume and the archive. What failed is repeated only where it is named.

Exit code: 0 all that ran passed, 1 something failed, 2 wrong usage, 77 there is no GPU.
"""

import argparse
import contextlib
import datetime
import io
import json
import pathlib
import re
import shlex
import signal
import sys
import tarfile
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import gpu_pack  # noqa: E402
import training  # noqa: E402
from gpu_bench import Bench, Process, gpu_count, without_places  # noqa: E402
from gpu_rows import Skip  # noqa: E402
from gpu_table import GROUPS, ROWS  # noqa: E402
from training import ROOT, Failure  # noqa: E402

NO_GPU = 77
LOG_BYTES = 200_000  # of a row's log in the archive
MEMBER = re.compile(r"gpu\.json|gpu\.md|logs/[\w-]+\.log|kept/[\w.-]+")


def file_name(row):
    return re.sub(r"[^a-z0-9]+", "-", row.name)


class Results:
    """What was found so far of this state of the sources, in a folder that outlives a call and an archive that outlives the machine."""

    def __init__(self, arguments):
        self.folder, self.archive = arguments.work, arguments.archive
        self.path = self.folder / "gpu.json"
        self.key = gpu_pack.manifest().get("sources") or gpu_pack.state_of_tree()
        if arguments.resume:
            self.unpack(arguments.resume)
        known = json.loads(self.path.read_text()) if self.path.is_file() else {}
        same = (
            known.get("sources") == self.key
            and known.get("small") == arguments.small
            and known.get("standin") == bool(arguments.standin)
        )
        if known and not same:
            print("gpu: what was found before is of other sources: it is not counted", file=sys.stderr)
        self.report = (
            known
            if same
            else {
                "sources": self.key,
                "small": arguments.small,
                "standin": bool(arguments.standin),
                "machine": {},
                "rows": {},
                "begun": {},
            }
        )
        self.rows, self.begun = self.report["rows"], self.report["begun"]
        for name in ("logs", "kept"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def unpack(self, archive):
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    if member.isfile() and MEMBER.fullmatch(member.name):
                        path = self.folder / member.name
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(tar.extractfile(member).read())
        except (OSError, tarfile.TarError) as error:
            raise Failure(f"{archive.name} is no archive of an earlier call: {error}") from None

    def begin(self, row):
        self.begun[row.name] = self.begun.get(row.name, 0) + 1
        self.write()

    def put(self, row, found):
        self.begun.pop(row.name, None)
        if found is not None:
            self.rows[row.name] = json.loads(without_places(json.dumps(found)))
        self.write()

    def forget(self, row):
        self.rows.pop(row.name, None)
        self.begun.pop(row.name, None)

    def write(self):
        for name, text in (("gpu.json", json.dumps(self.report, indent=1) + "\n"), ("gpu.md", self.to_text())):
            part = self.folder / (name + ".part")
            part.write_text(text)
            part.replace(self.folder / name)
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        part = self.archive.with_name(self.archive.name + ".part")
        with tarfile.open(part, "w:gz") as tar:
            for name in ("gpu.md", "gpu.json"):
                self.add(tar, name, (self.folder / name).read_bytes())
            for path in sorted((self.folder / "logs").glob("*.log")):
                text = path.read_bytes()[-LOG_BYTES:].decode(errors="replace")
                self.add(tar, f"logs/{path.name}", without_places(text).encode())
            for path in sorted((self.folder / "kept").iterdir()):
                self.add(tar, f"kept/{path.name}", path.read_bytes())
        part.replace(self.archive)

    @staticmethod
    def add(tar, name, data):
        member = tarfile.TarInfo(name)
        member.size, member.mtime = len(data), int(time.time())
        tar.addfile(member, io.BytesIO(data))

    def to_text(self):
        """The report as Markdown."""
        machine = self.report["machine"]
        lines = [
            "# bench/gpu",
            "",
            ", ".join(f"{name}: {value}" for name, value in machine.items()),
            "",
            f"Commit {self.report.get('commit', 'unknown')}, {self.report.get('date', '')}, `{self.report.get('command', '')}`.",
        ]
        if self.report["standin"]:
            lines += [
                "",
                "On the stand-in: kernels do nothing and take no time. Values and times mean nothing; that it ran, addresses and counts do.",
            ]
        lines += ["", "| row | wanted, s | took, s | result | |", "| --- | --- | --- | --- | --- |"]
        for row in ROWS:
            found = self.rows.get(row.name)
            if found is not None or not row.more:
                lines.append(
                    f"| {row.name} | {row.wants:.0f} | "
                    + (
                        f"{found['seconds']:.1f} | {found['outcome']} | {cell(found['text'])} |"
                        if found
                        else "| not yet | |"
                    )
                )
        took = sum(found["seconds"] for found in self.rows.values())
        wanted = sum(row.wants for row in ROWS if row.name in self.rows)
        return "\n".join([*lines, "", f"{len(self.rows)} rows wanted {wanted:.0f} s and took {took:.0f} s.", ""])


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")[:1000]


def run_here(arguments):
    """--row: runs one row in this process and writes its answer."""
    row = next(row for row in ROWS if row.name == arguments.row)
    bench = Bench(arguments)
    bench.until = time.monotonic() + row.wants
    bench.kept = arguments.work / "kept"
    try:
        with tempfile.TemporaryDirectory(prefix="berth-gpu-") as folder:
            bench.folder = pathlib.Path(folder)
            answer = row.run(bench)
        outcome, text, data = answer.outcome, answer.text, answer.data
    except Skip as reason:
        outcome, text, data = "skip", str(reason), {}
    except Failure as failure:
        words = str(failure).splitlines()
        telling = [
            line
            for line in words[1:]
            if re.search(r"rror|FAILED|failed|what\(\)|wanted|refus", line) and not line.startswith("frame #")
        ]
        rest = [line for line in words[1:] if line.strip()]
        last = (telling or rest or [""])[-1].strip()
        outcome, text, data = (
            "fail",
            f"{words[0][:300]}: {last[:300]}" if last else words[0],
            {"tail": words[:1] + words[1:][-40:]},
        )
    except Exception as error:  # a fault of this script is a row's failure, the others still run
        outcome, text, data = (
            "fail",
            f"{type(error).__name__}: {error}",
            {"tail": traceback.format_exc().splitlines()[-20:]},
        )
    arguments.answer.write_text(json.dumps({"outcome": outcome, "text": text, **data}))
    return 0


@contextlib.contextmanager
def ending(process):
    """A signal that ends this process ends that one too."""

    def end(number, _):
        process.end()
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_row(row, arguments, passed_on, results, stop):
    """A row in its own process. None where this call has no time left for it."""
    limit = arguments.patience * row.wants
    log = results.folder / "logs" / f"{file_name(row)}.log"
    answer = results.folder / "answer.json"
    answer.unlink(missing_ok=True)
    results.begin(row)
    start = time.monotonic()
    process = Process([sys.executable, "-B", __file__, "--row", row.name, "--answer", answer, *passed_on], log)
    with ending(process):
        code = process.wait(max(min(limit, stop - start), 1))
    seconds = time.monotonic() - start
    if code is None and seconds < limit:
        return None
    if answer.is_file():
        found = json.loads(answer.read_text())
    else:
        words = log.read_text(errors="replace").splitlines()[-40:]
        how = (
            f"ended at its limit, {limit:.0f} s"
            if code is None
            else f"was ended by signal {-code}"
            if code < 0
            else f"ended with {code} and no answer"
        )
        found = {"outcome": "fail", "text": how, "tail": words}
    return {
        "outcome": found.pop("outcome"),
        "text": found.pop("text"),
        "wanted": row.wants,
        "seconds": round(seconds, 1),
        "point": row.point,
        **found,
    }


def run_all(rows, arguments, passed_on, results):
    """Runs the rows that have no result and fit into the call's time. Returns those that are left."""
    stop = time.monotonic() + 60 * arguments.minutes
    left, began = [], False
    for row in rows:
        if row.name in results.rows:
            continue
        if results.begun.get(row.name, 0) >= 2:
            found = {
                "outcome": "fail",
                "text": "the machine or the call ended twice while it ran: name it to try it again",
                "wanted": row.wants,
                "seconds": 0,
                "point": row.point,
            }
        elif began and stop - time.monotonic() < row.wants or time.monotonic() >= stop:
            left.append(row.name)  # a later one may want less
            continue
        else:
            began = True
            found = run_row(row, arguments, passed_on, results, stop)
        results.put(row, found)
        if found is None:
            left.append(row.name)
            continue
        print(
            f"{found['outcome']:8} {row.name} ({found['seconds']:.0f} of {row.wants:.0f} s): {found['text']}",
            flush=True,
        )
        if found["outcome"] == "fail":
            print("".join(f"         | {line}\n" for line in found.get("tail", [])), end="", flush=True)
    return left


def parse(argv):
    groups = "\n".join(f"  {name:10} {text}" for name, text in GROUPS.items())
    wants = sum(row.wants for row in ROWS if not row.more)
    parser = argparse.ArgumentParser(
        prog="bench/gpu",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{__doc__}\nGroups of rows; together they want {wants / 60:.0f} minutes:\n{groups}",
    )
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="run these groups or rows, also what failed in them (default: all that is not done)",
    )
    add("--list", action="store_true", help="the rows, what they want, and what became of them")
    add("--more", action="store_true", help="also the rows beyond the half hour")
    add("--again", action="store_true", help="forget what was found by the rows that run")
    add(
        "--minutes",
        type=float,
        default=30,
        help="start nothing that wants more than is left of so many minutes (default: %(default)s)",
    )
    add(
        "--archive",
        type=pathlib.Path,
        help="what is written after each row (default: berth-gpu.tar.gz in the folder of --work)",
    )
    add("--resume", type=pathlib.Path, metavar="ARCHIVE", help="go on from the archive of an earlier call")
    add("--pack", action="store_true", help="fill .carry/gpu from the build, for the machine with the GPU")
    add(
        "--rehearse",
        action="store_true",
        help="all of it on the stand-in, in a clean folder that has only what would be carried",
    )
    add("--small", action="store_true", help="small sizes, for tests")
    add(
        "--standin",
        type=pathlib.Path,
        metavar="FOLDER",
        help="run on this stand-in: values and times mean nothing then",
    )
    add(
        "--build-dir",
        type=pathlib.Path,
        help="take this build (default: .carry/gpu/build where it is there, else build/release)",
    )
    add("--python", help="the interpreter that has torch (default: BERTH_PYTHON, that of .venv, python3)")
    add("--work", type=pathlib.Path, help="folder of what is done (default: build/gpu, or build/gpu-rehearsal)")
    add("--patience", type=float, default=2, help=argparse.SUPPRESS)  # times what a row wants is its limit
    add("--row", help=argparse.SUPPRESS)
    add("--answer", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    known = {*GROUPS, *(row.name for row in ROWS)}
    for name in arguments.names:
        if name not in known:
            parser.error(f"there is no row or group '{name}': --list shows them")
    if arguments.work is None:
        arguments.work = ROOT / ("build/gpu-rehearsal" if arguments.rehearse or arguments.standin else "build/gpu")
    if arguments.archive is None:
        arguments.archive = arguments.work / "berth-gpu.tar.gz"
    for name in ("build_dir", "work", "archive", "resume", "standin", "answer"):
        if getattr(arguments, name) is not None:
            setattr(arguments, name, getattr(arguments, name).resolve())
    return arguments


def show_list(rows, results):
    for row in rows:
        found = results.rows.get(row.name)
        print(
            f"{found['outcome'] if found else 'more' if row.more else '-':8} {row.wants:4.0f} s  {row.name}{f' (point {row.point})' if row.point else ''}: "
            f"{found['text'] if found else row.text}"
        )


def main(argv):
    arguments = parse(argv)
    chosen = [
        row
        for row in ROWS
        if row.name in arguments.names
        or row.group in arguments.names
        or (not arguments.names and (arguments.more or not row.more))
    ]
    if arguments.row:
        return run_here(arguments)
    if arguments.pack:
        return gpu_pack.pack_here(arguments)
    if arguments.rehearse:
        kept = [
            *arguments.names,
            *(["--more"] if arguments.more else []),
            *(["--small"] if arguments.small else []),
            "--again",
        ]
        return gpu_pack.rehearse(arguments, kept)
    if arguments.list:
        show_list(ROWS if not arguments.names else chosen, Results(arguments))
        return 0
    if not arguments.standin and gpu_count() == 0:
        print("gpu: there is no GPU here, so nothing was run; --rehearse runs all of it without one", file=sys.stderr)
        return NO_GPU
    bench = Bench(arguments)
    note = gpu_pack.check(bench)
    if note:
        print(f"gpu: {note}", file=sys.stderr)
    results = Results(arguments)
    for row in chosen:
        if arguments.again or (arguments.names and results.rows.get(row.name, {}).get("outcome") == "fail"):
            results.forget(row)
    if all(row.name in results.rows for row in chosen):
        print("gpu: all of it was done before this call: --again repeats it")
        return 0
    if arguments.standin:
        print(
            "gpu: on the stand-in kernels do nothing: losses, values and times mean nothing and are not compared",
            flush=True,
        )
    command = without_places(shlex.join(["bench/gpu", *argv]))
    results.report |= {
        "machine": json.loads(without_places(json.dumps(bench.machine()))),
        "commit": gpu_pack.manifest().get("commit") or training.commit(),
        "date": datetime.date.today().isoformat(),
        "command": command,
        "note": note,
    }
    passed_on = [
        "--work",
        arguments.work,
        "--archive",
        arguments.archive,
        "--python",
        bench.python,
        "--build-dir",
        bench.build,
        *(["--small"] if arguments.small else []),
        *(["--standin", arguments.standin] if arguments.standin else []),
    ]
    before = set(results.rows)
    left = run_all(chosen, arguments, passed_on, results)
    results.write()
    counts = {}
    for name in set(results.rows) - before:
        outcome = results.rows[name]["outcome"]
        counts[outcome] = counts.get(outcome, 0) + 1
    print(
        "gpu: "
        + (", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no row ended in this call")
    )
    failed = [
        row.name for row in chosen if row.name not in before and results.rows.get(row.name, {}).get("outcome") == "fail"
    ]
    if failed:
        print(f"gpu: failed: {', '.join(failed)}")
    if left:
        print(f"gpu: not done yet: {', '.join(left)}; call bench/gpu again")
    print(f"gpu: {arguments.archive.stat().st_size / 2**20:.2f} MiB in {arguments.archive.name}")
    return 1 if failed else 0


if __name__ == "__main__":
    training.run_main("gpu", main)
