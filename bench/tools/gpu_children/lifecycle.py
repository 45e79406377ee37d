"""The ends of a program: frees after the driver has gone, in a forked child, and by signals."""

import atexit
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import child

parser = child.parser(__doc__)
parser.add_argument("--how", choices=["exit", "fork", "signals", "train"], required=True)
arguments = parser.parse_args()

import torch  # noqa: E402

child.must_be(child.wanted_allocator())


def blocks():
    """Of every size, used on a second stream too."""
    made = [torch.full((1 << n,), float(n), device="cuda") for n in range(4, 24)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        sums = [block.sum() for block in made]
    for block in made:
        block.record_stream(side)
    return made, sums, side


def ended_by(number, wanted):
    """Another process that trains, and how it ends by the signal."""
    free = torch.cuda.mem_get_info()[0]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-B", __file__, "--how", "train", "--json", pathlib.Path(folder, "child.json")],
            stdout=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()  # it trains
        time.sleep(0.3)
        start = time.monotonic()
        process.send_signal(number)
        process.wait(30)
    seconds = time.monotonic() - start
    kept = free
    for _ in range(50):  # the driver takes a moment
        kept = free - torch.cuda.mem_get_info()[0]
        if kept <= 0:
            break
        time.sleep(0.1)
    return {
        "signal": signal.Signals(number).name,
        "exit_code": process.returncode,
        "wanted": wanted,
        "seconds": seconds,
        "kept_bytes": max(kept, 0),
    }


if arguments.how == "fork":
    kept, sums, _ = blocks()
    torch.cuda.synchronize()
    pid = os.fork()
    if pid == 0:
        del kept, sums  # frees arrive in the child, where CUDA is not to be called
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    again = [torch.full((1 << n,), 1.0, device="cuda").sum().item() for n in range(4, 20)]
    child.write(
        arguments,
        {
            "child_exit_code": code,
            "sums_right": child.STANDIN or again == [float(1 << n) for n in range(4, 20)],
            "kept_right": child.STANDIN or all(bool((block == n).all()) for n, block in enumerate(kept, 4)),
        },
    )
elif arguments.how == "signals":
    torch.ones(1, device="cuda")
    child.write(
        arguments,
        {
            "ends": [
                ended_by(signal.SIGTERM, -signal.SIGTERM),
                ended_by(signal.SIGINT, 3),
                ended_by(signal.SIGKILL, -signal.SIGKILL),
            ]
        },
    )
elif arguments.how == "train":
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(256, 512, device="cuda")).square().mean().backward()
        optimizer.step()

    for _ in range(10):
        step()
    try:
        print("training", flush=True)
        while True:
            step()
    except KeyboardInterrupt:
        step()  # the allocator goes on
        torch.cuda.synchronize()
        sys.exit(3)
else:
    import builtins

    kept, sums, side = blocks()
    builtins.kept_to_the_end = (
        kept,
        sums,
        side,
        torch.cuda.Event(),
    )  # freed by nobody, or by the interpreter's last breath
    builtins.kept_graph = torch.cuda.CUDAGraph()
    atexit.register(lambda: kept.clear())
    child.write(arguments, {"blocks": len(kept)})
