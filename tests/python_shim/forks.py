"""A process that has imported torch, and forks for each program: programs of tests start in 0.1 s instead of some 3 s of a core."""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import types

# What a process reads once, before its program begins: such a program needs a process of its own.
READ_AT_START = ("CUDA_", "LD_", "MKL_", "OMP_", "PYTHON", "PYTORCH_", "TORCH_")
# Bytes of a request, most of which are the environment: less than what a socket's buffer takes.
LARGEST_REQUEST = 100_000


class Forks:
    """The forking process of one command line that starts a Python, such as the stand-in's with its options.

    Programs run one at a time. The process ends with this one.
    """

    def __init__(self, start):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [*start, sys.executable, "-B", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
            )

    def run(self, arguments, *, folder, timeout, stdin, environment):
        """A program and its arguments; as subprocess.run() with text that is captured."""
        request = json.dumps({"arguments": arguments, "folder": str(folder or os.getcwd()), "environment": environment})
        if len(request) > LARGEST_REQUEST:
            raise ValueError(f"a program's request has {len(request)} bytes, of at most {LARGEST_REQUEST}")
        with (
            open(os.devnull) as nothing,
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as errors,
        ):
            given = nothing if stdin == subprocess.DEVNULL else stdin
            files = [given if isinstance(given, int) else given.fileno(), output.fileno(), errors.fileno()]
            socket.send_fds(self.socket, [request.encode()], files)
            child = self.answer("it could not fork")
            self.socket.settimeout(timeout)
            try:
                code = self.answer("it ended before its program")
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self.socket.settimeout(None)
                self.answer("it ended before its program")
                raise subprocess.TimeoutExpired(arguments, timeout) from None
            finally:
                self.socket.settimeout(None)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read())
        return subprocess.CompletedProcess(arguments, code, *texts)

    def answer(self, otherwise):
        message = self.socket.recv(64)
        if not message:
            raise RuntimeError(f"the process that forks is gone: {otherwise}")
        return int(message)


def next_program(connection):
    """Forks for each request; returns the program's request in its process."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 3)
        if not message:
            sys.exit(0)
        child = os.fork()
        if child == 0:
            connection.close()
            return json.loads(message), files
        for file in files:
            os.close(file)
        connection.send(str(child).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def become(request, files):
    """Runs the request's program as this process's main one, as `python PROGRAM ARGUMENT...` does."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    # What the stand-in's launcher has set stays.
    launched = {name: value for name, value in os.environ.items() if name.startswith(("BERTH_STANDIN_", "LD_"))}
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ.update(launched)
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit.register(gc.freeze)  # step programs unfreeze all: see berth._extensions.all_objects()
    program = request["arguments"][0]
    sys.argv = request["arguments"]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    main = types.ModuleType("__main__")
    main.__file__ = program
    sys.modules["__main__"] = main
    with open(program, "rb") as source:
        code = compile(source.read(), program, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    import torch
    import torch._dynamo  # the first optimizer imports it

    gc.freeze()  # collections of the programs, and their ends, do not visit and so copy what is imported here
    become(*next_program(socket.socket(fileno=int(sys.argv[1]))))
