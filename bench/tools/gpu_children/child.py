"""What the programs that bench/gpu starts have in common. Each is an unchanged PyTorch program: berth is put under it from outside."""

import argparse
import ctypes
import json
import os
import pathlib


def on_standin():
    """Whether the driver is the stand-in's, by the launcher or in another way. Asked before torch is imported or after."""
    try:
        return hasattr(ctypes.CDLL("libcuda.so.1"), "berth_standin_version")
    except OSError:
        return "BERTH_STANDIN_LAUNCHED" in os.environ


STANDIN = on_standin()


def parser(doc):
    made = argparse.ArgumentParser(description=doc)
    made.add_argument("--json", type=pathlib.Path, required=True, help="write the result to this file")
    return made


def write(arguments, result):
    arguments.json.write_text(json.dumps(result))


def berth_stats(device=0):
    """berth's counters, or nothing where it is not there."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "berth_torch_cuda_stats"):
        return {}
    library.berth_torch_cuda_stats.restype = ctypes.c_size_t
    text = ctypes.create_string_buffer(8192)
    library.berth_torch_cuda_stats(device, text, ctypes.c_size_t(len(text)))
    stats = json.loads(text.value or b"{}")
    return stats if stats.get("requests") else {}


def mark_step():
    library = ctypes.CDLL(None)
    if hasattr(library, "berth_torch_mark_step"):
        library.berth_torch_mark_step()


def must_be(allocator):
    """berth has to have been there, or not: what follows would say little otherwise."""
    import torch

    found = torch.cuda.get_allocator_backend()
    if found != allocator:
        raise SystemExit(f"the allocator is {found}, wanted {allocator}")


def wanted_allocator():
    if os.environ.get("BERTH_MODE", "off") != "off":
        return "berth"
    return "cudaMallocAsync" if "cudaMallocAsync" in os.environ.get("PYTORCH_ALLOC_CONF", "") else "native"
