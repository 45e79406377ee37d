"""Unchanged PyTorch programs on the stand-in, each a process of its own under one allocator. Used by changing.py and models.py.

A program is an entry of a module's PROGRAMS: changing_children/programs.py or network_children/rows.py. changing_children/run.py runs it.
"""

import json
import pathlib
import tempfile

import packages
import training
from training import ROOT, Failure

TOOLS = pathlib.Path(__file__).resolve().parent
CHILDREN = [TOOLS / "changing_children", TOOLS / "gpu_children"]


def add_options(add):
    add(
        "--only",
        action="append",
        metavar="NAME",
        help="this one, or those whose names begin so where it ends in '*'; may be repeated",
    )
    add("--list", action="store_true", help="their names and what they do, and nothing else")
    add("--python", type=pathlib.Path, default=ROOT / ".venv/bin/python3", help="one that has torch for CUDA")
    add("--build-dir", type=pathlib.Path, default=ROOT / "build/release")
    packages.add_options(add)


def built(arguments, name):
    path = arguments.build_dir / name
    if not path.exists():
        raise Failure(f"{path} is missing: it needs a libtorch for CUDA and CUDA's headers (cmake/setup)")
    return path


def known(arguments, module):
    """Every program: what it does, and the package that it lacks, or None. Asked of a child, since only that has torch."""
    words = (
        f"import sys, json, importlib.util, {module} as module; "
        "print(json.dumps({name: (does, needs if needs and not importlib.util.find_spec(needs) else None) "
        "for name, (_, does, needs, *_) in module.PROGRAMS.items()}))"
    )
    said = training.run(
        [built(arguments, "standin/berth-standin"), "--", arguments.python, "-B", "-c", words],
        {"PYTHONPATH": packages.path(*CHILDREN)},
    )
    return json.loads(said)


def matches(name, pattern):
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def chosen(parser, patterns, programs, what="program"):
    """Those that --only names, or all."""
    for pattern in patterns or []:
        if not any(matches(name, pattern) for name in programs):
            parser.error(f"there is no {what} '{pattern}'; --list has them")
    return [name for name in programs if not patterns or any(matches(name, pattern) for pattern in patterns)]


def run(arguments, module, name, environment, *options, memory=None):
    """One program under the allocator that the environment says; what it wrote."""
    preload = (
        ["--preload", built(arguments, "libberth_torch_cuda.so")]
        if environment.get("BERTH_MODE", "off") != "off"
        else []
    )
    total = ["--memory", memory] if memory else []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.json"
        training.run(
            [
                built(arguments, "standin/berth-standin"),
                "--copy-limit",
                1 << 20,
                *total,
                *preload,
                "--",
                arguments.python,
                "-B",
                CHILDREN[0] / "run.py",
                "--json",
                path,
                "--programs",
                module,
                "--program",
                name,
                "--size",
                "small" if arguments.smoke else "full",
                *options,
            ],
            {**environment, "PYTHONPATH": packages.path(), "HF_HUB_OFFLINE": "1"},
        )
        return json.loads(path.read_text())
