"""What it costs that a stream waits for an event: on the host, and on the device between two small kernels."""

import statistics
import time

import child

parser = child.parser(__doc__)
parser.add_argument("--pairs", type=int, default=2000)
arguments = parser.parse_args()

import torch  # noqa: E402

one, other = torch.cuda.Stream(), torch.cuda.Stream()
x = torch.zeros(256, device="cuda")
events = [torch.cuda.Event() for _ in range(64)]


def run(kind):
    """Microseconds a pair: of the host until all is queued, of the device over all of it."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(one):
        torch.cuda._sleep(10_000_000)  # so that the host is ahead
        start.record()
        begin = time.perf_counter()
        for index in range(arguments.pairs):
            x.add_(1)
            if kind == "record":
                events[index % 64].record(one)
            elif kind == "wait for what is over":
                events[index % 64].record(other)
                one.wait_event(events[index % 64])
        queued = time.perf_counter()
        end.record()
    torch.cuda.synchronize()
    return 1e6 * (queued - begin) / arguments.pairs, 1e3 * start.elapsed_time(end) / arguments.pairs


kinds = ["kernel alone", "record", "wait for what is over"]
times = {kind: [] for kind in kinds}
for turn in range(7):
    for kind in kinds[:: 1 if turn % 2 == 0 else -1]:
        times[kind].append(run(kind))
child.write(
    arguments,
    {
        kind: {
            "host_us": statistics.median(host for host, _ in found),
            "device_us": statistics.median(device for _, device in found),
        }
        for kind, found in times.items()
    },
)
