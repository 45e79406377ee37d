"""The rows of bench/models: training steps that are always the same, of networks in full size. Unchanged PyTorch: nothing here knows berth."""

import torch

import networks

PROGRAMS = {}  # name -> what runs it by size, what it is, the package that torch does not bring
STEPS = 32
# Those that OLLA was measured on.
OLLA = [
    "alexnet",
    "vgg",
    "googlenet",
    "resnet18",
    "resnet50",
    "mobilenet",
    "mnasnet",
    "efficientnet",
    "resnet3d",
    "bert",
    "xlmr",
    "transformer",
]
MEDIUM = {"n_embd": 1024, "n_layer": 24, "n_head": 16}
# TinyLlama's.
LLAMA = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
T5_BASE = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
# One of Mixtral's blocks at a quarter of its width, between embedding and head.
MOE = {
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "experts_implementation": "grouped_mm",
    "dtype": "bfloat16",
}


def train(problem, optimizer, precision, checkpoint):
    """Yields after each step. Batches come from the host; the one before lives until the next has come, as in a loop over a loader."""
    model = problem.model.train()
    if checkpoint:
        problem.checkpoint()
    optimizer = (
        torch.optim.AdamW(model.parameters(), 1e-4)
        if optimizer == "AdamW"
        else torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    )
    for _ in range(STEPS):
        batch = [one.cuda(non_blocking=True) for one in problem.inputs]
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = problem.loss(model, *batch)
        loss.backward()
        optimizer.step()
        yield "step"


def row(name, text, network, batch, optimizer="SGD", precision="fp32", checkpoint=False, **shape):
    def run(size):
        problem = networks.make(network, 2 if size == "small" else batch, size == "small", **shape)
        yield from train(problem, optimizer, precision, checkpoint)

    package = (
        "transformers"
        if network in networks.TEXTS
        else None
        if network in ("transformer", "unet", "lstm")
        else "torchvision"
    )
    PROGRAMS[name] = (run, f"{text}, {precision}, {optimizer}{', checkpoints' if checkpoint else ''}", package, None)


for network in OLLA:
    for batch in (1, 32):
        row(f"{network}-{batch}", f"{network}, batch {batch}", network, batch)
for network, batch, shape in (("gpt2", 8, {"length": 1024}), ("bert", 16, {}), ("resnet50", 64, {})):
    for precision in ("fp32", "bf16"):
        for checkpoint in (False, True):
            for optimizer in ("AdamW", "SGD"):
                row(
                    f"{network}-{precision}-{'checkpoint-' if checkpoint else ''}{optimizer.lower()}",
                    f"{network}, batch {batch}",
                    network,
                    batch,
                    optimizer,
                    precision,
                    checkpoint,
                    **shape,
                )
row("gpt2-medium", "GPT-2 medium, batch 8 x 1,024", "gpt2", 8, "AdamW", "bf16", length=1024, **MEDIUM)
row("llama-1.1b", "Llama of 1.1 B, batch 4 x 2,048", "llama", 4, "AdamW", "bf16", True, length=2048, **LLAMA)
row("t5-base", "T5 base, batch 16 x 512", "t5", 16, "AdamW", "bf16", **T5_BASE)
row("vit-b-16", "ViT-B/16, batch 64", "vit", 64, "AdamW", "bf16")
row("unet", "U-Net, batch 8 x 512 x 512", "unet", 8, "AdamW", "bf16", side=512)
row("moe", "a block of 8 experts, weights in bf16, batch 8 x 1,024", "mixtral", 8, "AdamW", "bf16", length=1024, **MOE)
row("lstm", "LSTM of 2 x 1,500, batch 20 x 35", "lstm", 20)
