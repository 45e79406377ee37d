#!/usr/bin/env python3
"""Weights of more handles than a process may have file descriptors go to another process, without rights over each other.

On the stand-in with berth as the allocator of both ends. Memory is in handles of 2 MiB, the default.
"""

import ctypes
import os
import resource
import unittest

import torch
import torch.multiprocessing as processes

MIB = 1 << 20
DESCRIPTORS = 256  # that a process may have
TENSORS, EACH = 3, 400 * MIB  # 600 handles


class Filter(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("jump_true", ctypes.c_ubyte),
        ("jump_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    ]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filters", ctypes.POINTER(Filter))]


def confine():
    """As in a container: pidfd_getfd() is refused, in this process and its children, and descriptors are few."""
    load_number, jump_if_equal, give = 0x20, 0x15, 0x06
    refuse, allow, eperm, pidfd_getfd = 0x00050000, 0x7FFF0000, 1, 438
    filters = (Filter * 4)(
        Filter(load_number, 0, 0, 0),
        Filter(jump_if_equal, 0, 1, pidfd_getfd),
        Filter(give, 0, 0, refuse | eperm),
        Filter(give, 0, 0, allow),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    set_no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    assert libc.prctl(set_no_new_privileges, 1, 0, 0, 0) == 0
    assert libc.prctl(set_seccomp, mode_filter, ctypes.byref(Program(len(filters), filters)), 0, 0) == 0, (
        ctypes.get_errno()
    )
    assert libc.syscall(pidfd_getfd, -1, 0, 0) == -1 and ctypes.get_errno() == eperm
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def consumer(inbox, outbox):
    before = descriptors()
    tensors = inbox.get()
    outbox.put(([int(tensor[-1]) for tensor in tensors], torch.cuda.get_allocator_backend(), descriptors() - before))
    for tensor in tensors:
        tensor[0] = 7
    torch.cuda.synchronize()
    del tensor, tensors
    outbox.put("written")


class Ipc(unittest.TestCase):
    def test_more_handles_than_descriptors(self):
        context = processes.get_context("spawn")
        inbox, outbox = context.Queue(), context.Queue()
        process = context.Process(target=consumer, args=(inbox, outbox))
        process.start()
        tensors = [torch.empty(EACH, dtype=torch.uint8, device="cuda") for _ in range(TENSORS)]
        for number, tensor in enumerate(tensors):
            tensor[-1] = number + 1
        torch.cuda.synchronize()
        inbox.put(tensors)
        values, backend, more = outbox.get(timeout=120)
        self.assertEqual((values, backend), (list(range(1, TENSORS + 1)), torch.cuda.get_allocator_backend()))
        self.assertLess(more, 20)  # in the end: what was imported needs none
        self.assertEqual(outbox.get(timeout=60), "written")
        process.join()
        self.assertEqual(process.exitcode, 0)
        self.assertEqual([int(tensor[0]) for tensor in tensors], [7] * TENSORS)
        self.assertLess(descriptors(), DESCRIPTORS - 64)


if __name__ == "__main__":
    confine()
    unittest.main(verbosity=2)
