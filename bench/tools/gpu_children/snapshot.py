"""A memory snapshot with history of a small model under PyTorch's own allocator, without stack frames: an input for readers."""

import pickle

import child

parser = child.parser(__doc__)
parser.add_argument("--pickle", required=True)
parser.add_argument("--steps", type=int, default=4)
arguments = parser.parse_args()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import models  # noqa: E402

torch.manual_seed(1)
torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=20000)
problem = models.make("mlp", "small", 64, pin=False)
model = problem.model.cuda()
optimizer = torch.optim.AdamW(model.parameters())
for index in range(arguments.steps):
    x, target = problem.batches[index % 4]
    optimizer.zero_grad()
    F.cross_entropy(model(x.cuda()), target.cuda()).backward()
    optimizer.step()
torch.cuda.synchronize()
snapshot = torch.cuda.memory._snapshot()
torch.cuda.memory._record_memory_history(enabled=None)
for entries in (
    snapshot["segments"],
    *(segment["blocks"] for segment in snapshot["segments"]),
    *snapshot["device_traces"],
):
    for entry in entries:
        entry.pop("frames", None)
        entry["frames"] = []
with open(arguments.pickle, "wb") as file:
    pickle.dump(snapshot, file, protocol=4)
child.write(
    arguments,
    {
        "entries": sum(map(len, snapshot["device_traces"])),
        "segments": len(snapshot["segments"]),
        "keys": sorted(snapshot),
    },
)
