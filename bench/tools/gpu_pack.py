"""What bench/gpu takes along to a machine with a GPU, and the rehearsal of all of it without one."""

import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import training
from gpu_bench import PACK, Bench, find_build
from training import ROOT, Failure

BUILT = [
    "berth",
    "berth-device-report",
    "libberth_torch_cuda.so",
    "libberth_torch_cuda_allocator.so",
    "libberth.so",
    "bench/cuda_latency",
    "bench/page_costs",
    "bench/train/train_cuda",
    "tests/cuda/berth_cuda_gpu_test",
]
# What results depend on, beside the machine.
SOURCES = (
    "CMakeLists.txt",
    "csrc",
    "include",
    "cmake",
    "bench",
    "python_shim/berth",
    "tests/cuda",
    "tests/torch",
    "tests/support",
)
# There wherever a torch for CUDA runs. What else a program is linked to is taken along.
COMMON = re.compile(
    r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|z|torch|torch_cpu|torch_cuda|c10|c10_cuda)\.so(\.\d+)*|ld-linux-.*"
)
TRAVELS = 64 << 20  # bytes that a lent machine may take


def state_of_tree():
    """A number of the sources that are measured: a commit may be unknown where only the files were copied."""
    digest = hashlib.sha256()
    for name in SOURCES:
        top = ROOT / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if (
                path.is_file()
                and "results" not in path.parts
                and "__pycache__" not in path.parts
                and path.suffix != ".md"
            ):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def torch_version(root):
    """Of a torch by its file, so that it is not imported: "2.11.0", "13.0"."""
    text = (root / "version.py").read_text()
    version, cuda = re.search(r"__version__ = '([\d.]+)", text), re.search(r"^cuda\b.*= '([\d.]+)'", text, re.MULTILINE)
    return version.group(1) if version else "unknown", cuda.group(1) if cuda else None


def run(command, **options):
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options
    )
    if result.returncode != 0:
        raise Failure(
            f"{pathlib.Path(str(command[0])).name} ended with {result.returncode}: {(result.stdout + result.stderr).strip()[-1000:]}"
        )
    return result.stdout


def other_libraries(path, libraries):
    """Those that a program needs and that may not be elsewhere, by name."""
    found = dict(re.findall(r"(\S+) => (/\S+)", run(["ldd", path], env={**os.environ, "LD_LIBRARY_PATH": libraries})))
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "-d", path]))
    missing = [name for name in needed if not COMMON.fullmatch(name) and name not in found]
    if missing:
        raise Failure(f"{path.name} needs {', '.join(missing)}, which is not on this machine")
    return {name: pathlib.Path(found[name]) for name in needed if not COMMON.fullmatch(name)}


