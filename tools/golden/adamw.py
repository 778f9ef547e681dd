"""Prints the golden numbers of tests/engine/vector_kernels_test.cc: five steps of
torch.optim.AdamW in f64. Needs PyTorch; run by hand when the case changes."""

import torch

torch.set_default_dtype(torch.float64)
n = 6
p = torch.nn.Parameter(torch.tensor([0.5 - 0.25 * i for i in range(n)]))
optimizer = torch.optim.AdamW([p], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
for step in range(5):
    p.grad = torch.tensor([0.125 * (i + 1) * (-1) ** (i + step) + 0.0625 * step for i in range(n)])
    optimizer.step()
state = optimizer.state[p]
for name, t in [("p", p.data), ("m", state["exp_avg"]), ("v", state["exp_avg_sq"])]:
    print(f"const double {name}[] = {{" + ", ".join(f"{x:.12g}" for x in t.tolist()) + "};")
