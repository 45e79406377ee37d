"""What the rows of bench/gpu are given: the machine, and how programs run on it under an allocator."""

import ctypes
import json
import os
import pathlib
import platform
import re
import shlex
import signal
import subprocess
import tempfile
import time

import training
from training import ROOT, Failure

CHILDREN = pathlib.Path(__file__).parent / "gpu_children"
PACK = ROOT / ".carry/gpu"  # what bench/gpu --pack fills


def gpu_count():
    """How many GPUs the driver sees; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def without_places(text):
    """Without what names a machine: its host and absolute paths."""
    text = text.replace(str(ROOT) + "/", "").replace(str(ROOT), ".")
    text = re.sub(r"(?<![\w.:/])/(?:[\w.+@~-]+/)+", ".../", text)
    node = platform.node()
    return re.sub(rf"\b{re.escape(node)}\b", "HOST", text) if len(node) > 3 else text


def short_name(command):
    """Of a program behind what launches it: a script or a file."""
    words = [str(word) for word in command]
    words = words[words.index("--") + 1 :] if "--" in words else words
    return pathlib.Path(next((word for word in words if word.endswith(".py")), words[0])).name


def find_python(named):
    named = named or os.environ.get("BERTH_PYTHON")
    local = ROOT / ".venv/bin/python3"
    return named or (str(local) if list(ROOT.glob(".venv/lib/python3*/site-packages/torch")) else "python3")


def find_build(named):
    """What is run: a build that was named, what was carried along, or the build of this tree."""
    return named or (PACK / "build" if PACK.is_dir() else ROOT / "build/release")


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.small, self.standin = arguments.small, arguments.standin
        self.build = find_build(arguments.build_dir)
        self.python = find_python(arguments.python)
        self.gpus = 1 if self.standin else gpu_count()
        self.until = None  # when what the row wants is over
        self.folder = None  # for files of the row
        self.kept = None  # for files that go into the archive
        self.last_errors, self.last_code = "", 0
        self.logs = getattr(arguments, "row", None) is not None  # to standard output, which is the row's log
        self.torch_root_ = None

    def torch_root(self):
        if self.torch_root_ is None:
            result = subprocess.run(
                [
                    self.python,
                    "-c",
                    "import importlib.util as u; s = u.find_spec('torch'); "
                    "print(s.submodule_search_locations[0] if s else '')",
                ],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
            )
            if result.returncode != 0 or not result.stdout.strip():
                raise Failure(
                    f"{pathlib.Path(self.python).name} has no torch: name one that has by --python or BERTH_PYTHON"
                )
            self.torch_root_ = pathlib.Path(result.stdout.strip())
        return self.torch_root_

    def left(self):
        """Seconds of those that the row wants."""
        return self.until - time.monotonic()

    def run(self, command, environment=None, cwd=ROOT, accept=(0,)):
        """Runs a command to its end and returns its standard output. It belongs to the row's process group, which ends at the row's limit."""
        result = subprocess.run(
            [str(part) for part in command],
            env=self.environment(environment or {}),
            cwd=cwd,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        said, errors, code = result.stdout, result.stderr, result.returncode
        if self.logs:
            print(f"$ {shlex.join(map(str, command))}\n{said}{errors}(ended with {code})", flush=True)
        if code not in accept:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
            words = "\n".join(part.strip() for part in (said[-2000:], errors[-2500:]) if part.strip())
            raise Failure(f"{short_name(command)} {how}\n{words}")
        self.last_errors, self.last_code = errors, code
        return said

    def environment(self, extra):
        """Without what steers allocators; with what carried programs are linked to: their own libraries, torch's and CUDA's."""
        names = {
            "PYTORCH_ALLOC_CONF",
            "PYTORCH_CUDA_ALLOC_CONF",
            "CUBLAS_WORKSPACE_CONFIG",
            "PYTORCH_NO_CUDA_MEMORY_CACHING",
        }
        clean = {name: value for name, value in training.clean_environment({}).items() if name not in names}
        libraries = [
            self.build / "lib",
            self.torch_root() / "lib",
            self.torch_root().parent / "nvidia/cu13/lib",
            pathlib.Path("/usr/local/cuda/lib64"),
        ]
        path = [
            *(str(folder) for folder in libraries if folder.is_dir()),
            *filter(None, [clean.get("LD_LIBRARY_PATH")]),
        ]
        return {
            **clean,
            "LD_LIBRARY_PATH": ":".join(path),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **{name: str(value) for name, value in extra.items()},
        }

    def launch(self, command, environment=None, installs=False, devices=1, copies=False):
        """A command that uses CUDA. `installs`: the program is linked to berth; else berth is put under it where the mode asks for it.
        `copies`: on the stand-in, large ones move bytes too."""
        environment = dict(environment or {})
        mode = environment.get("BERTH_MODE", "off")
        library = self.program("libberth_torch_cuda.so") if mode != "off" and not installs else None
        if self.standin:
            front = [
                self.standin / "berth-standin",
                *([] if copies else ["--copy-limit", 1 << 20]),
                "--devices",
                devices,
                *(["--preload", library] if library else []),
                "--",
            ]
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
            raise Failure(f"{name} is not there: bench/gpu --pack takes along what is built, where it is built")
        return path

    def machine(self):
        """The class of machine; where the children cannot say, the reason."""
        host = training.machine()
        machine = {key: host[key] for key in ("cpu", "cores", "memory_bytes", "libc")}
        before = self.folder
        try:
            with tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                machine |= self.child("describe")
        except Failure as failure:
            machine["unknown"] = without_places(str(failure))[-500:]
        finally:
            self.folder = before
        return machine


class Process:
    """A process of a row, in a session of its own: what it starts ends with it."""

    def __init__(self, command, log):
        self.log = open(log, "wb")
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self, seconds):
        """Its exit code, or None where it was ended at its limit."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.end()

    def end(self):
        """Also what it left behind."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()
