#!/usr/bin/env python3
"""Removes the rules of serving and of streams from the sources, one at a time, and demands that a test fails each time.

The sources are copied to build/mutants, where they are built, with libtorch where a mutant wants it (those of `step`); the tree itself is never
edited. First the tests must pass as the sources are; then each mutant of tests/mutation/table.py is built, and its tests run until one
fails. A mutant that does not build shows nothing and counts as one that survived. A test program has --timeout, or four times as long as it took
without a mutant where that is longer.

All mutants take hours. --output keeps each result at once, beside those of earlier runs, and --resume runs what is missing there.

Exit code: 0 where every mutant was killed; 1 where one survived or its point is not found; 2 for wrong usage; 3 where the
sources cannot be built or do not pass as they are.
"""

import argparse
import dataclasses
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import page  # noqa: E402
from points import Lost, changed, points  # noqa: E402
from table import MUTANTS, WITHOUT  # noqa: E402

LONGEST = 3600  # seconds of a test program without a mutant
SLOWER = 4  # how much longer than that a mutant may take

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COPIED = ("CMakeLists.txt", "cmake", "csrc", "include", "tests")
FLAGS = "-O1 -DNDEBUG"  # no assertions, as in the release build, which is what must hold; quick to compile


class Broken(Exception):
    """The sources cannot be tested as they are; ends with exit code 3."""


def why_lost(mutant):
    """Why the mutant cannot be made of the sources; None where it can."""
    try:
        changed(mutant.name, mutant.change)
    except Lost as error:
        return str(error)
    return None


def programs(mutants):
    return sorted({program for mutant in mutants for program, _ in mutant.tests})


def failed_test(report):
    """Of Catch2's report in XML, whole or cut short by a crash: the first test that failed, else the one that was running then."""
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    name = "before its first test"
    for case in text.split("<TestCase ")[1:]:
        name = re.match(r'name="([^"]*)', case)[1]
        if 'success="false"' in case:
            break
    for entity, plain in (("&quot;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&apos;", "'"), ("&amp;", "&")):
        name = name.replace(entity, plain)
    return name


@dataclasses.dataclass
class Result:
    mutant: object
    killed: bool
    by: str  # the test that failed, or why the mutant counts as a survivor
    seconds: float


