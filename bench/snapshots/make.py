"""Makes the small memory snapshots of this folder anew, with the torch that is there, on the stand-in and under PyTorch's own allocator:

    build/release/standin/berth-standin --gpu A100-80 -- .venv/bin/python bench/snapshots/make.py python bench/snapshots/python.pickle.gz

Forms: python (torch.cuda.memory._snapshot(), stacks of Python, annotations, two streams, a request that is refused), cpp
(torch::cuda::_memory_snapshot_pickled()), cut (a ring of 150 entries), late (history turned on after two steps). With PYTORCH_ALLOC_CONF=
expandable_segments:True the segments are expandable. What it prints is what the allocator counted itself, for tests.
"""

import ctypes
import gzip
import json
import pathlib
import pickle
import sys

import torch
import torch.nn as nn

FORM, OUTPUT, STEPS = sys.argv[1], pathlib.Path(sys.argv[2]), 6
SETTINGS = {
    "python": {"stacks": "python", "global_record_annotations": True},
    "cpp": {"context": None},
    "cut": {"context": None, "max_entries": 150},
    "late": {"context": None, "global_record_annotations": True},
}


def written_by_cpp():
    """What the C++ writer gives: a std::string by value, so that its place is a hidden first argument."""
    library = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib/libtorch_cuda.so"))
    place = (ctypes.c_void_p * 4)()
    library._ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev(ctypes.byref(place))
    return ctypes.string_at(place[0], place[1])


def written_by_python():
    snapshot = torch.cuda.memory._snapshot()
    frames = {
        id(frame): frame for trace in snapshot["device_traces"] for entry in trace for frame in entry.get("frames", [])
    }
    frames.update(
        {
            id(frame): frame
            for segment in snapshot["segments"]
            for block in segment["blocks"]
            for frame in block["frames"]
        }
    )
    for frame in frames.values():  # no paths of the machine that made it
        path = frame["filename"]
        at = path.find("site-packages/")
        frame["filename"] = "/venv/lib/python3/" + path[at:] if at >= 0 else "/program/" + pathlib.Path(path).name
    return pickle.dumps(snapshot, protocol=4)


def record():
    torch.cuda.memory._record_memory_history(**SETTINGS[FORM])


def main():
    if FORM != "late":
        record()
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    for step in range(STEPS):
        if FORM == "late" and step == 2:
            record()
        x = torch.randn(512, 256, device="cuda")
        optimizer.zero_grad()
        y = model(x)
        if FORM == "python":
            with torch.cuda.stream(side):
                z = y * 2
            y.record_stream(side)
            del z
        (y**2).mean().backward()
        optimizer.step()
    if FORM == "python":
        try:
            torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
    data = written_by_cpp() if FORM == "cpp" else written_by_python()
    OUTPUT.write_bytes(gzip.compress(data, 9, mtime=0))
    stats = torch.cuda.memory_stats()
    print(
        json.dumps(
            {
                "reserved_peak": stats["reserved_bytes.all.peak"],
                "reserved": stats["reserved_bytes.all.current"],
                "allocated_peak": stats["allocated_bytes.all.peak"],
                "bytes": len(data),
            }
        )
    )


main()
