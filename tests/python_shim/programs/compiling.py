"""torch.compile: inductor on the CPU, aot_eager and cudagraphs on CUDA (its kernels do nothing there)."""

from common import DEVICE, batch, network, show, torch

for backend in ("inductor",) if DEVICE == "cpu" else ("aot_eager", "cudagraphs"):
    torch._dynamo.reset()
    net = network()
    compiled = torch.compile(net, backend=backend)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(40):
        x = batch()
        loss = (compiled(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    show(loss)
