"""A Llama of 1.1B shape (transformers, random weights) that trains with AdamW on CUDA: what bench/dry_run runs dry.

--init device makes the weights on the GPU, --init cpu on the host first, as most scripts do. --only-build stops once the host holds what the script
itself needs there, and prints the most that it held.
"""

import argparse
import resource

parser = argparse.ArgumentParser()
parser.add_argument("--init", choices=("device", "cpu"), default="device")
parser.add_argument("--size", choices=("full", "small"), default="full")
parser.add_argument("--batch-size", type=int, default=2)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--only-build", action="store_true")
arguments = parser.parse_args()

import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

full = arguments.size == "full"
config = LlamaConfig(
    vocab_size=32000 if full else 512,
    hidden_size=2048 if full else 64,
    intermediate_size=5632 if full else 128,
    num_hidden_layers=22 if full else 2,
    num_attention_heads=32 if full else 4,
    num_key_value_heads=4 if full else 2,
    max_position_embeddings=2048,
)
if arguments.only_build:
    device = "meta" if arguments.init == "device" else "cpu"
else:
    device = "cuda" if arguments.init == "device" else "cpu"
with torch.device(device):
    model = LlamaForCausalLM(config)
if arguments.only_build:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    raise SystemExit
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(arguments.steps):
    tokens = torch.randint(config.vocab_size, (arguments.batch_size, arguments.length), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
