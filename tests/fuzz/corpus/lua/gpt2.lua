local t = require "tenon"
return t.run {
  name = "tiny", steps = 4, batch = 2, context = 4,
  model = t.models.gpt2 { layers = 1, width = 8, heads = 2, vocab = 16 },
  data = t.data.text { file = "corpus.txt" },
  optim = t.optim.sgd { lr = 0.1 },
  mesh = t.mesh { dp = 2 }, strategies = { t.strategy.data {} },
}
