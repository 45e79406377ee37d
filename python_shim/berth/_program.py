"""The program `berth` of this package, and `run`, which starts a program in Python under berth.

`run` replaces itself by the program, as a shell's exec does. Exit code, signals, tracebacks, sys.argv and __main__ are
those of the program alone. LD_PRELOAD loads berth into the program and its child processes, before they use CUDA.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import shutil
import sys
from typing import NoReturn, Optional

_HERE = pathlib.Path(__file__).parent
_SETTINGS = (
    "mode",
    "plan",
    "trace",
    "stats",
    "tag",
    "memory-limit",
    "memory",
    "handle",
    "check",
    "record",
    "plan-time-limit",
    "budget",
    "time-budget",
    "host-memory",
)
_EPILOG = """examples:
  python -m berth run train.py --epochs 3
  python -m berth run --plan gpt.plan -m my_package.train
  python -m berth run -c 'import train; train.main()'
  python -m berth run --fit train.py
  python -m berth run --plan 'plans/' torchrun --nproc-per-node 2 train.py

SCRIPT, -m, -c and - mean what they mean to Python. A setting without an option
here comes from the environment (`berth help settings`). File names may hold
{rank}, {device} and {pid}. berth also serves child processes that train. Child
processes that only load data keep the system's allocator.
"""


def has_gpu() -> bool:
    """True if the driver of CUDA finds a GPU. Imports nothing of torch's."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m berth run",
        description="Run a program in Python under berth, unchanged.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [OPTIONS] SCRIPT.py | -m MODULE | -c CODE | -\n                           | PROGRAM [ARGUMENTS...]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "all"),
        default="auto",
        help="whose memory berth serves; auto: the GPU's where there is one, else the CPU's",
    )
    parser.add_argument(
        "--mode", choices=("learn", "record", "serve", "off"), help="what berth does; default: BERTH_MODE, or learn"
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="the plan that serve follows, and that learn starts from and keeps up to date; or a folder of plans",
    )
    parser.add_argument("--trace", metavar="FILE", help="the trace that mode record writes")
    parser.add_argument("--record", choices=("requests", "operators"), help="what a trace holds")
    parser.add_argument("--check", choices=("normal", "full"), help="full: check every block against every live byte")
    parser.add_argument("--stats", metavar="FILE", help="the file that receives the counters at exit, as JSON")
    parser.add_argument("--tag", help="a text that traces and plans carry")
    parser.add_argument("--plan-time-limit", metavar="SECONDS", help="how long learn may improve a plan")
    parser.add_argument("--memory-limit", metavar="SIZE", help="the most memory that berth holds, e.g. 8GiB")
    parser.add_argument(
        "--memory",
        choices=("auto", "virtual", "plain"),
        help="how berth allocates a GPU's memory; plain: by cudaMalloc only",
    )
    parser.add_argument("--handle", metavar="SIZE", help="the largest handle of a GPU's virtual memory, e.g. 32MiB")
    parser.add_argument(
        "--budget",
        metavar="SIZE|SHARE|fit",
        help="memory of a training step, which then runs by a schedule: 8GiB, 60%%, or fit for what the device has",
    )
    parser.add_argument(
        "--fit", action="store_true", help="the same as --budget fit: trains a step that is larger than the device"
    )
    parser.add_argument(
        "--time-budget", metavar="SHARE", help="instead of a size: the least memory for so much more time, e.g. 0.1"
    )
    parser.add_argument(
        "--host-memory", metavar="SIZE", help="the most host memory for tensors that do not fit the device"
    )
    parser.add_argument("--verbose", action="store_true", help="print one line at exit: steps, hits, misses, memory")
    return parser


def _is_python(word: str) -> bool:
    """Whether Python's own command line would begin a program so: -m MODULE, -c CODE, each in one word or two, or - for standard input."""
    return word == "-" or word[:2] in ("-m", "-c")


