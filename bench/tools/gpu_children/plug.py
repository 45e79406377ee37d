"""libberth.so as PyTorch's pluggable allocator: the pair of <berth/berth.h>."""

import struct

import child

parser = child.parser(__doc__)
parser.add_argument("--library", help="libberth.so; without it PyTorch's own allocator")
parser.add_argument("--size", default="full")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import models  # noqa: E402

if arguments.library:
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(arguments.library, "berth_malloc_or_throw", "berth_free")
    )
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.manual_seed(1)
problem = models.make("mlp", arguments.size, 0, pin=False)
model = problem.model.cuda()
optimizer = torch.optim.AdamW(model.parameters())
losses = torch.zeros(arguments.steps, device="cuda")
for index in range(arguments.steps):
    x, target = problem.batches[index % 4]
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x.cuda()), target.cuda())
    loss.backward()
    optimizer.step()
    losses[index] = loss.detach()
torch.cuda.synchronize()
child.write(
    arguments,
    {
        "allocator": torch.cuda.get_allocator_backend(),
        "losses_hex": [struct.pack(">f", value).hex() for value in losses.tolist()],
    },
)
