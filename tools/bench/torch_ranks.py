#!/usr/bin/env python3
"""Times GPT training steps in PyTorch over the processes that torchrun has started, over gloo: DDP
(every rank holds everything, as ZeRO stage 0) or FSDP (every rank holds a part, as stage 3)."""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=2, help="samples of a rank")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
    from gpt_reference import Gpt, GptConfig, decay_groups

    class Loss(torch.nn.Module):
        """The loss as forward, which is what is wrapped."""

        def __init__(self):
            super().__init__()
            self.model = Gpt(GptConfig(12, 12, 768, args.context, args.vocab), sdpa=True)

        def forward(self, tokens, targets):
            return self.model.loss(tokens, targets)

    model = Loss()
    if args.way == "ddp":
        groups = decay_groups(model.model, 0.1)
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        # As one unit: the reference model's blocks are functions of weights, not modules with a
        # forward of their own that could be wrapped.
        fully_shard(model, mesh=mesh)
        groups = decay_groups(model.model, 0.1)
    adamw = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=args.way == "ddp")
    batch = torch.randint(args.vocab, (args.micro_batch, args.context + 1))
    tokens, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    seconds = []
    for _ in range(args.steps + 2):
        dist.barrier()
        begin = time.perf_counter()
        model(tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        best = min(seconds[2:])
        print(json.dumps({"way": args.way, "step_seconds_best": best, "tokens_per_second":
                          args.micro_batch * args.context * dist.get_world_size() / best}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