def _split(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[list[str], list[str]]:
    """Our options, and from the first word that is neither one of them nor its value on what is to be run, as it is."""
    valued = {name for action in parser._actions for name in action.option_strings if action.nargs != 0}
    end = 0
    while (
        end < len(arguments)
        and arguments[end].startswith("-")
        and arguments[end] != "--"
        and not _is_python(arguments[end])
    ):
        end += 2 if arguments[end] in valued else 1
    return arguments[:end], arguments[end + (arguments[end : end + 1] == ["--"]) :]


def _fail(text: str, code: int = 2) -> NoReturn:
    print(f"berth: error: {text}", file=sys.stderr)
    sys.exit(code)


def _interpreter_options() -> list[str]:
    """Those that this interpreter was started with (-O, -u, -X ..), without -m and what follows it."""
    import subprocess

    made: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return made


def _command(program: list[str]) -> list[str]:
    """The command that replaces this process."""
    if not program:
        _fail("no program to run: see `python -m berth run --help`")
    python = [sys.executable, *_interpreter_options()]
    if _is_python(program[0]):
        return [*python, *program]
    first = pathlib.Path(program[0])
    found = shutil.which(program[0])
    if first.suffix in (".py", ".pyw", ".pyc", ".zip", ".pyz") or first.is_dir() or (found is None and first.exists()):
        return [*python, *program]
    if found is None:
        _fail(f"'{program[0]}' is no script here and no program on PATH")
    return [found, *program[1:]]


def _check_distinct(options: argparse.Namespace, program: list[str]) -> None:
    """No file is written over another, nor over the script."""
    known = {os.path.realpath(program[0]): f"'{program[0]}', which is to be run"}
    for name in ("plan", "trace", "stats"):
        value: Optional[str] = getattr(options, name)
        if not value or os.path.realpath(value) == os.path.realpath(os.devnull):
            continue
        other = known.setdefault(os.path.realpath(value), f"--{name}")
        if other != f"--{name}":
            _fail(f"--{name} '{value}' would be written over {other}: name another file")


def _check_budget(environment: dict[str, str]) -> None:
    from berth._errors import UsageError
    from berth._step_program import _bytes, _share, _time_share

    try:
        budget = environment["BERTH_BUDGET"]
        if budget != "fit" and not 0 < _share(budget) <= 1:
            _bytes(budget, "--budget")
        if environment.get("BERTH_HOST_MEMORY"):
            _bytes(environment["BERTH_HOST_MEMORY"], "--host-memory")
        if environment.get("BERTH_TIME_BUDGET"):
            _time_share(environment["BERTH_TIME_BUDGET"], "--time-budget")
    except UsageError as error:
        _fail(str(error))


def _environment(options: argparse.Namespace) -> dict[str, str]:
    environment = dict(os.environ)
    environment.setdefault("BERTH_MODE", "learn")
    for name in _SETTINGS:
        value: Optional[str] = getattr(options, name.replace("-", "_"))
        if value is not None:
            path = name in ("plan", "trace", "stats") and value
            made = os.path.abspath(value) + ("/" if value.endswith("/") else "") if path else value
            environment["BERTH_" + name.upper().replace("-", "_")] = made
    if options.verbose:
        environment["BERTH_VERBOSE"] = "1"
    if options.fit or (environment.get("BERTH_TIME_BUDGET") and not environment.get("BERTH_BUDGET")):
        environment["BERTH_BUDGET"] = "fit"
    if environment.get("BERTH_BUDGET"):
        _check_budget(environment)
        environment["PYTHONPATH"] = ":".join([str(_HERE / "start"), *filter(None, [os.environ.get("PYTHONPATH")])])
    device = options.device
    if device == "auto":
        device = "cuda" if (_HERE / "libberth_torch_cuda.so").exists() and has_gpu() else "cpu"
    libraries = [
        str(_HERE / f"libberth_torch_{kind}.so") for kind in (("cpu", "cuda") if device == "all" else (device,))
    ]
    for library in libraries:
        if not os.path.exists(library):
            _fail(f"this berth has no part for {device}: it was built for a torch without CUDA")
    if device == "all":
        for name in ("plan", "trace", "stats"):
            path = environment.get(f"BERTH_{name.upper()}", "")
            if path and not path.endswith("/") and not os.path.isdir(path) and "{device}" not in path:
                _fail(
                    f"--{name} is '{path}', and the CPU and each GPU have one: with --device all the name must hold {{device}}"
                )
    environment["LD_PRELOAD"] = ":".join([*libraries, *filter(None, [os.environ.get("LD_PRELOAD")])])
    return environment


def run(arguments: list[str]) -> NoReturn:
    """Becomes the program that the arguments name."""
    parser = _parser()
    own, program = _split(parser, arguments)
    options = parser.parse_args(own)
    command = _command(program)
    _check_distinct(options, program)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(command[0], command, _environment(options))
    except OSError as error:
        _fail(f"cannot run '{command[0]}': {error.strerror}", 4)


def main() -> int:
    """`berth` and `python -m berth`: run, or a command of the program."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        run(arguments[1:])
    program = str(_HERE / "bin" / "berth")
    if arguments in ([], ["-h"], ["--help"]):
        print(
            "`berth run` (python -m berth run) runs a program in Python under berth: see `berth run --help`.\n",
            flush=True,
        )
    try:
        os.execv(program, ["berth", *arguments])
    except OSError as error:
        _fail(f"cannot run '{program}': {error.strerror}", 4)
