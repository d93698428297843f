-- A GPT of any size on the bytes of a text file: what tests/bench/gpt.py is in PyTorch.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "text file to train on" },
  layers = t.count { min = 1, doc = "blocks" },
  heads = t.count { min = 1, doc = "heads of attention" },
  width = t.count { min = 1, doc = "of the residual stream" },
  vocab = t.count { min = 256, doc = "rows of the table of tokens" },
  context = t.count { min = 1, doc = "rows of the table of positions" },
  batch = t.count { min = 1, doc = "samples per step" },
  tokens = t.count { min = 1, doc = "tokens per sample" },
  steps = t.count { min = 1, doc = "optimizer steps" },
  isa = t.choice { "auto", of = { "auto", "avx512", "avx2", "baseline" }, doc = "instruction set of the kernels" },
}

return t.run {
  name = "bench",
  steps = p.steps,
  batch = p.batch,
  context = p.tokens,
  kernels = t.plugin("kernels/cpu", { isa = p.isa }),
  model = t.models.gpt2 { layers = p.layers, heads = p.heads, width = p.width, vocab = p.vocab, context = p.context },
  data = t.data.text { file = p.file, valid = 0.05 },
  optim = t.optim.adamw { lr = 6e-4, beta2 = 0.95, weight_decay = 0.1, clip = 1.0 },
}
