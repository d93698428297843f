local t = require "tenon"
return t.run {
  name = "tiny", steps = 4, batch = 2, context = 4,
  model = t.models.mlp { layers = 1, width = 8, vocab = 16, ffn = 8 },
  data = t.data.text { file = "corpus.txt" },
  optim = t.optim.sgd { lr = 0.1 },
  mesh = t.mesh { { "", 1 }, { "a,b", 1 }, { "d\np", 2 } },
}
