#!/usr/bin/env python3
"""Tensors shared by processes and copied between devices, on the stand-in with two of them, by unchanged torch."""

import unittest

import torch
import torch.cuda.nccl
import torch.multiprocessing as processes


def consumer(inbox, outbox):
    tensor = inbox.get()
    outbox.put((str(tensor.device), tensor.cpu().tolist()))
    tensor.copy_(torch.full((8,), 7.0))
    torch.cuda.synchronize()
    del tensor
    outbox.put("written")


class Sharing(unittest.TestCase):
    def test_another_process_reads_and_writes_a_shared_tensor(self):
        context = processes.get_context("spawn")
        inbox, outbox = context.Queue(), context.Queue()
        process = context.Process(target=consumer, args=(inbox, outbox))
        process.start()
        tensor = torch.arange(8.0).cuda()
        inbox.put(tensor)
        self.assertEqual(outbox.get(timeout=60), ("cuda:0", list(range(8))))
        self.assertEqual(outbox.get(timeout=60), "written")
        process.join()
        self.assertEqual(process.exitcode, 0)
        self.assertEqual(tensor.cpu().tolist(), [7.0] * 8)

    def test_a_copy_to_another_device_keeps_the_values(self):
        here = torch.arange(5.0).to("cuda:0")
        there = here.to("cuda:1")
        self.assertEqual(there.cpu().tolist(), here.cpu().tolist())
        self.assertEqual(torch.cuda.memory_allocated(1), 512)
        self.assertTrue(torch.cuda.can_device_access_peer(0, 1))

    def test_one_process_trains_on_both_devices(self):
        model = torch.nn.DataParallel(torch.nn.Linear(8, 4).cuda())
        model(torch.zeros(6, 8, device="cuda")).sum().backward()
        self.assertEqual(model.module.weight.grad.shape, (4, 8))
        numbers = [torch.full((3,), device + 1.0).to(device) for device in range(2)]
        torch.cuda.nccl.all_reduce(numbers)
        self.assertEqual([number.cpu().tolist() for number in numbers], [[3.0] * 3] * 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
