#!/usr/bin/env python3
"""Makes tests/train/testdata: a small byte-level BPE, and what Hugging Face's tokenizers makes of it.

usage: make_tokenizer_golden.py testdata ENGLISH.txt     writes tests/train/testdata
       make_tokenizer_golden.py oracle OUT TOKENIZER TEXT...   writes a folder for
           PANDO_TOKENIZER_ORACLE=OUT bazel test //tests/train:tokenizer_oracle_test
           TOKENIZER is a folder with vocab.json and merges.txt, or a tokenizer.json.

Needs the Python package tokenizers (0.23 made what is committed). ENGLISH.txt is tiny Shakespeare.
"""

import array
import json
import os
import random
import shutil
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/train/testdata")
END = "<|endoftext|>"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

MIXED = "".join([
    "It's I'll we've you're they'd I'm don't IT'S I'LL WE'VE YOU'RE 'tis o'clock rock'n'roll ''s '' '\n",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m \u212bngstr\u00f6m stra\u00dfe STRASSE it'\u017f \u212aelvin\n",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002\u4e2d\u6587\uff0c\u6a19\u9ede\n",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea\U0001f1ef\U0001f1f5 \u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3\n",
    "x\u00a0y x\u2003y x\u3000y x\u200by x\ufeffy x\u180ey x\u0085y x\u1680y x\u2028y x\u2029y x\u202fy x\u205fy\n",
    "a\x00b a\x01b a\x1bb a\x1cb a\x1db a\x1eb a\x1fb a\x7fb a\tb a\x0bb a\x0cb a\x08b\n",
    "one\r\ntwo\r\n\r\nthree\rfour\n\n\nfive \r\n  six\t\t seven \n \n eight   \n",
    "1234567890 3.14159 1,000,000 \u0661\u0662\u0663 \u2460\u00bd\u00b2\u2167 \U0001d7d8 x2y 2nd 0x1F\n",
    "if (x == 3) { return a[i++] * -b->c; } // ??!! ... ---- ==== #include <v> $5.00 50% @me_too\n",
    "unassigned \u0378 private \ue000\U0010fffd non-character \uffff\U0010ffff tag \U000e0041\n",
    "new: \u1c89 \ua7cb \U0001e4d0\U0001e4f1 \U00031350 \U00011f50 \U0001e5f1 combining \u0301\u0301\u0301 \u0e33\u0e33\n",
    " " * 70 + "x" + " " * 33 + "\n" + "\t" * 20 + "y" + "\n" * 19 + "z" + " " * 5,
])


def random_text(count, seed):
    """Code points of every plane, with spaces and letters strewn in so that classes meet."""
    draw = random.Random(seed)
    pools = [lambda: draw.randrange(0x20, 0x7F), lambda: draw.choice([9, 10, 11, 12, 13, 32, 32, 0x85, 0xA0, 0x180E, 0x3000]),
             lambda: draw.randrange(0x80, 0x800), lambda: draw.randrange(0x800, 0xD800),
             lambda: draw.randrange(0xE000, 0x20000), lambda: draw.choice([39, 115, 116, 108, 49, 0x17F])]
    return "".join(chr(draw.choice(pools)()) for _ in range(count))


def bpe(vocab, merges, **model):
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, **model))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([END])
    return t


def ids(tokenizer, text, special=True):
    tokenizer.encode_special_tokens = not special
    return tokenizer.encode(text, add_special_tokens=False).ids


def ranges(expression):
    """The code points, as [first, last] pairs, that the expression matches in HF's engine."""
    split = pre_tokenizers.Split(Regex(expression), "removed")
    out = []
    for c in range(0x110000):
        if 0xD800 <= c <= 0xDFFF or split.pre_tokenize_str(chr(c)):
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def write_json(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        json.dump(value, f, separators=(",", ":"))


def testdata(english_path):
    os.makedirs(os.path.join(HERE, "bpe"), exist_ok=True)
    english = open(english_path, encoding="utf-8", newline="").read()
    trainer = trainers.BpeTrainer(vocab_size=1257, show_progress=False, special_tokens=[],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([english[:300000]] + [MIXED] * 12, trainer)
    t.add_special_tokens([END])
    model = json.loads(t.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(m) for m in model["merges"]]
    with open(os.path.join(HERE, "bpe/merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join("%s %s\n" % m for m in merges))
    write_json("bpe/vocab.json", dict(vocab, **{END: len(vocab)}))

    plain = bpe(vocab, merges)
    prefix = bpe(vocab, merges)
    prefix.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    split = bpe(vocab, merges)
    split.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    added = bpe(dict(vocab, **{"\u0120unreachable": len(vocab)}), merges, ignore_merges=True)
    added.add_tokens([AddedToken("<x>", normalized=False), AddedToken("<x><y>", normalized=False)])
    write_json("tokenizer.json", json.loads(plain.to_str()))
    tags = "a%sb %s%s <x>< x><x><y><x> unreachable  unreachable<|endoftext" % (END, END, END)
    texts = {"mixed": MIXED, "english": english[500000:510000], "random": random_text(1500, 7), "tags": tags}
    for name, text in texts.items():
        with open(os.path.join(HERE, name + ".txt"), "w", encoding="utf-8", newline="") as f:
            f.write(text)
    variants = {}
    for name, t in {"plain": plain, "prefix": prefix, "split": split, "added": added}.items():
        whole = json.loads(t.to_str())
        # What a test puts in place of the same fields of tokenizer.json.
        patch = {k: whole[k] for k in ("pre_tokenizer", "added_tokens")}
        patch["ignore_merges"] = whole["model"]["ignore_merges"]
        patch["vocab"] = {k: v for k, v in whole["model"]["vocab"].items() if v >= len(vocab)}
        chosen = texts if name == "plain" else {k: v for k, v in texts.items() if k != "english"}
        variants[name] = {
            "patch": patch,
            "special": {k: ids(t, v) for k, v in chosen.items()},
            "as_text": {"tags": ids(t, tags, special=False)}}
    write_json("golden.json", variants)
    write_json("classes.json", {k: ranges(v) for k, v in (("L", r"\p{L}"), ("N", r"\p{N}"), ("s", r"\s"))})


def oracle(out, source, paths):
    if os.path.isdir(source):
        merges = [tuple(l.split(" ")) for l in open(os.path.join(source, "merges.txt"), encoding="utf-8").read().split("\n")
                  if l and not l.startswith("#version")]
        t = bpe(json.load(open(os.path.join(source, "vocab.json"), encoding="utf-8")), merges)
        shutil.copytree(source, os.path.join(out, "tokenizer"), dirs_exist_ok=True)
    else:
        t = Tokenizer.from_file(source)
        os.makedirs(os.path.join(out, "tokenizer"), exist_ok=True)
        shutil.copy(source, os.path.join(out, "tokenizer/tokenizer.json"))
    every = "".join("%sa%s1%s %s" % ((chr(c),) * 4) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    texts = {"mixed": MIXED, "random": random_text(1000000, 1), "every": every}
    for path in paths:
        texts[os.path.basename(path)] = open(path, encoding="utf-8", errors="replace", newline="").read()
    for name, text in texts.items():
        with open(os.path.join(out, name + ".text"), "w", encoding="utf-8", newline="") as f:
            f.write(text)
        with open(os.path.join(out, name + ".ids"), "wb") as f:
            array.array("i", ids(t, text, special=False)).tofile(f)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "testdata":
        testdata(sys.argv[2])
    elif len(sys.argv) > 3 and sys.argv[1] == "oracle":
        oracle(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(__doc__)
