"""The table of bench/gpu: all its rows, in the order of worth."""

import gpu_figure_rows
import gpu_longer_rows
import gpu_promise_rows
import gpu_rows
import gpu_working_rows

WORTH = (
    "start",
    "cost",
    "device",
    "ends",
    "graphs",
    "sharing",
    "numerics",
    "time",
    "steps",
    "soak",
    "promises",
    "repeats",
    "latency",
    "train-cpp",
)

# Where the rows are; each group is told by one of them.
PARTS = (gpu_working_rows, gpu_figure_rows, gpu_promise_rows, gpu_longer_rows)

GROUPS = {name: gpu_rows.GROUPS[name] for name in WORTH}
ROWS = sorted(gpu_rows.ROWS, key=lambda row: (row.more, WORTH.index(row.group)))
