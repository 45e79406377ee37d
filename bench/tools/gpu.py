"""bench/gpu: what only a GPU can show, in parts of at most 8 minutes, each with its results in bench/results/gpu-PART.json.

For a machine with a GPU, CUDA 13 and torch 2.11, on which nothing can be installed: what the build needs beside them is in .carry, which
cmake/carry fills on a machine that has been set up and which is copied with the working tree. Without .carry the machine's own headers
are taken. Called again, it goes on with what is not done yet at this state of the tree; what failed is not repeated unless it is named or
--again is given. A part that runs into its limit goes on at the next call.

Exit code: 0 all that ran passed, 1 something failed, 2 wrong usage, 77 there is no GPU.
"""

import argparse
import ctypes
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import gpu_parts  # noqa: E402
import training  # noqa: E402
from gpu_rows import PARTS, NoTime, Skip  # noqa: E402
from training import ROOT, Failure  # noqa: E402

NO_GPU = 77
CHILDREN = pathlib.Path(__file__).parent / "gpu_children"
# What the results depend on, beside the machine.
SOURCES = ("CMakeLists.txt", "csrc", "include", "cmake", "bench", "tests/cuda", "tests/torch", "tests/support")


def gpu_count():
    """How many GPUs the driver sees; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def state_of_tree():
    """A number of the sources that are measured: a commit may be unknown where only the files were copied."""
    digest = hashlib.sha256()
    for name in SOURCES:
        top = ROOT / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "results" not in path.parts and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def commit():
    known = training.commit()
    carried = ROOT / ".carry/commit"
    if known == "unknown" and carried.is_file():
        return f"{carried.read_text().strip()} (when .carry was filled)"
    return known


def without_places(text):
    """Without what names a machine: its host and absolute paths."""
    text = text.replace(str(ROOT) + "/", "").replace(str(ROOT), ".")
    text = re.sub(r"(?<![\w.:/])/(?:[\w.+@~-]+/)+", ".../", text)
    node = platform.node()
    return re.sub(rf"\b{re.escape(node)}\b", "HOST", text) if len(node) > 3 else text


class Bench:
    """What rows are given: the machine, and how programs run on it under an allocator."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.smoke, self.standin = arguments.smoke, arguments.standin
        self.build = arguments.build_dir or ROOT / "build/release"
        self.deadline = None
        self.folder = None  # for files of the row
        self.output = None  # for files that are kept
        self.python = self.find_python()
        self.gpus = 1 if self.standin else gpu_count()
        self.machine_ = None

    def find_python(self):
        named = self.arguments.python or os.environ.get("BERTH_PYTHON")
        local = ROOT / ".venv/bin/python3"
        return named or (str(local) if list(ROOT.glob(".venv/lib/python3*/site-packages/torch")) else "python3")

    def torch_root(self):
        said = self.run([self.python, "-c", "import importlib.util as u; s = u.find_spec('torch'); "
                         "print(s.submodule_search_locations[0] if s else '')"]).strip()
        if not said:
            raise Failure(f"{pathlib.Path(self.python).name} has no torch: name one that has by --python or BERTH_PYTHON")
        return pathlib.Path(said)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, environment=None, cwd=ROOT, output=None, accept=(0,)):
        """Runs a command to its end, or to that of the part's time; returns its standard output. What it starts ends with it."""
        process = subprocess.Popen([str(part) for part in command], env=self.environment(environment or {}), cwd=cwd, text=True, errors="replace",
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE if output is None else subprocess.STDOUT,
                                   start_new_session=True)
        try:
            said, errors = process.communicate(timeout=None if self.deadline is None else max(self.left(), 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, errors = process.communicate()
            raise NoTime(f"{pathlib.Path(str(command[0])).name} was ended at the part's limit\n{((errors or '') or said)[-1500:]}") from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        if output is not None:
            output.write_text(said)
        if process.returncode not in accept:
            how = f"was ended by signal {-process.returncode}" if process.returncode < 0 else f"ended with {process.returncode}"
            words = "\n".join(part.strip() for part in (said[-2000:] if errors is not None else said[-4000:], (errors or "")[-2500:]) if part.strip())
            raise Failure(f"{shlex.join(map(str, command))} {how}\n{words}")
        self.last_errors, self.last_code = errors or "", process.returncode
        return said

    def environment(self, extra):
        names = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_NO_CUDA_MEMORY_CACHING"}
        clean = {name: value for name, value in training.clean_environment({}).items() if name not in names}
        return {**clean, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **{k: str(v) for k, v in extra.items()}}

    def launch(self, command, environment=None, installs=False, devices=1, copies=False):
        """A command that uses CUDA. `installs`: the program is linked to berth; else berth is put under it where the mode asks for it.
        `copies`: on the stand-in, large ones move bytes too."""
        environment = dict(environment or {})
        mode = environment.get("BERTH_MODE", "off")
        library = self.program("libberth_torch_cuda.so") if mode != "off" and not installs else None
        if self.standin:
            front = [self.program("standin/berth-standin"), *([] if copies else ["--copy-limit", 1 << 20]), "--devices", devices,
                     *(["--preload", library] if library else []), "--"]
        else:
            # Through env, so that a front of the command's own is left alone.
            front = ["env", f"LD_PRELOAD={library}"] if library else []
        return [*front, *command], environment

    def cuda(self, command, environment=None, **options):
        accept = options.pop("accept", (0,))
        command, environment = self.launch(command, environment, **options)
        return self.run(command, environment, accept=accept)

    def child(self, name, *arguments, environment=None, **options):
        """One of gpu_children under an allocator; what it wrote as JSON. Options are those of launch()."""
        path = self.folder / "child.json"
        path.unlink(missing_ok=True)
        self.cuda([self.python, "-B", CHILDREN / f"{name}.py", "--json", path, *arguments], environment, **options)
        if not path.is_file():
            raise Failure(f"{name}.py wrote no result\n{self.last_errors[-2000:]}")
        return json.loads(path.read_text())

    def program(self, name):
        path = self.build / name
        if not path.exists():
            raise Failure(f"{name} is not built: run bench/gpu build" + (" --standin" if self.standin else ""))
        return path

    def machine(self):
        """The class of machine; where the children cannot say, the reason."""
        if self.machine_ is None:
            host = training.machine()
            self.machine_ = {key: host[key] for key in ("cpu", "cores", "memory_bytes", "libc")}
            try:
                with tempfile.TemporaryDirectory() as folder:
                    before, self.folder = self.folder, pathlib.Path(folder)
                    try:
                        self.machine_ |= self.child("describe")
                    finally:
                        self.folder = before
            except (Failure, NoTime) as failure:
                self.machine_["unknown"] = without_places(str(failure))[-500:]
        return self.machine_


class Results:
    """What was found so far at this state of the tree, in a file that outlives a call."""

    def __init__(self, path, key):
        self.path, self.key, self.rows = path, key, {}
        if path is not None and path.is_file():
            self.rows = json.loads(path.read_text()).get(key, {})

    def get(self, part):
        return self.rows.get(part, {})

    def put(self, part, name, row):
        self.rows.setdefault(part, {})[name] = row
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part_file = self.path.with_suffix(".part")
            part_file.write_text(json.dumps({self.key: self.rows}, indent=1) + "\n")  # of other states nothing is kept
            part_file.replace(self.path)

    def forget(self, part):
        self.rows.pop(part, None)


def run_row(bench, row):
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="berth-gpu-") as folder:
            bench.folder = pathlib.Path(folder)
            answer = row.run(bench)
        outcome, text, data = answer.outcome, answer.text, answer.data
    except Skip as reason:
        outcome, text, data = "skip", str(reason), {}
    except Failure as failure:
        words = str(failure).splitlines()
        telling = [line for line in words[1:] if re.search(r"rror|FAILED|failed|what\(\)|wanted|refus", line) and not line.startswith("frame #")]
        rest = [line for line in words[1:] if line.strip()]
        last = (telling or rest or [""])[-1].strip()
        outcome, text, data = "fail", f"{words[0][:300]}: {last[:300]}" if last else words[0], {"tail": words[:1] + words[1:][-40:]}
    except NoTime:
        raise
    except Exception as error:  # a fault of this script is a row's failure, the others still run
        outcome, text, data = "fail", f"{type(error).__name__}: {error}", {"tail": traceback.format_exc().splitlines()[-20:]}
    row = {"outcome": outcome, "text": text, "point": row.point, "seconds": round(time.monotonic() - start, 1), **data}
    return json.loads(without_places(json.dumps(row)))


def write_part(bench, part, results, argv):
    rows = [{"name": row.name, **results.get(part.name)[row.name]} for row in part.rows if row.name in results.get(part.name)]
    if bench.output is None or not rows:
        return
    standin = "(stand-in)" in bench.machine().get("gpu", "")
    if standin and bench.output == ROOT / "bench/results":
        print("gpu: the driver here is the stand-in's: nothing is written to bench/results", file=sys.stderr)
        return
    report = {"part": part.name, "command": shlex.join(["bench/gpu", *argv]), "commit": commit(), "date": datetime.date.today().isoformat(),
              "standin": standin, "smoke": bench.smoke, "complete": len(rows) == len(part.rows), "machine": bench.machine(), "rows": rows}
    if standin:
        report["note"] = "On the stand-in: kernels do nothing and take no time. Values and times mean nothing; that it ran, addresses and counts do."
    bench.output.mkdir(parents=True, exist_ok=True)
    (bench.output / f"gpu-{part.name}.json").write_text(without_places(json.dumps(report, indent=1)) + "\n")


def run_part(bench, part, results, argv, stop):
    """Runs the rows that have no result; False where some are left for another call."""
    bench.deadline = time.monotonic() + bench.arguments.limit
    began, complete = False, True
    for row in part.rows:
        if row.name in results.get(part.name):
            continue
        if began and (time.monotonic() > stop or bench.left() < min(row.wants, bench.arguments.limit / 2)):
            complete = False
            break
        try:
            found = run_row(bench, row)
        except NoTime as reason:
            if began:
                complete = False
                break
            found = json.loads(without_places(json.dumps({"outcome": "fail", "text": str(reason).splitlines()[0], "point": row.point,
                                                          "tail": str(reason).splitlines()[-30:]})))
        began = True
        results.put(part.name, row.name, found)
        write_part(bench, part, results, argv)  # now: the next row may be the machine's last
        print(f"{found['outcome']:8} {part.name}/{row.name}: {found['text']}", flush=True)
        if found["outcome"] == "fail":
            print("".join(f"         | {line}\n" for line in found.get("tail", [])), end="", flush=True)
    bench.deadline = None
    return complete


def parse(argv):
    names = [part.name for part in PARTS]
    parts = "\n".join(f"  {part.name:12} {part.text}" for part in PARTS)
    parser = argparse.ArgumentParser(prog="bench/gpu", description=f"{__doc__}\nParts:\n{parts}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help="run these, also what failed in them (default: all that is not done)")
    add("--list", action="store_true", help="parts and their rows, and what became of them")
    add("--again", action="store_true", help="forget what was found by the parts that run")
    add("--standin", action="store_true", help="try it on the stand-in, without a GPU: results are marked, and written to build/gpu-standin")
    add("--smoke", action="store_true", help="small sizes, for tests, and few rows unless parts are named: nothing is kept but --output where given")
    add("--minutes", type=float, default=float("inf"), help="start nothing after so many minutes")
    add("--limit", type=float, default=480, help="seconds that a part may take (default: %(default)s)")
    add("--build-dir", type=pathlib.Path, help="take this build as it is; the part build looks only whether all is there")
    add("--python", help="the interpreter that has torch (default: BERTH_PYTHON, that of .venv, python3)")
    add("--output", type=pathlib.Path, help="folder of the results (default: bench/results)")
    add("--work", type=pathlib.Path, help="folder of what is done (default: build/gpu)")
    arguments = parser.parse_args(argv)
    for name in arguments.parts:
        if name not in names:
            parser.error(f"there is no part '{name}': {', '.join(names)}")
    for name in ("build_dir", "output", "work"):
        if getattr(arguments, name) is not None:
            setattr(arguments, name, getattr(arguments, name).resolve())
    if arguments.work is None:
        arguments.work = ROOT / ("build/gpu-standin" if arguments.standin else "build/gpu")
    if arguments.output is None and not arguments.smoke:
        arguments.output = arguments.work if arguments.standin else ROOT / "bench/results"
    return arguments


def show_list(results):
    for part in PARTS:
        print(f"{part.name}: {part.text}")
        for row in part.rows:
            found = results.get(part.name).get(row.name)
            print(f"  {found['outcome'] if found else '-':8} {row.name}{f' (point {row.point})' if row.point else ''}: "
                  f"{found['text'] if found else row.text}")


def main(argv):
    arguments = parse(argv)
    results = Results(None if arguments.smoke else arguments.work / "state.json", state_of_tree())
    if arguments.list:
        show_list(results)
        return 0
    if not arguments.standin and gpu_count() == 0:
        print("gpu: there is no GPU here, so nothing was run; --standin tries the script without one", file=sys.stderr)
        return NO_GPU
    bench = Bench(arguments)
    bench.output = arguments.output
    if arguments.standin:
        print("gpu: on the stand-in kernels do nothing: losses, values and times mean nothing and are not compared", flush=True)
    stop = time.monotonic() + 60 * arguments.minutes
    if arguments.smoke and not arguments.parts:
        for part in PARTS:
            part.rows = [row for row in part.rows if row.smoke]
    wanted = [part for part in PARTS if part.rows and (not arguments.parts or part.name in arguments.parts)]
    ran, left, failed = [], [], []
    for part in wanted:
        if arguments.again:
            results.forget(part.name)
        elif part.name in arguments.parts:
            for name, row in list(results.get(part.name).items()):
                if row["outcome"] == "fail":
                    del results.get(part.name)[name]
        if all(row.name in results.get(part.name) for row in part.rows):
            continue
        if time.monotonic() > stop:
            left.append(part.name)
            continue
        if not run_part(bench, part, results, argv, stop):
            left.append(part.name)
        ran.append(part.name)
        failed += [f"{part.name}/{name}" for name, row in results.get(part.name).items() if row["outcome"] == "fail"]
    counts = {}
    for part in wanted:
        for row in results.get(part.name).values():
            counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    print("gpu: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) + ("" if ran else "; all of it before this call"))
    if failed:
        print(f"gpu: failed: {', '.join(failed)}")
    if left and not failed:
        print(f"gpu: not done yet: {', '.join(left)}; call bench/gpu again")
    return 1 if failed else 0


if __name__ == "__main__":
    assert gpu_parts  # its rows are in PARTS
    training.run_main("gpu", main)
