"""A tensor shared with another process, which reads it, writes it and lets it go, again and again."""

import os

import child

parser = child.parser(__doc__)
parser.add_argument("--consumer", choices=["same", "native"], default="same", help="the other process's allocator")
parser.add_argument("--rounds", type=int, default=20)


def consume(inbox, outbox):
    import torch

    outbox.put(torch.cuda.get_allocator_backend())
    while (tensor := inbox.get()) is not None:
        said = (tensor[0].item(), tensor[-1].item(), tensor.numel())
        tensor.add_(1)
        torch.cuda.synchronize()
        del tensor
        outbox.put(said)


def main():
    arguments = parser.parse_args()
    import torch
    import torch.multiprocessing as processes

    child.must_be(child.wanted_allocator())
    mine = os.environ.get("BERTH_MODE")
    if arguments.consumer == "native":
        os.environ["BERTH_MODE"] = "off"
    context = processes.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=consume, args=(inbox, outbox))
    process.start()
    if mine is not None:
        os.environ["BERTH_MODE"] = mine
    consumer = outbox.get(timeout=120)
    wrong = []
    for index in range(arguments.rounds):
        size = 1000 + 300_000 * index  # from one page to many
        tensor = torch.full((size,), float(index), device="cuda")
        torch.cuda.synchronize()
        inbox.put(tensor)
        said = outbox.get(timeout=120)
        if said != (float(index), float(index), size) or not torch.all(tensor == index + 1).item():
            wrong.append({"round": index, "read": said, "written": tensor[0].item()})
        del tensor
    inbox.put(None)
    process.join(60)
    child.write(
        arguments, {"consumer": consumer, "rounds": arguments.rounds, "wrong": wrong, "exit_code": process.exitcode}
    )


if __name__ == "__main__":
    main()
