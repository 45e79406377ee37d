"""One account of a GPU's memory, kept beside the allocator's from what its history tells, and compared with all else that it tells.

What must agree, at any time:
  the history: bytes mapped less unmapped, and blocks that came less those that went, address by address
  the snapshot: segments, and the blocks in them
  torch.cuda.memory_stats(): reserved, allocated, active and requested bytes, numbers of segments and blocks
  the driver: bytes that the process has
"""

import torch
from cuda_support import driver_bytes

CAME, WENT = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


def joined(ranges):
    """The same bytes, ranges that touch as one."""
    result = []
    for first, last in sorted(ranges):
        if result and result[-1][1] == first:
            result[-1][1] = last
        else:
            assert not result or result[-1][1] < first, f"bytes from {first:#x} on are there twice"
            result.append([first, last])
    return result


class Accounts:
    def __init__(self, device=0):
        self.device = device
        self.mapped, self.blocks = {}, {}  # first -> last; address -> bytes asked for, and whether it was freed
        self.checks = self.entries = self.moves = self.left = 0
        self.clear()
        for segment in self.segments():
            self.mapped[segment["address"]] = segment["address"] + segment["total_size"]
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    self.blocks[block["address"]] = (block["requested_size"], block["state"] == "active_pending_free")
        self.beside = driver_bytes(device) - self.reserved()  # the context, and what is not the allocator's

    def clear(self):
        torch.cuda.memory._record_memory_history(context=None, stacks="python", clear_history=True, max_entries=1 << 20)

    def segments(self):
        return [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == self.device]

    def reserved(self):
        return torch.cuda.memory_stats(self.device)["reserved_bytes.all.current"]

    def unmap(self, first, last):
        for start, end in [one for one in self.mapped.items() if one[0] < last and first < one[1]]:
            del self.mapped[start]
            if start < first:
                self.mapped[start] = first
            if last < end:
                self.mapped[last] = end
            self.left -= min(end, last) - max(start, first)

    def follow(self):
        snapshot = torch.cuda.memory._snapshot()
        self.clear()
        previous = None
        for entry in snapshot["device_traces"][self.device]:
            action, address, size = entry["action"], entry.get("addr"), entry["size"]
            if action in CAME:
                assert not any(first < address + size and address < last for first, last in self.mapped.items()), (
                    f"{size} bytes at {address:#x} are mapped twice"
                )
                self.mapped[address] = address + size
                self.moves += previous in WENT
            elif action in WENT:
                self.left = size
                self.unmap(address, address + size)
                assert self.left == 0, f"{self.left} of {size} bytes at {address:#x} are unmapped, and were not mapped"
                assert not any(address <= block < address + size for block in self.blocks), (
                    f"a block lived in {size} bytes at {address:#x}"
                )
            elif action == "alloc":
                assert address not in self.blocks, f"two blocks at {address:#x}"
                self.blocks[address] = (size, False)
            elif action == "free_requested":
                assert self.blocks[address] == (size, False), (entry, self.blocks[address])
                self.blocks[address] = (size, True)
            elif action == "free_completed":
                assert self.blocks.pop(address) == (size, True), entry
            previous = action
            self.entries += 1
        return [segment for segment in snapshot["segments"] if segment["device"] == self.device]

    def check(self, away=0):
        """`away`: bytes of blocks whose memory left for a while."""
        segments, stats = self.follow(), torch.cuda.memory_stats(self.device)
        self.checks += 1
        found, wanted = {}, {}

        def compare(name, one, other):
            found[name], wanted[name] = one, other

        ranges = [(segment["address"], segment["address"] + segment["total_size"]) for segment in segments]
        compare("history and snapshot", joined(self.mapped.items()), joined(ranges))
        compare(
            "reserved and snapshot", stats["reserved_bytes.all.current"], sum(last - first for first, last in ranges)
        )
        compare("reserved and driver", stats["reserved_bytes.all.current"], driver_bytes(self.device) - self.beside)
        compare("segments", stats["segment.all.current"], len(segments))
        compare("segments since", stats["segment.all.allocated"] - stats["segment.all.freed"], len(segments))
        compare(
            "peaks",
            [
                stats[f"{name}.all.peak"] >= stats[f"{name}.all.current"]
                for name in ("reserved_bytes", "segment", "allocated_bytes")
            ],
            [True] * 3,
        )
        if away == 0:
            blocks = [block for segment in segments for block in segment["blocks"]]
            active = [block for block in blocks if block["state"] != "inactive"]
            compare(
                "history and blocks",
                self.blocks,
                {
                    block["address"]: (block["requested_size"], block["state"] == "active_pending_free")
                    for block in active
                },
            )
            compare(
                "allocated",
                stats["allocated_bytes.all.current"],
                sum(segment["allocated_size"] for segment in segments),
            )
            compare("active", stats["active_bytes.all.current"], sum(segment["active_size"] for segment in segments))
            compare(
                "requested",
                stats["requested_bytes.all.current"],
                sum(segment["requested_size"] for segment in segments),
            )
            compare("blocks", stats["active.all.current"], len(active))
        assert found == wanted, "\n".join(
            f"{name}: {found[name]} and {wanted[name]}" for name in found if found[name] != wanted[name]
        )
        return segments

    def check_empty(self):
        """All was freed, and the cache emptied."""
        segments = self.check()
        stats = torch.cuda.memory_stats(self.device)
        counters = [name for name in stats if name.endswith(".current") and not name.startswith("oversize")]
        assert segments == [] and self.mapped == {} and self.blocks == {}, (segments, self.mapped, self.blocks)
        assert not any(stats[name] for name in counters), {name: stats[name] for name in counters if stats[name]}
