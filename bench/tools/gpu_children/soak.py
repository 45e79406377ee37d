"""Blocks on four streams, filled with a pattern of their number and offset, used on other streams, checked before they are freed.

The same program of requests every step, so that it is planned, with some steps in which more is asked for. What a kernel wrote into a
block that another still used is a word that differs. Nothing waits for the host but the end of a step now and then.
"""

import random
import threading
import time

import child

parser = child.parser(__doc__)
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--threads", type=int, default=1, help="each with streams of its own")
parser.add_argument("--blocks", type=int, default=120, help="a step and thread")
parser.add_argument("--largest", type=int, default=24 << 20, help="bytes of a block")
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()

import torch  # noqa: E402

child.must_be(child.wanted_allocator())
SLEEP = 20_000  # cycles that a stream is kept busy before it reads, so that too early a reuse is met


class Worker:
    def __init__(self, number):
        self.number = number
        self.streams = [torch.cuda.Stream() for _ in range(4)]
        self.wrong = []
        for stream in self.streams:
            with torch.cuda.stream(stream):
                self.wrong.append(torch.zeros((), dtype=torch.int64, device="cuda"))
        self.blocks = self.bytes = self.crossings = self.steps = 0
        self.next = number << 20

    def make(self, size, stream):
        self.next = (self.next + 7919) % (1 << 29)
        self.blocks += 1
        self.bytes += size
        with torch.cuda.stream(stream):
            block = torch.empty(max(size // 4, 1), dtype=torch.int32, device="cuda")
            torch.arange(self.next, self.next + block.numel(), dtype=torch.int32, device="cuda", out=block)
        return block, self.next, stream

    def check(self, entry, stream):
        block, first, owner = entry
        if stream is not owner:
            stream.wait_stream(owner)
            block.record_stream(stream)
            self.crossings += 1
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            wanted = torch.arange(first, first + block.numel(), dtype=torch.int32, device="cuda")
            self.wrong[self.streams.index(stream)] += (block != wanted).sum()

    def step(self, rng, more):
        live = []
        for index in range(arguments.blocks):
            stream = self.streams[rng.randrange(4)]
            size = rng.choice((300, 4096, 70_000, 1 << 20, 3 << 20, arguments.largest))
            live.append(self.make(size, stream))
            if more and index % 17 == more:
                self.check(self.make(5000 * more, stream), stream)
            while len(live) > 12:
                entry = live.pop(rng.randrange(len(live)))
                self.check(entry, entry[2])
                self.check(entry, self.streams[rng.randrange(4)])  # freed on the host at once, still read by the stream
                del entry
        while live:
            entry = live.pop()
            self.check(entry, self.streams[rng.randrange(4)])
            del entry
        self.steps += 1

    def run(self, until):
        while time.monotonic() < until or self.steps < 30:
            # The same program each step; in one of eight it is disturbed.
            self.step(random.Random(arguments.seed + self.number), self.steps % 8 if self.steps % 8 == 5 else 0)
            if self.steps % 4 == 0:
                for stream in self.streams:
                    stream.synchronize()
            if self.number == 0:
                with torch.cuda.stream(self.streams[0]):  # the mark is that of a stream that asks for memory
                    child.mark_step()
            if self.steps in (6, 8):
                time.sleep(0.2)  # the plan is made beside the program


workers = [Worker(number) for number in range(arguments.threads)]
torch.cuda.synchronize()
until = time.monotonic() + arguments.seconds
threads = [threading.Thread(target=worker.run, args=(until,)) for worker in workers[1:]]
for thread in threads:
    thread.start()
workers[0].run(until)
for thread in threads:
    thread.join()
torch.cuda.synchronize()
child.write(
    arguments,
    {
        "wrong_words": sum(int(count) for worker in workers for count in worker.wrong),
        "blocks": sum(w.blocks for w in workers),
        "bytes": sum(w.bytes for w in workers),
        "crossings": sum(w.crossings for w in workers),
        "steps": sum(w.steps for w in workers),
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "stats": child.berth_stats(),
    },
)
