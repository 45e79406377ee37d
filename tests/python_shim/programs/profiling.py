"""torch.profiler with memory, the history of memory and its viewer."""

from common import DEVICE, batch, network, show, torch

net = network()
optimizer = torch.optim.AdamW(net.parameters())


def step():
    x = batch()
    loss = (net(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for _ in range(30):
    step()
with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True
) as profiler:
    for _ in range(3):
        loss = step()
asked = {
    event.key: event.self_cpu_memory_usage if DEVICE == "cpu" else event.self_device_memory_usage
    for event in profiler.key_averages()
}
print(asked["aten::addmm"], asked["aten::gelu"], asked["aten::mean"])
if DEVICE == "cuda":
    torch.cuda.memory._record_memory_history()
    step()
    torch.cuda.memory._dump_snapshot("snapshot.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)
    from torch.cuda import _memory_viz

    snapshot = torch.cuda.memory._snapshot()
    print(
        "alloc" in _memory_viz.trace(snapshot),
        _memory_viz.trace_plot(snapshot).startswith("\n<!DOCTYPE html>"),
        torch.cuda.memory_summary() != "",
    )
show(loss)
