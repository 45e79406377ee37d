"""The ends of a program: frees after the driver has gone, and in a forked child."""

import atexit
import os

import child

parser = child.parser(__doc__)
parser.add_argument("--how", choices=["exit", "fork"], required=True)
arguments = parser.parse_args()

import torch  # noqa: E402

child.must_be(child.wanted_allocator())
kept = [torch.full((1 << n,), float(n), device="cuda") for n in range(4, 24)]
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    sums = [block.sum() for block in kept]
for block in kept:
    block.record_stream(side)
if arguments.how == "fork":
    torch.cuda.synchronize()
    pid = os.fork()
    if pid == 0:
        del kept, sums  # frees arrive in the child, where CUDA is not to be called
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    again = [torch.full((1 << n,), 1.0, device="cuda").sum().item() for n in range(4, 20)]
    child.write(arguments, {"child_exit_code": code, "sums_right": child.STANDIN or again == [float(1 << n) for n in range(4, 20)],
                            "kept_right": child.STANDIN or all(bool((block == n).all()) for n, block in enumerate(kept, 4))})
else:
    import builtins

    builtins.kept_to_the_end = (kept, sums, side, torch.cuda.Event())  # freed by nobody, or by the interpreter's last breath
    if hasattr(torch.cuda, "CUDAGraph"):
        builtins.kept_graph = torch.cuda.CUDAGraph()
    atexit.register(lambda: kept.clear())
    child.write(arguments, {"blocks": len(kept)})
