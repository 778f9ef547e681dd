#!/usr/bin/env python3
"""Times one GPT training step in PyTorch: one process, one variant, one JSON line.

The step: forward, backward, gradient norm clipped to 1.0, fused AdamW, gradients set to none.
Takes the options of Pando's step benchmark, and --variant:

  f32:   eager, compile
  bf16:  autocast, autocast-compile        f32 parameters, torch.autocast
         pure, pure-compile                parameters, gradients and moments in bfloat16
         master, master-compile            bfloat16 parameters, f32 masters and moments
"""

import argparse
import contextlib
import json
import os
import re
import resource
import statistics
import sys
import time

VARIANTS = {
    "f32": ["eager", "compile"],
    "bf16": ["autocast", "autocast-compile", "pure", "pure-compile", "master", "master-compile"],
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--context", type=int, default=64, help="tokens per sample")
    parser.add_argument("--micro-batch", type=int, default=4, help="samples per step")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=sorted(VARIANTS), default="f32")
    parser.add_argument("--variant", help="default: the first of the precision")
    parser.add_argument("--warmup", type=int, default=2, help="steps before timing")
    parser.add_argument("--steps", type=int, default=5, help="steps timed")
    parser.add_argument("--json", action="store_true", help="accepted; the output always is JSON")
    args = parser.parse_args()
    args.variant = args.variant or VARIANTS[args.precision][0]
    if args.variant not in VARIANTS[args.precision]:
        parser.error(f"--variant for {args.precision}: {', '.join(VARIANTS[args.precision])}")
    return args


def matrix_library(torch):
    """The matrix libraries that this PyTorch was built with, in one line."""
    config = torch.__config__.show()
    found = [re.search(p, config) for p in (
        r"oneAPI Math Kernel Library Version [\d.]+", r"MKL-DNN v[\d.]+",
        r"OpenBLAS [\d.]+", r"BLAS_INFO=\w+", r"CPU capability usage: \w+")]
    return "; ".join(match.group(0) for match in found if match)


class Optimizer:
    """Fused AdamW on the parameters, or on f32 masters copied back into bfloat16 parameters."""

    def __init__(self, torch, model, decay_groups, with_masters):
        self._torch = torch
        groups = decay_groups(model, 0.1)
        self.parameters = [p for group in groups for p in group["params"]]
        self.masters = None
        if with_masters:
            self.masters = [p.detach().float() for p in self.parameters]
            of = dict(zip(map(id, self.parameters), self.masters))
            for group in groups:
                group["params"] = [of[id(p)] for p in group["params"]]
        self._adamw = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)

    def step(self):
        torch = self._torch
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        if self.masters:
            for master, p in zip(self.masters, self.parameters):
                master.grad = p.grad.float()
                p.grad = None
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        with torch.no_grad():
            if self.masters:
                torch._foreach_copy_(self.parameters, self.masters)


def build_step(torch, args):
    """A function (tokens, targets) -> loss that does one whole training step."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
    from gpt_reference import Gpt, GptConfig, decay_groups
    config = GptConfig(args.layers, args.heads, args.width, args.context, args.vocab)
    model = Gpt(config, sdpa=True).to(args.device)
    kind = args.variant.split("-")[0]
    optimizer = None
    if kind == "master":
        model.to(torch.bfloat16)
        optimizer = Optimizer(torch, model, decay_groups, with_masters=True)
    elif kind == "pure":
        model.to(torch.bfloat16)
    optimizer = optimizer or Optimizer(torch, model, decay_groups, with_masters=False)
    loss_of = torch.compile(model.loss) if args.variant.endswith("compile") else model.loss

    def step(tokens, targets):
        cast = contextlib.nullcontext()
        if kind == "autocast":
            cast = torch.autocast(args.device, dtype=torch.bfloat16)
        with cast:
            loss = loss_of(tokens, targets)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def main():
    args = parse_arguments()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"torch_step.py: PyTorch is needed ({error}): pip install torch numpy")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    step = build_step(torch, args)
    batch = torch.randint(args.vocab, (args.micro_batch, args.context + 1)).to(args.device)
    tokens, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()

    begin = time.perf_counter()
    losses = [step(tokens, targets) for _ in range(args.warmup)]
    warmup_seconds = time.perf_counter() - begin
    seconds, cpu_seconds = [], []
    for _ in range(args.steps):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        losses.append(step(tokens, targets))
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)

    best = min(seconds)
    print(json.dumps({
        "program": f"PyTorch {torch.__version__}",
        "variant": args.variant,
        "precision": args.precision,
        "step_seconds": seconds,
        "step_seconds_best": best,
        "step_seconds_median": statistics.median(seconds),
        # With one thread, what a step takes when nobody else uses the processor.
        "step_cpu_seconds_best": min(cpu_seconds),
        "tokens_per_second": args.micro_batch * args.context / best,
        "peak_device_bytes": (torch.cuda.max_memory_reserved() if args.device == "cuda" else 0),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "warmup_seconds": warmup_seconds,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "threads": torch.get_num_threads(),
        "matrix_library": matrix_library(torch),
    }))


if __name__ == "__main__":
    main()