class Copy:
    """One copy of the sources with its build."""

    def __init__(self, folder, cores, timeout):
        self.folder, self.cores, self.timeout = folder, cores, timeout
        self.took = {}  # seconds, by test program and its filter, without a mutant
        self.tree, self.build, self.log = folder / "tree", folder / "build", folder / "log.txt"
        # Compiled alike in every copy.
        self.environment = dict(os.environ, CCACHE_BASEDIR=str(self.tree), CCACHE_NOHASHDIR="1")
        self.environment.setdefault("VIRTUAL_ENV", str(ROOT / ".venv"))  # where libtorch is; the copy has none

    def command(self, arguments):
        with self.log.open("ab") as output:
            return (
                subprocess.run(
                    arguments,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                ).returncode
                == 0
            )

    def refresh(self):
        """The copy as the tree is, where files that are alike keep their time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        wanted = set()
        for top in COPIED:
            source = ROOT / top
            for path in [source] if source.is_file() else sorted(source.rglob("*")):
                if path.is_dir() or "__pycache__" in path.parts:
                    continue
                relative = path.relative_to(ROOT)
                wanted.add(relative)
                copy = self.tree / relative
                if not copy.is_file() or copy.read_bytes() != path.read_bytes():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, copy)
        for path in self.tree.rglob("*"):
            if path.is_file() and path.relative_to(self.tree) not in wanted:
                path.unlink()

    def configure(self, cuda, torch):
        arguments = [
            "cmake",
            "-S",
            str(self.tree),
            "-B",
            str(self.build),
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_CXX_FLAGS_RELEASE={FLAGS}",
            "-DBERTH_BUILD_TESTS=ON",
            "-DBERTH_BUILD_BENCH=OFF",
            f"-DBERTH_WITH_TORCH={'ON' if torch else 'OFF'}",
            "-DBERTH_WITH_CUDA=ON",
            "-DBERTH_BUILD_PYTHON=OFF",
            "-DBERTH_WITH_HIGHS=OFF",
            f"-DCUDAToolkit_ROOT={cuda}",
        ]
        if shutil.which("ninja"):
            arguments += ["-G", "Ninja"]
        if shutil.which("ccache"):
            arguments += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_C_COMPILER_LAUNCHER=ccache"]
        if not self.command(arguments):
            raise Broken(f"the copy cannot be configured: see {self.log.relative_to(ROOT)}")

    def make(self, targets, cores=None):
        return self.command(["cmake", "--build", str(self.build), "-j", str(cores or self.cores), "--target", *targets])

    def limit(self, test):
        return max(self.timeout, SLOWER * self.took[test]) if test in self.took else LONGEST

    def first_failure(self, tests):
        """The test that fails, and how; None where all pass. The first time shows how long they take."""
        for program, filtered in tests:
            limit, start = self.limit((program, filtered)), time.monotonic()
            binary = next(self.build.rglob(program), None)
            if binary is None:
                raise Broken(f"the test program {program} was not built")
            report = self.folder / "report.xml"
            report.unlink(missing_ok=True)
            try:
                with self.log.open("ab") as output:
                    status = subprocess.run(
                        [str(binary), filtered, "--warn", "NoTests", "-r", "xml", "-o", str(report)],
                        cwd=self.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        timeout=limit,
                    ).returncode
            except subprocess.TimeoutExpired:
                return failed_test(report), f"not over after {limit:.0f} s"
            if status < 0:
                return failed_test(report), f"signal {-status}"
            if status != 0:
                return failed_test(report), "failed"
            self.took.setdefault((program, filtered), time.monotonic() - start)
        return None

    def prepare(self, cuda, mutants):
        self.refresh()
        self.configure(cuda, any(program.startswith("berth_torch") for program in programs(mutants)))
        if not self.make(programs(mutants), os.cpu_count()):  # the copies are made one after the other
            raise Broken(f"the copy cannot be built: see {self.log.relative_to(ROOT)}")

    def judge(self, mutant):
        start = time.monotonic()
        file, mutated = changed(mutant.name, mutant.change, self.tree)
        path = self.tree / file
        text = path.read_text(encoding="utf-8")
        killed, by = False, None
        try:
            path.write_text(mutated, encoding="utf-8")
            for test in mutant.tests:  # the next program is built only where this one shows nothing
                if not self.make([test[0]]):
                    by = f"does not build: see {self.log.relative_to(ROOT)}"
                    break
                if failure := self.first_failure([test]):
                    killed, by = True, failure[0] + ("" if failure[1] == "failed" else f" ({failure[1]})")
                    break
        finally:
            path.write_text(text, encoding="utf-8")
        return Result(mutant, killed, by or "every test passes", time.monotonic() - start)


def cuda_headers():
    """The toolkit of the headers that the tree would be built with."""
    done = subprocess.run(
        ["cmake", "-P", "cmake/BerthCudaLocate.cmake"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    line = (done.stderr + done.stdout).strip()
    if done.returncode or line.startswith("none") or " " not in line:
        raise Broken(f"the tests on the stand-in need CUDA's headers: {line.removeprefix('none ') or 'cmake failed'}")
    return pathlib.Path(line.rpartition(" ")[0]).parent


def commit_of_tree():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="tests/mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="mutants or rules (default: all)")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    parser.add_argument(
        "-j", "--jobs", type=int, default=1, help="mutants at once, each in a copy of its own (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=120,
        help="of one test program; one that is not over then has failed (default: %(default)s)",
    )
    parser.add_argument(
        "--output", metavar="FILE", type=pathlib.Path, help="keep each result in FILE, in Markdown, beside those there"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="only mutants that FILE does not have as killed, with their source file as it is now",
    )
    options = parser.parse_args(arguments)
    if options.jobs < 1 or options.timeout <= 0:
        parser.error("--jobs and --timeout are at least 1")
    if options.resume and not options.output:
        parser.error("--resume needs --output FILE, which has the results so far")
    known = {name for mutant in MUTANTS for name in (mutant.name, mutant.rule)}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no mutant and no rule is named {unknown[0]}: --list names them")
    return options


def run(options, mutants):
    start = time.monotonic()
    say = lambda text: print(
        f"[{int(time.monotonic() - start) // 60:2d}:{int(time.monotonic() - start) % 60:02d}] {text}", flush=True
    )
    cuda = cuda_headers()
    jobs = min(options.jobs, len(mutants))
    copies = [
        Copy(ROOT / "build" / "mutants" / str(n), max(1, (os.cpu_count() or 2) // jobs), options.timeout)
        for n in range(jobs)
    ]
    for copy in copies:
        say(f"building {copy.folder.relative_to(ROOT)}")
        copy.prepare(cuda, mutants)
    say("the tests without a mutant")
    if failure := copies[0].first_failure(sorted({test for mutant in mutants for test in mutant.tests})):
        raise Broken(f"the sources do not pass as they are: {failure[0]} ({failure[1]})")
    for copy in copies[1:]:
        copy.took = copies[0].took

    waiting, results, errors = queue.SimpleQueue(), {}, []
    rows, commit, keeping = page.read(options.output) if options.output else {}, commit_of_tree(), threading.Lock()
    for mutant in mutants:
        waiting.put(mutant)

    def work(copy):
        try:
            while not errors:
                mutant = waiting.get_nowait()
                result = results[mutant.name] = copy.judge(mutant)
                if options.output:
                    with keeping:
                        rows[mutant.name] = page.row_of(result, commit)
                        page.write(options.output, rows)
                verdict = "killed by" if result.killed else "SURVIVED:"
                say(
                    f"{len(results)}/{len(mutants)} {mutant.rule} {mutant.name}: {mutant.what}; {verdict} {result.by} ({result.seconds:.0f} s)"
                )
        except queue.Empty:
            pass
        except (Broken, OSError) as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise Broken(str(errors[0]))
    return [results[mutant.name] for mutant in mutants]


def main(arguments):
    options = parse(arguments)
    mutants = [mutant for mutant in MUTANTS if not options.names or {mutant.name, mutant.rule} & set(options.names)]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.rule:5} {mutant.name:16} {mutant.what}")
        for rule, why in WITHOUT.items():
            print(f"{rule:5} {'(none)':16} {why}")
        return 0
    if lost := [f"{mutant.name}: {why}" for mutant in mutants if (why := why_lost(mutant))]:
        print("\n".join(f"FAILED {one}" for one in lost), file=sys.stderr)
        return 1
    if options.resume:
        rows = page.read(options.output)
        known = {
            name
            for name, row in rows.items()
            if name in points() and page.is_still_true(row, points()[name][0].file, ROOT)
        }
        mutants = [mutant for mutant in mutants if mutant.name not in known]
        print(f"{len(known)} mutants were killed with their source as it is, {len(mutants)} run now", flush=True)
        if not mutants:
            return 0
    try:
        results = run(options, mutants)
    except Broken as error:
        print(f"tests/mutants: {error}", file=sys.stderr)
        return 3
    killed = sum(result.killed for result in results)
    print(f"{killed} of {len(results)} mutants killed")
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
