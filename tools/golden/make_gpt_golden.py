#!/usr/bin/env python3
"""Writes the files that Pando's GPT is checked against (tools/golden/README.md describes them).

  gpt_golden.safetensors, gpt_golden.json   gradients and 20 AdamW steps of a small random GPT-2
  gpt_golden_f64.safetensors                its gradients in float64
  hf_gpt2_tiny/                             a checkpoint saved by Hugging Face transformers, with
                                            its logits and greedy continuations

The tests read them; nothing but a change of this script calls for running it again.
"""

import argparse
import copy
import json
import os
import sys

from gpt_reference import IGNORED_TARGET, Gpt, GptConfig, decay_groups

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    sys.exit(f"missing: {error}; pip install torch numpy safetensors transformers")

CONFIG = GptConfig(layers=2, heads=2, width=32, context=16, vocab=97)
BATCH = 3
STEPS = 20
OPTIMIZER = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1,
             "grad_clip": 2.0}  # some of the 20 steps are clipped, some are not
SEED = 20240817


def random_parameters(config, generator):
    """Every parameter random, biases and LayerNorm too, so that none can go untested."""
    model = Gpt(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0.0, 0.15 if p.dim() > 1 else 0.1, generator=generator)
            if ".ln_" in "." + name and name.endswith("weight"):
                p.add_(1.0)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def random_batches(count, generator):
    """tokens and targets [count, BATCH, context]; about one target in eight is ignored."""
    shape = (count, BATCH, CONFIG.context)
    tokens = torch.randint(CONFIG.vocab, shape, generator=generator)
    targets = torch.randint(CONFIG.vocab, shape, generator=generator)
    targets[torch.rand(shape, generator=generator) < 0.125] = IGNORED_TARGET
    return tokens, targets


def model_of(parameters, dtype, config=CONFIG, **options):
    model = Gpt(config, **options).to(dtype)
    names = {name for name, _ in model.named_parameters()}
    model.load_state_dict({n: p.to(dtype) for n, p in parameters.items() if n in names})
    return model


def gradients(model, tokens, targets):
    """(loss, global gradient norm, name -> gradient)."""
    loss = model.loss(tokens, targets)
    loss.backward()
    grads = {name: p.grad.detach().clone() for name, p in model.named_parameters()}
    return loss.item(), norm_of(grads), grads


def norm_of(tensors):
    return sum(t.double().square().sum() for t in tensors.values()).sqrt().item()


def deviation(tensors, reference):
    """name -> |t - r| / |r| (norms of the whole tensor): what rounding alone does to it.

    A key's bias has no effect on attention, so its true gradient is zero and any computed one is
    rounding, which AdamW magnifies: that third of c_attn.bias is left out.
    """
    result = {}
    for name, r in reference.items():
        t = tensors[name].detach().double()
        if name.endswith("c_attn.bias"):
            t, r = t.clone(), r.detach().clone()
            t[CONFIG.width:2 * CONFIG.width] = r[CONFIG.width:2 * CONFIG.width] = 0.0
        result[name] = ((t - r).norm() / r.norm()).item()
    return result


def train(model, tokens, targets):
    """Trains `model` in place; returns its losses and its gradient norms before clipping."""
    o = OPTIMIZER
    adamw = torch.optim.AdamW(decay_groups(model, o["weight_decay"]), lr=o["lr"],
                              betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses, norms = [], []
    for step in range(STEPS):
        loss = model.loss(tokens[step], targets[step])
        adamw.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), o["grad_clip"]).item())
        adamw.step()
        losses.append(loss.item())
    return {"losses": losses, "grad_norms": norms}


