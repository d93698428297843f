-- Everything that a GPT-2 run can say, small.
local t = require "tenon"

local p = t.params {
  lr = t.number { 1e-3, min = 0, doc = "peak learning rate" },
  steps = t.count { "1Ki", min = 1 },
  file = t.file { "corpus.txt" },
}

return t.run {
  name = "tiny-gpt2",
  seed = 7,
  steps = p.steps,
  batch = 8,
  context = 16,
  precision = "f64",
  numerics = { mode = "exact", shards = 4 },
  model = t.models.gpt2 { layers = 2, heads = 2, width = 8, vocab = 32, context = 16, dropout = 0.1 },
  data = t.data.text { files = { p.file, "more.txt" }, valid = 0.05 },
  optim = t.optim.adamw {
    lr = t.lr.cosine { peak = p.lr, floor = p.lr / 8, warmup = 10 },
    beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1,
    groups = { { match = { "*.bias", "ln_*" }, weight_decay = 0 } },
  },
  mesh = t.mesh { dp = 2 },
  strategies = { t.strategy.data {} },
  kernels = t.plugin("kernels/reference", { threads = 1, modes = { "a", "b" }, fast = false }),
  comm = "comm/local",
  eval = { every = 50, batches = 4 },
  save = { every = 100, keep = 3 },
  log = { every = 5, sinks = { t.sink.jsonl { file = "steps.jsonl" } } },
}
