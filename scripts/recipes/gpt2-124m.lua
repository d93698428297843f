-- GPT-2 124M on the bytes of a text file (ids 0 .. 255 of GPT-2's vocabulary).
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "text file to train on" },
  steps = t.count { 1000, min = 1, doc = "optimizer steps" },
  batch = t.count { 4, min = 1, doc = "samples per step, over all ranks" },
  context = t.count { 256, min = 1, max = 1024, doc = "tokens per sample" },
  lr = t.number { 6e-4, min = 0, doc = "peak learning rate" },
}

return t.run {
  steps = p.steps,
  batch = p.batch,
  context = p.context,
  model = t.models.gpt2 { layers = 12, heads = 12, width = 768, vocab = 50304, context = 1024 },
  data = t.data.text { file = p.file, valid = 0.05 },
  optim = t.optim.adamw {
    lr = t.lr.cosine { peak = p.lr, floor = p.lr / 10, warmup = p.steps // 20 },
    beta2 = 0.95,
    weight_decay = 0.1,
    clip = 1.0,
    groups = { { match = { "*.bias", "*ln_*" }, weight_decay = 0 } },
  },
  eval = { every = 250, batches = 8 },
  save = { every = 500, keep = 2 },
}
