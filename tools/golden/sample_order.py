#!/usr/bin/env python3
"""Prints the starts that tests/train/sample_order_test.cc pins, from a second implementation of
train/sample_order.h and engine/random.h written from their descriptions alone."""

import math

MASK = 0xFFFFFFFF


def fnv1a32(name):
    h = 0x811C9DC5
    for b in name.encode():
        h = (h ^ b) * 0x01000193 & MASK
    return h


def philox(key, c):
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ key[0], p1 & MASK, p0 >> 32 ^ c[3] ^ key[1], p0 & MASK]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return c


def bits64(seed, site, step, sample, block):
    counter = [block & MASK, block >> 32 | (sample >> 32) << 12, sample & MASK, step]
    v = philox([seed & MASK ^ fnv1a32(site), seed >> 32], counter)
    return v[1] << 32 | v[0]


def permute(seed, size, stream, x):
    a = math.isqrt(size - 1) + 1
    b = -(-size // a)
    while True:
        l, r = divmod(x, b)
        for round_ in range(0, 24, 2):
            l = (l + bits64(seed, "data.order", round_, stream, r)) % a
            r = (r + bits64(seed, "data.order", round_ + 1, stream, l)) % b
        x = l * b + r
        if x < size:
            return x


def start(seed, tokens, context, sample):
    windows = max(1, (tokens - context) // context)
    epoch, i = divmod(sample, windows)
    offset = bits64(seed, "data.offset", 0, epoch, 0) % min(context, tokens - windows * context)
    return offset + permute(seed, windows, epoch, i) * context


for case in [(1, 1000, 16), (1337, 1003854, 256), (2**63 + 5, 9 * 10**12, 4096)]:
    samples = [0, 1, 2, 1000, 2**40]
    print(case, samples, [start(*case, s) for s in samples])
