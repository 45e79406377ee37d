"""CUDA graphs: torch.cuda.graph, make_graphed_callables, and trees with a plan beside them. Captures that a pointer forced again: none."""

from common import DEVICE, batch, network, show, torch

net = network()
held = batch()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        net(held)
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    made = net(held)
for _ in range(5):
    graph.replay()
show(made)

graphed = torch.cuda.make_graphed_callables(network(), (batch().requires_grad_(),))
optimizer = torch.optim.SGD(graphed.parameters(), lr=0.1)
for _ in range(40):
    x = batch()
    graphed(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
show(x)

from torch._inductor.cudagraph_trees import get_container  # noqa: E402

compiled = torch.compile(network(3), backend="cudagraphs")
optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)


def steps(count):
    """Graphs that were recorded in so many steps."""
    manager = get_container(0).tree_manager
    before = manager.new_graph_id().id if manager is not None else 0
    for _ in range(count):
        torch.compiler.cudagraph_mark_step_begin()
        x = batch()
        compiled(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    manager = get_container(0).tree_manager
    return manager.new_graph_id().id - before - 1 if manager is not None else 0


steps(10)
print("graphs recorded again in 100 steps:", steps(100))
