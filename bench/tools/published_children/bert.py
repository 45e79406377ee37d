"""BERT-large on random tokens of length 512, as in "Efficient training on a single GPU" of transformers' documentation (v4.21, torch 1.10)."""

import argparse
import contextlib

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--checkpoint", action="store_true")
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--adafactor", action="store_true")
parser.add_argument(
    "--gradients",
    choices=("zeroed", "dropped"),
    default="zeroed",
    help="zero_grad() of torch before 2.0 filled gradients with zeros; since then it drops them",
)
parser.add_argument(
    "--softmax",
    choices=("1.10", "today"),
    default="1.10",
    help="softmax of torch before 1.11 also saved its input for backward",
)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--small", action="store_true")
arguments = parser.parse_args()

import torch  # noqa: E402
from transformers import BertConfig, BertForSequenceClassification  # noqa: E402


class Softmax(torch.autograd.Function):
    """derivatives.yaml of torch 1.10: `_softmax_backward_data(grad, result, dim, self)`, so both `result` and `self` are saved."""

    @staticmethod
    def forward(context, scores, dim):
        probabilities = torch.softmax(scores, dim)
        context.save_for_backward(probabilities, scores)
        context.dim = dim
        return probabilities

    @staticmethod
    def backward(context, gradient):
        probabilities, scores = context.saved_tensors
        return torch._softmax_backward_data(gradient, probabilities, context.dim, scores.dtype), None


def softmax_1_10(scores, dim, dtype=None):
    # Autocast computes softmax in single precision.
    wide = torch.is_autocast_enabled("cuda") or dtype == torch.float32
    return Softmax.apply(scores.float() if wide else scores, dim)


if arguments.softmax == "1.10":
    torch.nn.functional.softmax = softmax_1_10

sizes = (
    {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    if arguments.small
    else {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
)
config = BertConfig(vocab_size=30522, max_position_embeddings=512, **sizes)
config._attn_implementation = "eager"
with torch.device("cuda"):
    model = BertForSequenceClassification(config)
model.train()
if arguments.checkpoint:
    model.gradient_checkpointing_enable()
if arguments.adafactor:
    from transformers.optimization import Adafactor

    optimizer = Adafactor(model.parameters(), lr=5e-5, scale_parameter=False, relative_step=False)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
scaler = torch.amp.GradScaler("cuda", enabled=arguments.fp16)
for step in range(arguments.steps):
    for _ in range(arguments.accumulate):
        tokens = torch.randint(100, 30000, (arguments.batch_size, 512)).cuda()
        labels = torch.zeros(arguments.batch_size, dtype=torch.long).cuda()
        with torch.autocast("cuda", dtype=torch.float16) if arguments.fp16 else contextlib.nullcontext():
            loss = model(input_ids=tokens, labels=labels).loss
        scaler.scale(loss / arguments.accumulate).backward()
    if arguments.fp16:
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad(set_to_none=arguments.gradients == "dropped")
