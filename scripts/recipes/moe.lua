-- A small mixture of experts: eight of them, two for each token, chosen within groups of 32 tokens.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "text file to train on" },
  steps = t.count { 500, min = 1, doc = "optimizer steps" },
  experts = t.count { 8, min = 2, doc = "experts of a layer" },
  lr = t.number { 1e-3, min = 0, doc = "peak learning rate" },
}

return t.run {
  steps = p.steps,
  batch = 16,
  context = 128,
  model = t.models.moe {
    layers = 4, heads = 8, kv_heads = 4, width = 128, vocab = 256, ffn = 192,
    experts = p.experts, top_k = 2, group = 32,
  },
  data = t.data.text { file = p.file, valid = 0.05 },
  optim = t.optim.adamw {
    lr = t.lr.cosine { peak = p.lr, floor = p.lr / 10, warmup = p.steps // 20 },
    beta2 = 0.95,
    weight_decay = 0.1,
    clip = 1.0,
    groups = { { match = { "*norm*", "*router*" }, weight_decay = 0 } },
  },
  eval = { every = 100, batches = 8 },
}
