"""Copies between two GPUs, and the peer access that they need."""

import child

arguments = child.parser(__doc__).parse_args()

import torch  # noqa: E402

child.must_be(child.wanted_allocator())
wrong, sizes = [], [1, 1000, 1 << 20, 40 << 20]
for size in sizes:
    here = torch.arange(size, dtype=torch.int32).to("cuda:0")
    there = here.to("cuda:1")
    back = there.to("cuda:0")
    if not (torch.equal(there.cpu(), here.cpu()) and torch.equal(back.cpu(), here.cpu())):
        wrong.append(size)
child.write(arguments, {"can_access": torch.cuda.can_device_access_peer(0, 1), "sizes": sizes, "wrong": wrong})
