"""A compact GPT-2 in plain PyTorch: the outside truth for Pando's own model.

Parameters carry the names and layouts of Hugging Face checkpoints (without the prefix
`transformer.`): the weights of the four `c_` products are stored [in, out]. Pre-norm, tanh GELU,
learned positions, output projection tied to the token embedding, no dropout, LayerNorm eps 1e-5.

Precision:
  * any floating dtype of the parameters computes in that dtype (float32, float64, bfloat16);
  * `emulate_bf16=True` states mixed precision exactly, whatever the processor can do: parameters
    (f32 or f64 masters) are used rounded to bfloat16, every activation that a layer hands on, and
    every gradient of one, is rounded to bfloat16, while sums, LayerNorm statistics, softmax, GELU
    and the loss are computed in the masters' dtype and parameter gradients are not rounded.
"""

import dataclasses
import math
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"PyTorch is needed ({error}): pip install torch numpy safetensors")

IGNORED_TARGET = -1


@dataclasses.dataclass
class GptConfig:
    layers: int = 12
    heads: int = 12
    width: int = 768
    context: int = 1024
    vocab: int = 50257
    bias: bool = True


class _RoundValue(torch.autograd.Function):
    """bfloat16 value, gradient untouched: a master weight seen through its bfloat16 copy."""

    @staticmethod
    def forward(ctx, x):
        return x.to(torch.bfloat16).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad


class _RoundBoth(torch.autograd.Function):
    """bfloat16 value and bfloat16 gradient: an activation in memory."""

    @staticmethod
    def forward(ctx, x):
        return x.to(torch.bfloat16).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad.to(torch.bfloat16).to(grad.dtype)


class _Weights(torch.nn.Module):
    """A weight and perhaps a bias; how they are used is the owner's business."""

    def __init__(self, shape, bias_size=0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(shape))
        self.bias = torch.nn.Parameter(torch.empty(bias_size)) if bias_size else None


class _Attention(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_attn = _Weights((c.width, 3 * c.width), 3 * c.width * c.bias)
        self.c_proj = _Weights((c.width, c.width), c.width * c.bias)


class _Mlp(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc = _Weights((c.width, 4 * c.width), 4 * c.width * c.bias)
        self.c_proj = _Weights((4 * c.width, c.width), c.width * c.bias)


class _Block(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = _Weights((c.width,), c.width * c.bias)
        self.attn = _Attention(c)
        self.ln_2 = _Weights((c.width,), c.width * c.bias)
        self.mlp = _Mlp(c)


class Gpt(torch.nn.Module):
    """GPT-2. `sdpa` takes PyTorch's fused attention instead of the written-out one."""

    def __init__(self, config, emulate_bf16=False, sdpa=False):
        super().__init__()
        if emulate_bf16 and sdpa:
            raise ValueError("emulate_bf16 needs the written-out attention: sdpa=False")
        self.config = config
        self.sdpa = sdpa
        self._activation = _RoundBoth.apply if emulate_bf16 else lambda x: x
        self._parameter = _RoundValue.apply if emulate_bf16 else lambda p: p
        self.wte = _Weights((config.vocab, config.width))
        self.wpe = _Weights((config.context, config.width))
        self.h = torch.nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.ln_f = _Weights((config.width,), config.width * config.bias)
        self.init_gpt2()

    @torch.no_grad()
    def init_gpt2(self, generator=None):
        """Normal(0, 0.02), residual projections 0.02 / sqrt(2 L), LayerNorm 1, biases 0."""
        for name, p in self.named_parameters():
            if p.dim() == 1:
                p.fill_(1.0 if name.endswith("weight") else 0.0)
            else:
                residual = name.endswith("c_proj.weight")
                std = 0.02 / math.sqrt(2 * self.config.layers) if residual else 0.02
                p.normal_(0.0, std, generator=generator)

    def _linear(self, module, x):
        weight = self._parameter(module.weight)
        if module.bias is None:
            return self._activation(x @ weight)
        rows = torch.addmm(self._parameter(module.bias), x.reshape(-1, x.shape[-1]), weight)
        return self._activation(rows.view(*x.shape[:-1], -1))

    def _norm(self, module, x):
        bias = None if module.bias is None else self._parameter(module.bias)
        y = F.layer_norm(x, x.shape[-1:], self._parameter(module.weight), bias, eps=1e-5)
        return self._activation(y)

    def _attend(self, module, x):
        batch, time, width = x.shape
        heads = self.config.heads
        qkv = self._linear(module.c_attn, x).view(batch, time, 3, heads, width // heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        if self.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // heads)
            future = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        y = self._activation(y.transpose(1, 2).reshape(batch, time, width))
        return self._linear(module.c_proj, y)

    def _feed_forward(self, module, x):
        hidden = F.gelu(self._linear(module.c_fc, x), approximate="tanh")
        return self._linear(module.c_proj, self._activation(hidden))

    def forward(self, tokens):
        """tokens int64 [batch, time] -> logits [batch, time, vocab]."""
        wte, wpe = self._parameter(self.wte.weight), self._parameter(self.wpe.weight)
        x = self._activation(F.embedding(tokens, wte) + wpe[: tokens.shape[1]])
        for block in self.h:
            x = self._activation(x + self._attend(block.attn, self._norm(block.ln_1, x)))
            x = self._activation(x + self._feed_forward(block.mlp, self._norm(block.ln_2, x)))
        return self._activation(self._norm(self.ln_f, x) @ wte.t())

    def loss(self, tokens, targets):
        """Mean cross-entropy over the targets that are not IGNORED_TARGET, at least in float32."""
        logits = self(tokens)
        if logits.dtype != torch.float64:
            logits = logits.float()
        return F.cross_entropy(
            logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORED_TARGET)


def decay_groups(model, weight_decay):
    """AdamW parameter groups: decay on matrices and embeddings, none on biases and LayerNorm."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