def make_gpt_golden(folder):
    generator = torch.Generator().manual_seed(SEED)
    parameters = random_parameters(CONFIG, generator)
    tokens, targets = random_batches(STEPS, generator)
    variants = {
        "f64": lambda: model_of(parameters, torch.float64),
        "f32": lambda: model_of(parameters, torch.float32),
        # Summed in float64: what bfloat16 storage alone does to a step, free of the order of sums.
        "bf16": lambda: model_of(parameters, torch.float64, emulate_bf16=True),
    }
    first = {name: gradients(make(), tokens[0], targets[0]) for name, make in variants.items()}
    no_bias = model_of(parameters, torch.float64,
                       GptConfig(**{**vars(CONFIG), "bias": False}))
    no_bias_loss, no_bias_norm, no_bias_grads = gradients(no_bias, tokens[0], targets[0])
    models = {name: make() for name, make in variants.items()}
    runs = {name: train(model, tokens, targets) for name, model in models.items()}
    finals = {name: dict(model.named_parameters()) for name, model in models.items()}

    reference = first["f64"][2]
    data = {f"param.{n}": p for n, p in parameters.items()}
    data |= {f"grad.{n}": g.float() for n, g in reference.items()}
    data |= {f"grad_bf16.{n}": g.to(torch.bfloat16) for n, g in first["bf16"][2].items()}
    data |= {f"final.{n}": p.detach().float() for n, p in finals["f64"].items()}
    data |= {"tokens": tokens.int(), "targets": targets.int()}
    save(data, os.path.join(folder, "gpt_golden.safetensors"))
    save({f"grad.{n}": g for n, g in reference.items()},
              os.path.join(folder, "gpt_golden_f64.safetensors"))
    write_json(os.path.join(folder, "gpt_golden.json"), {
        "made_with": f"PyTorch {torch.__version__.split('+')[0]}",
        "config": vars(CONFIG),
        "layer_norm_eps": 1e-5,
        "ignored_target": IGNORED_TARGET,
        "loss": {name: value[0] for name, value in first.items()},
        "grad_norm": {name: value[1] for name, value in first.items()},
        "grad_deviation": {name: deviation(first[name][2], reference) for name in ("f32", "bf16")},
        "no_bias": {"loss": no_bias_loss, "grad_norm": no_bias_norm,
                    "grad_norms": {n: g.norm().item() for n, g in no_bias_grads.items()}},
        "optimizer": OPTIMIZER,
        "training": runs,
        "final_deviation": {n: deviation(finals[n], finals["f64"]) for n in ("f32", "bf16")},
    })


def check_against_transformers(weights, config, tokens, logits):
    """Two programs that share no code agree to float64 rounding, or the golden files are wrong."""
    own = Gpt(config).double()
    own.load_state_dict({n.removeprefix("transformer."): w.double() for n, w in weights.items()})
    error = (own(tokens) - logits).abs().max().item()
    if error > 1e-12:
        sys.exit(f"gpt_reference.py and transformers disagree by {error} in a logit")
    return error


def greedy(model, prompt, count):
    """Greedy continuation by whole forward passes, and the smallest lead of a chosen token."""
    row, lead = prompt.clone(), float("inf")
    for _ in range(count):
        best = model(row[None]).logits[0, -1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        row = torch.cat([row, best.indices[:1]])
    return row[len(prompt):].tolist(), lead


def make_hf_golden(folder):
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as error:
        sys.exit(f"missing: {error}; pip install transformers")
    generator = torch.Generator().manual_seed(SEED + 1)
    config = GptConfig(layers=2, heads=4, width=32, context=32, vocab=97)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=config.vocab, n_positions=config.context, n_embd=config.width,
        n_layer=config.layers, n_head=config.heads, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, attn_implementation="eager")).eval()
    with torch.no_grad():
        for name, p in random_parameters(config, generator).items():
            # Larger than any initialisation: the continuation then depends on all it has seen.
            model.transformer.get_parameter(name).copy_(p * (2.0 if p.dim() > 1 else 1.0))
    folder = os.path.join(folder, "hf_gpt2_tiny")
    model.save_pretrained(folder)
    model.generation_config.eos_token_id = None  # a fixed number of tokens
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)

    tokens = torch.randint(config.vocab, (2, 24), generator=generator)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        logits = exact(tokens).logits
        continuations = [greedy(exact, row[:8], config.context - 8) for row in tokens]
        weights = load_file(os.path.join(folder, "model.safetensors"))
        check_against_transformers(weights, config, tokens, logits)
        f32_error = (model(tokens).logits.double() - logits).abs().max().item()
        generated = model.generate(tokens[:, :8], max_length=config.context, do_sample=False,
                                   attention_mask=torch.ones(2, 8, dtype=torch.long),
                                   pad_token_id=0)[:, 8:].tolist()
    if generated != [c[0] for c in continuations]:
        sys.exit("generate() of transformers and repeated forward passes disagree")
    save({"tokens": tokens.int(), "logits": logits.float()},
              os.path.join(folder, "golden.safetensors"))
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)
    write_json(os.path.join(folder, "golden.json"), {
        "made_with": made_with_transformers(),
        "prompt_tokens": 8,
        "greedy": [c[0] for c in continuations],
        "smallest_lead": min(c[1] for c in continuations),
        "largest_logit": logits.abs().max().item(),
        "f32_logit_error": f32_error,
    })


def made_with_transformers():
    import transformers
    return f"transformers {transformers.__version__}, PyTorch {torch.__version__.split('+')[0]}"


def save(tensors, path):
    save_file(tensors, path)
    os.chmod(path, 0o644)


def write_json(path, value):
    with open(path, "w", encoding="ascii") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(here, "../../tests/models/testdata"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.out, exist_ok=True)
    make_gpt_golden(args.out)
    make_hf_golden(args.out)


if __name__ == "__main__":
    main()
