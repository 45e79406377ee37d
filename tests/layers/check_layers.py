#!/usr/bin/env python3
"""Fails when a part of the house reaches for one that lies above it, or a README is too wide. Usage: check_layers.py [ROOT]

Lowest first; a folder of csrc includes and links only those before it. What else must hold is said at each rule.
"""

import pathlib
import re
import sys

ORDER = [
    "core",
    "facts",
    "trace",
    "plan",
    "place",
    "graph",
    "schedule",
    "papers",
    "device",
    "pool",
    "runtime",
    "cuda",
    "capi",
    "replay",
    "torch",
    "cli",
    "standin",
]
# The folders of a folder, lowest first; "" is what lies in none of them.
FLOORS = {
    "place": ["problem", "bounds", "fits", "dives", "exact", "stages", "", "oracle"],
    "schedule": ["", "order", "recomputation", "offload", "joint", "policy"],
    "papers": ["importers", "", "oracle"],
    "torch": ["shared", "step", "recording", "", "cuda"],
    "standin": ["", "runtime", "driver", "libraries", "nccl"],
    "cli": ["core", "summaries", "report", "dry_run", ""],
}
# The modules of the Python package, lowest first.
PYTHON = [
    "_build",
    "_core",
    "_errors",
    "_stats",
    "_streams",
    "_generators",
    "_libraries",
    "_torch_script",
    "_storages",
    "_byte_access",
    "_other_threads",
    "_extensions",
    "_library",
    "_install",
    "_place",
    "_order",
    "_schedule",
    "_step_program",
    "_partition",
    "_loop",
    "_program",
    "__init__",
    "__main__",
]
WITHOUT_LIBTORCH = ORDER[: ORDER.index("torch")] + ["cli"]
WIDEST = 100  # columns of a README
SOURCES = {".h", ".cc", ".cu", ".cuh", ".in"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
IMPORT = re.compile(r"^\s*from berth(?:\.(\w+))? import (.*)")
CUDA = re.compile(r"^(cuda|cuda_runtime|cuda_runtime_api|cublas|cudnn|nvtx3/.*)(\.h|\.hpp)?$")


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def sources(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES and path.is_file())


def floor_of(path):
    """The folder within a folder of csrc, of a path below that; "" for none."""
    return path.parts[0] if len(path.parts) > 1 else ""


def floor_violation(folder, path, target):
    """What is wrong with a file of csrc/`folder` that includes another of it; None: nothing."""
    floors = FLOORS.get(folder.name)
    if floors is None:
        return None
    own, other = floor_of(path.relative_to(folder)), floor_of(pathlib.PurePath(*pathlib.PurePath(target).parts[2:]))
    for floor in (own, other):
        if floor not in floors:
            return f"csrc/{folder.name}/{floor} is not in the order of the floors: {' '.join(filter(None, floors))}"
    if floors.index(other) > floors.index(own):
        return f"{other or folder.name} does not lie below {own or folder.name}"
    return None


def folder_violations(root, folder):
    """Violations of one folder of csrc."""
    name = folder.name
    if not (folder / "README.md").is_file():
        yield f"csrc/{name}: has no README.md that says what it is for"
    if name not in ORDER:
        yield f"csrc/{name}: is not in the order of the layers: {' '.join(ORDER)}"
        return
    for path in sources(folder):
        for number, quoted, target in includes(path):
            where = f"{path.relative_to(root)}:{number}: includes {target}"
            other = target.split("/")[1] if target.startswith("csrc/") else None
            if other is not None:
                floor = floor_violation(folder, path, target) if other == name else None
                if (
                    name == "torch"
                    and path.relative_to(folder).parts[0] != "cuda"
                    and (other == "cuda" or target.startswith("csrc/torch/cuda/"))
                ):
                    yield f"{where}: only csrc/torch/cuda may, the CPU part builds without CUDA"
                elif floor is not None:
                    yield f"{where}: {floor}"
                elif other != name and (other not in ORDER or ORDER.index(other) > ORDER.index(name)):
                    yield f"{where}: {other} does not lie below {name}"
                elif other == "torch" and name == "cli":
                    yield f"{where}: the program links no libtorch"
            elif quoted and (path.parent / target).exists():
                yield f"{where}: internal headers are included from the root, as csrc/{name}/{target}"
            elif LIBTORCH.match(target) and name in WITHOUT_LIBTORCH and path.parent.name != "children":
                yield f"{where}: {name} builds without libtorch"
            elif CUDA.match(target) and name in ORDER[: ORDER.index("cuda")]:
                yield f"{where}: {name} builds without CUDA"
    build = folder / "CMakeLists.txt"
    if build.is_file():
        for number, line in enumerate(build.read_text(encoding="utf-8").splitlines(), 1):
            for other in re.findall(r"\bberth(?:::|_)(\w+)", line.split("#")[0]):
                if other in ORDER and other != name and ORDER.index(other) > ORDER.index(name):
                    yield f"{build.relative_to(root)}:{number}: links {other}: it does not lie below {name}"
                elif other == "torch" and name == "cli":
                    yield f"{build.relative_to(root)}:{number}: links torch: the program links no libtorch"


def python_violations(root):
    """Violations of the Python package: its modules import those below them, and its C++ part includes no libtorch."""
    package = root / "python_shim/berth"
    for path in sorted(package.glob("*.py")):
        if path.stem not in PYTHON:
            yield f"{path.relative_to(root)}: is not in the order of the modules: {' '.join(PYTHON)}"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = IMPORT.match(line)
            if match is None:
                continue
            for name in [match.group(1)] if match.group(1) else re.findall(r"\w+", match.group(2)):
                if name in PYTHON and PYTHON.index(name) >= PYTHON.index(path.stem):
                    yield f"{path.relative_to(root)}:{number}: imports {name}: it does not lie below {path.stem}"
    for path in sources(root / "python_shim"):
        for number, _, target in includes(path):
            if target.startswith(("csrc/torch/", "csrc/standin/")) or LIBTORCH.match(target):
                yield f"{path.relative_to(root)}:{number}: includes {target}: the module builds without libtorch"


def violations(root):
    """All violations below `root`, as texts that name file and line."""
    folders = [folder for folder in sorted((root / "csrc").iterdir()) if folder.is_dir() and any(folder.iterdir())]
    for folder in folders:
        yield from folder_violations(root, folder)
    yield from python_violations(root)
    for path in sources(root / "include"):
        for number, quoted, target in includes(path):
            if quoted or target.startswith("csrc/"):
                yield f"{path.relative_to(root)}:{number}: includes {target}: public headers use only <berth/...> and the system's"
            elif LIBTORCH.match(target) and not path.name.startswith(("torch", "cuda")):
                yield f"{path.relative_to(root)}:{number}: includes {target}: only <berth/torch.h> and <berth/cuda.h> may"
    for path in sources(root / "tests"):
        for number, _, target in includes(path):
            if target.startswith("bench/") and path.relative_to(root).parts[1] != "bench":
                yield f"{path.relative_to(root)}:{number}: includes {target}: benches use tests/support, tests use no bench"
    for folder in folders:
        for path in sources(folder):
            for number, _, target in includes(path):
                if target.startswith("csrc/standin/") and folder.name != "standin":
                    yield f"{path.relative_to(root)}:{number}: includes {target}: nothing links the stand-in"


def wide_lines(root):
    """Lines of READMEs that are wider than a reader's window."""
    for path in sorted(root.rglob("README.md")):
        if any(part.startswith(".") or part == "build" for part in path.relative_to(root).parts):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > WIDEST:
                yield f"{path.relative_to(root)}:{number}: is {len(line)} columns wide, the most is {WIDEST}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    if not (root / "csrc").is_dir():
        sys.exit(f"check_layers: {root} holds no csrc")
    found = sorted({*violations(root), *wide_lines(root)})
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
