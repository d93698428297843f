"""A GPT-2 in PyTorch, as fast as it goes there, for scripts/dev/bench: the peer of scripts/tenon/models/gpt2.lua.

Prints one line of JSON: the seconds of each step, and the peak resident size. Fused AdamW, fused attention and
fused clipping are used where this PyTorch has them.
"""
import argparse, json, math, resource, sys, time
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fc_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # before 2.0
            score = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.size(-1)))
            hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
            y = score.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, vocab, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    for name in ("layers", "heads", "width", "vocab", "context", "batch", "tokens", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--serve", action="store_true", help="run --steps steps for each line read")
    a = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    model = GPT(a.layers, a.heads, a.width, a.vocab, a.context)
    options = dict(lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
    except (RuntimeError, TypeError):  # no fused AdamW on the CPU: all tensors at once
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True, **options)
    run = torch.compile(model) if a.compile else model
    ids = torch.randint(0, min(a.vocab, 256), (a.batch, a.tokens + 1))

    def step():
        start = time.perf_counter()
        loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - start

    def burst(steps):
        seconds = [step() for _ in range(steps)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak_bytes": peak, "torch": torch.__version__}), flush=True)

    if not a.serve:
        return burst(a.steps)
    step(), step()  # warm, before the first burst
    for _ in sys.stdin:
        burst(a.steps)


main()
