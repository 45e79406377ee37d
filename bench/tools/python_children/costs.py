"""What the package itself costs in a process: importing, installing, counters, a planned request. Prints one JSON object."""

import json
import statistics
import sys
import time

import torch


def timed(function):
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


kind = sys.argv[1]
result = {}
if kind == "berth":
    result["import_ms"], berth = timed(lambda: __import__("berth"))
    result["import_ms"] *= 1000
    result["install_ms"] = 1000 * timed(lambda: berth.install("cpu"))[0]
x = torch.ones(1)
mark = berth.mark_step if kind == "berth" else lambda: None
sizes = [1000 * (1 + k % 7) for k in range(500)]


def step():
    start = time.perf_counter()
    for size in sizes:
        torch.empty(size)
    return time.perf_counter() - start


for _ in range(200):
    step()
    mark()
if kind == "berth":
    for _ in range(400):
        before = berth.stats("cpu").hits
        step()
        mark()
        if berth.stats("cpu").hits - before == len(sizes):
            break
        time.sleep(0.005)
    else:
        sys.exit("nothing was learned")
times = []
for _ in range(400):
    times.append(step() / len(sizes))
    mark()
result["request_ns"] = 1e9 * statistics.median(times)
if kind == "berth":
    result["stats_us"] = statistics.median(timed(lambda: berth.stats("cpu"))[0] for _ in range(2000)) * 1e6
print(json.dumps(result))
