-- A GPT of 3.3 million parameters on the bytes of a text file, on two worker processes.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "text file to train on" },
  steps = t.count { 1800, min = 1, doc = "optimizer steps" },
  batch = t.count { 8, min = 1, doc = "samples per step, over all ranks" },
  ranks = t.count { 2, min = 1, doc = "worker processes" },
  lr = t.number { 2e-3, min = 0, doc = "peak learning rate" },
  numerics = t.choice { "fast", of = { "fast", "exact" }, doc = "exact: the same bits on any number of ranks" },
}

return t.run {
  name = "quickstart",
  seed = 1337,
  steps = p.steps,
  batch = p.batch,
  numerics = p.numerics,
  model = t.models.gpt2 { layers = 4, heads = 4, width = 256, vocab = 256, context = 128 },
  data = t.data.text { file = p.file, valid = 0.02 },
  optim = t.optim.adamw {
    lr = t.lr.cosine { peak = p.lr, floor = p.lr / 10, warmup = p.steps // 20 },
    beta2 = 0.95,
    weight_decay = 0.1,
    clip = 1.0,
    groups = { { match = { "*.bias", "*ln_*" }, weight_decay = 0 } },
  },
  mesh = t.mesh { dp = p.ranks },
  eval = { every = 300, batches = 16 },
  save = { every = 300, keep = 2 },
  log = { every = 10, sinks = { t.sink.jsonl {} } },
}
