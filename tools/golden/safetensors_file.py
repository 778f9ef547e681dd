"""Writes tests/ckpt/testdata/golden.safetensors with the reference implementation.

python3 tools/golden/safetensors_file.py tests/ckpt/testdata/golden.safetensors
python3 tools/golden/safetensors_file.py --read FILE    lists a file as the reference reads it

Needs the packages safetensors and torch. The reference gives a new file mode 600: chmod 644 it.
"""

import sys

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as error:
    sys.exit(f"missing: {error}; pip install torch safetensors")


def tensors():
    return {
        "f32": torch.tensor([[0.0, -1.5, 3.25], [1e-45, 3.4028234663852886e38, float("inf")]]),
        "bf16": torch.tensor([1.0, -2.0, 0.15625], dtype=torch.bfloat16),
        "f16": torch.tensor([[1.0], [-65504.0], [6e-8]], dtype=torch.float16),
        "f64": torch.tensor([0.1, -1e300], dtype=torch.float64),
        "i32": torch.tensor([-2147483648, 7], dtype=torch.int32),
        "i64": torch.tensor([[[9007199254740993, -1]]], dtype=torch.int64),
        "u8": torch.tensor([1, 2, 255], dtype=torch.uint8),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "nämé \"q\"": torch.tensor([5.0]),
    }


def read(path):
    with safe_open(path, framework="pt") as file:
        print("metadata", file.metadata())
        for name in file.keys():
            tensor = file.get_tensor(name)
            print(name, tensor.dtype, list(tensor.shape), tensor.flatten()[:8].tolist())


if sys.argv[1] == "--read":
    read(sys.argv[2])
else:
    save_file(tensors(), sys.argv[1], metadata={"format": "pt", "note": "golden"})
