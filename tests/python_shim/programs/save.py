"""torch.save and load, also mapped from the file; state of an optimizer taken up again."""

from common import DEVICE, network, show, torch, train

net = network()
optimizer = torch.optim.AdamW(net.parameters())
train(net, optimizer, steps=30)
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "x.pt")
for mapped in (False, True):
    state = torch.load(
        "x.pt", map_location=None if mapped and DEVICE == "cpu" else DEVICE, mmap=mapped and DEVICE == "cpu"
    )
    again = network(5)
    again.load_state_dict(state["net"])
    other = torch.optim.AdamW(again.parameters())
    other.load_state_dict(state["optimizer"])
    torch.manual_seed(8)
    train(again, other, steps=40)
