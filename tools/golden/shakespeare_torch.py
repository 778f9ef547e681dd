#!/usr/bin/env python3
"""Trains nanoGPT's small-CPU Shakespeare model in PyTorch and prints its validation loss as JSON.

The configuration is nanoGPT's published one for a CPU: 4 layers, 4 heads, width 128, context 64,
batch 12, 2000 steps, AdamW (0.9, 0.99), learning rate 1e-3 to 1e-4 by a cosine, warm-up 100, decay
0.1 on matrices only, gradient clip 1.0, no dropout, no biases (nanoGPT's train.py sets
bias = False), characters, the first 90 % for training. Two things differ, so as to be exact:
2000 steps, not 2001, and the validation loss is the mean over every target of the last 10 %, once
each (windows that don't overlap), where nanoGPT draws 20 random batches.

Windows: with --windows, a file of int64 little-endian start offsets, [steps * batch] in the order
of use (dump_inputs writes it), so that both programs see the same samples; else drawn from (seed,
step). Without steps, --init is evaluated: a checkpoint's model.safetensors, say.

--random-windows N also evaluates as nanoGPT does, on windows from any character: N of them, and
what that says of its published figure, the mean over 20 batches of 12 such windows.
"""

import argparse
import json
import math
import sys
import time

from gpt_reference import Gpt, GptConfig, decay_groups

try:
    import numpy
    import torch
except ImportError as error:
    sys.exit(f"missing: {error}; pip install torch numpy safetensors")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="the text, tinyshakespeare.txt")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--windows", help="start offsets of all training windows")
    parser.add_argument("--init", help="initial weights, a safetensors file with our names")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--min-lr", type=float, default=1e-4)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--beta2", type=float, default=0.99)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--bias", action="store_true", help="biases in layers and LayerNorm")
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's choice")
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--random-windows", type=int, default=0, metavar="N",
                        help="also evaluate on N random validation windows")
    return parser.parse_args()


def load_characters(path):
    """(ids int64, number of distinct characters); ids in the order of the sorted characters."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    characters = sorted(set(text))
    ids = {c: i for i, c in enumerate(characters)}
    return torch.tensor([ids[c] for c in text]), len(characters)


def window_starts(args, train_size):
    """A function step -> start offsets, int64 [batch], each in [0, train_size - context)."""
    if not args.windows:
        def draw(step):
            generator = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
            return torch.randint(train_size - args.context, (args.batch,), generator=generator)
        return draw
    starts = torch.from_numpy(numpy.fromfile(args.windows, dtype="<i8").astype(numpy.int64))
    if starts.numel() != args.steps * args.batch:
        sys.exit(f"{args.windows} has {starts.numel()} offsets; {args.steps} steps of batch "
                 f"{args.batch} need {args.steps * args.batch}")
    if starts.min() < 0 or starts.max() + args.context >= train_size:
        sys.exit(f"{args.windows}: offsets must lie in [0, {train_size - args.context})")
    return lambda step: starts[step * args.batch:(step + 1) * args.batch]


def learning_rate(args, step):
    """Linear over the warm-up (nanoGPT's (step + 1) / (warmup + 1)), then a cosine to min_lr."""
    if step < args.warmup:
        return args.lr * (step + 1) / (args.warmup + 1)
    progress = (step - args.warmup) / (args.steps - args.warmup)
    return args.min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (args.lr - args.min_lr)


@torch.no_grad()
def mean_loss(model, ids, context, windows_per_pass=64):
    """Mean loss over all ids but the first, each predicted once, from its own window only."""
    whole = (len(ids) - 1) // context
    total = 0.0
    for begin in range(0, whole, windows_per_pass):
        end = min(begin + windows_per_pass, whole)
        tokens = ids[begin * context:end * context].view(-1, context)
        targets = ids[begin * context + 1:end * context + 1].view(-1, context)
        total += model.loss(tokens, targets).item() * targets.numel()
    rest = ids[whole * context:]
    if len(rest) > 1:
        total += model.loss(rest[None, :-1], rest[None, 1:]).item() * (len(rest) - 1)
    return total / (len(ids) - 1)


@torch.no_grad()
def random_windows(model, ids, context, count):
    """Loss on windows that start anywhere: its mean, that mean's standard error, and the standard
    deviation of nanoGPT's estimate from 20 batches of 12 such windows."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(ids) - context, (count,), generator=generator)
    span = torch.arange(context + 1)
    losses = []
    for part in starts.split(256):
        batch = ids[part[:, None] + span]
        logits = model(batch[:, :-1])
        each = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
        losses.append(each.view(len(part), context).mean(1))
    losses = torch.cat(losses).double()
    deviation = losses.std().item()
    return {"mean": losses.mean().item(), "standard_error": deviation / math.sqrt(count),
            "deviation_of_240": deviation / math.sqrt(240)}


def build_model(args, vocab):
    torch.manual_seed(args.seed)
    model = Gpt(GptConfig(args.layers, args.heads, args.width, args.context, vocab, args.bias),
                sdpa=True)
    if args.init:
        from safetensors.torch import load_file
        model.load_state_dict(
            {n.removeprefix("transformer."): w for n, w in load_file(args.init).items()})
    return model


def train(args, model, ids, starts):
    """Runs all steps; returns the training losses."""
    adamw = torch.optim.AdamW(decay_groups(model, args.weight_decay), lr=args.lr,
                              betas=(0.9, args.beta2))
    span = torch.arange(args.context + 1)
    losses = []
    for step in range(args.steps):
        batch = ids[starts(step)[:, None] + span]
        loss = model.loss(batch[:, :-1], batch[:, 1:])
        adamw.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        for group in adamw.param_groups:
            group["lr"] = learning_rate(args, step)
        adamw.step()
        losses.append(loss.item())
        if step % args.log_every == 0:
            print(f"step {step}: loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    return losses


def main():
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    ids, vocab = load_characters(args.data)
    cut = int(0.9 * len(ids))
    model = build_model(args, vocab)
    starts = window_starts(args, cut)
    begin = time.perf_counter()
    losses = train(args, model, ids[:cut], starts)
    seconds = time.perf_counter() - begin
    print(json.dumps({
        "val_loss": mean_loss(model, ids[cut:], args.context),
        "wall_seconds": seconds,
        "train_losses": losses[::args.log_every] + losses[-1:],
        "random_windows": random_windows(model, ids[cut:], args.context, args.random_windows)
                          if args.random_windows else None,
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocab": vocab,
        "seed": args.seed,
        "windows": args.windows or "drawn",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }))


if __name__ == "__main__":
    main()
