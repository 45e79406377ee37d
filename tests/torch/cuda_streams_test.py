#!/usr/bin/env python3
"""What another stream uses is not handed out before that stream is done, and not kept longer."""

import random
import threading
import unittest

import torch
from cuda_support import ALLOCATOR, KIB, LAZY, MIB, RANDOM, CudaCase, empty, overlap, stat, use


class Streams(CudaCase):
    pace = LAZY  # nothing is over before somebody waits

    def test_a_stream_reuses_its_own_memory_at_once(self):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            first = empty(4 * MIB)
            use(first, side)
            del first
            reserved = torch.cuda.memory_reserved()
            for _ in range(50):
                again = empty(4 * MIB)
                use(again, side)
                del again
        self.assertEqual(torch.cuda.memory_reserved(), reserved)

    def test_memory_freed_on_one_stream_is_not_anothers(self):
        one, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(one):
            for size in (1000, 4 * MIB):
                used = empty(size)
                use(used, one)
                del used
        with torch.cuda.stream(other):
            kept = [empty(size) for size in (1000, 4 * MIB)]
            for tensor in kept:
                use(tensor, other)  # a race with the first stream's kernel is a violation
        del kept, tensor

    def test_recorded_memory_waits_for_that_stream_and_no_longer(self):
        one, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(one):
            shared = empty(4 * MIB)
        other.wait_stream(one)
        use(shared, other)
        shared.record_stream(other)
        where = shared.data_ptr()
        del shared
        self.assertEqual(stat("active.all.current") - stat("allocation.all.current"), 1)
        with torch.cuda.stream(one):
            kept = empty(4 * MIB)
            self.assertFalse(where < kept.data_ptr() + 4 * MIB and kept.data_ptr() < where + 4 * MIB)
            use(kept, one)
            other.synchronize()
            del kept
            kept = empty(4 * MIB)
            reserved = torch.cuda.memory_reserved()
            second = empty(3 * MIB)  # fits where the shared one was
            self.assertEqual(torch.cuda.memory_reserved(), reserved)
        self.assertEqual(stat("active.all.current"), stat("allocation.all.current"))
        del kept, second

    def test_a_view_records_its_whole_storage(self):
        one, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(one):
            base = empty(4 * MIB)
        view = base[MIB:]
        other.wait_stream(one)
        use(base, other)
        view.record_stream(other)
        del base, view
        with torch.cuda.stream(one):
            kept = empty(4 * MIB)
            use(kept, one)
        del kept

    def test_memory_freed_by_another_thread_is_its_streams(self):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            box = [empty(4 * MIB)]
        use(box[0], side)
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
        kept = empty(4 * MIB)
        use(kept, torch.cuda.current_stream())
        del kept

    def test_memory_of_many_recorded_streams_waits_for_all(self):
        streams = [torch.cuda.Stream() for _ in range(5)]
        with torch.cuda.stream(streams[0]):
            shared = empty(4 * MIB)
        for stream in streams[1:]:
            stream.wait_stream(streams[0])
            use(shared, stream, writes=False)
            shared.record_stream(stream)
        where = shared.data_ptr()
        del shared
        for stream in streams[1:]:
            with torch.cuda.stream(streams[0]):
                kept = empty(4 * MIB)
                self.assertFalse(where < kept.data_ptr() + 4 * MIB and kept.data_ptr() < where + 4 * MIB)
                use(kept, streams[0])
                del kept
            stream.synchronize()

    def test_running_out_waits_for_recorded_streams(self):
        side = torch.cuda.Stream()
        shared = empty(50 << 30)
        side.wait_stream(torch.cuda.current_stream())
        use(shared, side)
        shared.record_stream(side)
        del shared
        self.assertEqual(empty(60 << 30).numel(), 60 << 30)


class RandomPrograms(CudaCase):
    pace = RANDOM

    def program(self, seed):
        """Tensors made, used and freed on three streams, as the rules of record_stream want it. The checker knows every use."""
        rng = random.Random(seed)
        streams = [torch.cuda.Stream() for _ in range(3)]
        live = []  # tensor, its stream, the streams that use it
        for _ in range(250):
            choice = rng.random()
            if choice < 0.45 or not live:
                stream = rng.choice(streams)
                with torch.cuda.stream(stream):
                    tensor = empty(rng.choice((100, 2 * KIB, 700 * KIB, MIB, 3 * MIB, 12 * MIB)))
                for other, *_ in live:
                    self.assertFalse(overlap(tensor, other), f"seed {seed}")
                use(tensor, stream)
                live.append((tensor, stream))
            elif choice < 0.7:
                tensor, owner = rng.choice(live)
                stream = rng.choice(streams)
                if stream != owner:
                    stream.wait_stream(owner)
                    tensor.record_stream(stream)
                use(tensor, stream, writes=False)
                owner.wait_stream(stream) if rng.random() < 0.3 else None
            elif choice < 0.97:
                live.pop(rng.randrange(len(live)))
                tensor = other = None
            else:
                rng.choice((torch.cuda.synchronize, torch.cuda.empty_cache))()
            tensor = other = None

    def test_programs_that_follow_the_rules_have_no_race(self):
        for seed in range(6):
            with self.subTest(seed=seed):
                self.program(seed)
                self.settle()
                self.assertEqual(stat("allocation.all.current"), stat("active.all.current"))


if __name__ == "__main__":
    print("allocator:", ALLOCATOR)
    unittest.main(verbosity=2)
