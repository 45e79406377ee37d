"""What the tests of step programs share."""

from support import PREAMBLE, ProgramCase

# Bodies beside themselves as written.
AS_EAGER = (
    PREAMBLE
    + """
import numpy as np
import berth
from torch import nn

# Runs make()'s body in each of some steps, without a step program and in one: whether all that it returns is equal, to the bit, and the counters.
def as_eager(make, steps=7, **options):
    def run(program):
        torch.manual_seed(0)
        body, seen = make(), []
        for k in range(steps):
            if program is None:
                seen.append(body(k))
            else:
                with program.step():
                    left = body(k)
                seen.append(left)
            seen[-1] = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in seen[-1]]
        return seen
    program = berth.StepProgram(**options, plan_wait=1e9)
    eager, scheduled = run(None), run(program)
    same = all(torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a == b
               for step, other in zip(eager, scheduled) for a, b in zip(step, other, strict=True))
    return same, program.stats()

def say(make, least=1, **options):
    same, stats = as_eager(make, **options)
    print(same, stats.scheduled >= least, "" if same and stats.scheduled >= least else stats)
"""
)

# A block of a transformer.
BLOCK = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
    def forward(self, x):
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.wide(x)
"""

# A program prints what training leaves; run with the argument "program" the step runs by a schedule.
TRAINS = (
    PREAMBLE
    + """
import contextlib, hashlib
import berth
from torch import nn
from torch.utils.checkpoint import checkpoint

def digest(tensors):
    return hashlib.sha256(b"".join(t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors)).hexdigest()

"""
    + BLOCK
    + """
class Net(nn.Module):
    def __init__(self, again=False):
        super().__init__()
        self.again = again
        self.embed, self.out = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.blocks = nn.ModuleList(Block(32) for _ in range(3))
    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.out(x)

def train(make_optimizer, again=False, clip=False, autocast=False, schedule=False, steps=9, budget=0, batch=(4, 12)):
    net = Net(again)
    optimizer = make_optimizer(net.parameters())
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20) if schedule else None
    program = berth.StepProgram(budget, plan_wait=1e9)
    losses = []
    for step in range(steps):
        ids = torch.randint(50, batch)
        with program.step() if sys.argv[1] == "program" else contextlib.nullcontext():
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(net(ids).view(-1, 50), ids.view(-1))
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            if rates:
                rates.step()
            losses.append(loss.item().hex())
    state = [t for one in optimizer.state.values() for t in one.values() if torch.is_tensor(t)]
    left = digest([*net.parameters(), *(p.grad for p in net.parameters()), *state, torch.get_rng_state()])
    print(losses, left)
    return program.stats()
"""
)


class StepCase(ProgramCase):
    """Tests of bodies that do in a step program what they do as written."""

    def check(self, program, count):
        self.assertEqual(self.python(AS_EAGER + program).split("\n")[:count], ["True True "] * count)
