-- Grouped heads, an untied head, a WSD schedule; the rest by default.
local t = require "tenon"

return t.run {
  steps = 100,
  batch = 4,
  context = 8,
  model = t.models.llama { layers = 2, heads = 4, kv_heads = 2, width = 16, vocab = 32, ffn = 24, theta = 500 },
  data = t.data.text { file = "corpus.txt" },
  optim = t.optim.sgd { lr = t.lr.wsd { peak = 0.1, warmup = 5, decay = 20 }, momentum = 0.9, nesterov = true },
}