def pack(arguments, folder):
    """Copies what was built into the folder, without debug information and without places of this machine. Returns its bytes."""
    bench = Bench(arguments)
    build = arguments.build_dir or ROOT / "build/release"
    missing = [name for name in BUILT if not (build / name).exists()]
    if missing:
        raise Failure(f"not built in {build.name}: {', '.join(missing)}")
    version, cuda = torch_version(bench.torch_root())
    shutil.rmtree(folder, ignore_errors=True)
    libraries = f"{bench.torch_root()}/lib:{bench.torch_root().parent}/nvidia/cu13/lib"
    for name in BUILT:
        target = folder / "build" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / name, target)  # of a link, what it leads to
        run(["strip", "--strip-unneeded", target])
        run(["cmake", f"-DFILE={target}", "-P", ROOT / "cmake/RemoveRunPath.cmake"])
        if re.search(r"RPATH|RUNPATH", run(["readelf", "-d", target])):
            raise Failure(f"{name} still names folders of this machine")
        for other, path in other_libraries(target, libraries).items():
            (folder / "build/lib").mkdir(exist_ok=True)
            shutil.copy2(path, folder / "build/lib" / other)
    for name in ("digits.csv", "text.txt"):
        if (ROOT / "build/data" / name).is_file():
            (folder / "build/data").mkdir(exist_ok=True)
            shutil.copy2(ROOT / "build/data" / name, folder / "build/data" / name)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    checksums = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    manifest = {
        "commit": training.commit(),
        "sources": state_of_tree(),
        "machine": platform.machine(),
        "torch": version,
        "cuda": cuda or "13",
        "files": checksums,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return sum(path.stat().st_size for path in files)


def manifest():
    """Of what was carried along, or nothing."""
    path = PACK / "manifest.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def check(bench):
    """Throws where what was carried along cannot run here. A note where it is of other sources, else nothing."""
    carried = manifest()
    if not carried or bench.build != PACK / "build":
        return ""
    damaged = [
        name
        for name, checksum in carried["files"].items()
        if not (PACK / name).is_file() or hashlib.sha256((PACK / name).read_bytes()).hexdigest() != checksum
    ]
    if damaged:
        raise Failure(f"not as they were packed: {', '.join(damaged)}: run bench/gpu --pack again and copy .carry")
    if platform.machine() != carried["machine"]:
        raise Failure(f"what was packed is for {carried['machine']}, this machine is {platform.machine()}")
    version, cuda = torch_version(bench.torch_root())
    if version.split(".")[:2] != carried["torch"].split(".")[:2]:
        raise Failure(
            f"what was packed is for torch {carried['torch']}, {pathlib.Path(bench.python).name} has {version}"
        )
    if cuda and cuda.split(".")[0] != carried["cuda"].split(".")[0]:
        raise Failure(f"what was packed is for CUDA {carried['cuda']}, the torch here has {cuda}")
    return "" if carried["sources"] == state_of_tree() else "the sources beside it are not those that were packed"


def travelling_files():
    """What a copy of the working tree has: files that git knows or does not ignore."""
    names = run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT).split("\0")
    return sorted(name for name in names if name and (ROOT / name).is_file())


def pack_here(arguments):
    size = pack(arguments, PACK)
    tree = sum((ROOT / name).stat().st_size for name in travelling_files())
    print(
        f"gpu: {size / 2**20:.1f} MiB in {PACK.relative_to(ROOT)}; with the working tree {(size + tree) / 2**20:.1f} MiB travel"
    )
    if size + tree > TRAVELS:
        raise Failure(f"that is more than the {TRAVELS >> 20} MiB that a lent machine takes")
    return 0


def rehearse(arguments, passed_on):
    """All of it on the stand-in: in a clean folder that has the working tree and what was packed, and nothing else of this machine's build."""
    build = find_build(arguments.build_dir)
    if not (build / "standin/berth-standin").is_file():
        raise Failure(f"the stand-in is not built in {build.name}: build the target berth_standin_libraries")
    python = Bench(arguments).python
    with tempfile.TemporaryDirectory(prefix="berth-rehearsal-") as name:
        top = pathlib.Path(name)
        clean, standin = top / "berth", top / "standin"
        for file in travelling_files():
            (clean / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, clean / file)
        size = pack(arguments, clean / PACK.relative_to(ROOT))
        shutil.copytree(build / "standin", standin)
        print(f"gpu: rehearsed in a clean folder, with {size / 2**20:.1f} MiB that are carried", flush=True)
        variables = {
            name: value
            for name, value in training.clean_environment({}).items()
            if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")
        }
        command = [
            sys.executable,
            "-B",
            clean / "bench/tools/gpu.py",
            "--standin",
            standin,
            "--python",
            shutil.which(python) or python,
            "--minutes",
            "inf",
            "--patience",
            "20",
            "--work",
            arguments.work,
            "--archive",
            arguments.archive,
            *passed_on,
        ]
        return subprocess.run(
            [str(part) for part in command], cwd=top, env=variables, stdin=subprocess.DEVNULL
        ).returncode
