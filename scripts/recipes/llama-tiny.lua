-- A small Llama: rotary positions, SwiGLU, two query heads per key-value head.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "text file to train on" },
  steps = t.count { 500, min = 1, doc = "optimizer steps" },
  lr = t.number { 1e-3, min = 0, doc = "peak learning rate" },
}

return t.run {
  steps = p.steps,
  batch = 16,
  context = 128,
  model = t.models.llama { layers = 4, heads = 8, kv_heads = 4, width = 128, vocab = 256 },
  data = t.data.text { file = p.file, valid = 0.05 },
  optim = t.optim.adamw {
    lr = t.lr.wsd { peak = p.lr, warmup = p.steps // 20, decay = p.steps // 5 },
    beta2 = 0.95,
    weight_decay = 0.1,
    clip = 1.0,
    groups = { { match = { "*norm*" }, weight_decay = 0 } },
  },
  eval = { every = 100, batches = 8 },
}
