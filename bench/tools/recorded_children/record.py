"""Records some steps of a network on CUDA, with operators: `berth` and what networks.py needs are to be found. Prints nothing."""

import argparse

import berth

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--trace", required=True)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--small", action="store_true", help="a size for tests")
parser.add_argument("--adam", action="store_true", help="instead of plain SGD")
arguments = parser.parse_args()
berth.install("cuda", mode="record", record="operators", trace=arguments.trace)

import torch  # noqa: E402

import networks  # noqa: E402

torch.manual_seed(1)
problem = networks.written_out(arguments.model, arguments.batch, arguments.small)
model = problem.model.train()
inputs = [one.cuda() for one in problem.inputs]
# SGD updates parameter by parameter, as in the graphs that OLLA orders: one operator for all would hold every gradient until the end.
optimizer = (
    torch.optim.AdamW(model.parameters(), 1e-4)
    if arguments.adam
    else torch.optim.SGD(model.parameters(), 0.01, foreach=False)
)
for _ in range(arguments.steps):
    optimizer.zero_grad()
    loss = problem.loss(model, *inputs)
    loss.backward()
    optimizer.step()
    del loss
torch.cuda.synchronize()
