-- A model written op by op, each op on a line of its own: two layers of attention and a gated network whose norms
-- come last, over two ranks of the batch, two of the sequence and two of the widths.
local t = require "tenon"
local nn = t.nn

local p = t.params {
  file = t.file { doc = "text file to train on" },
  exchange = t.choice { "ring", of = { "ring", "all_gather", "all_to_all" }, doc = "of parallel/context" },
}

local width, heads = 32, 4

local function attention(x, name)
  local group, head = { "group", heads }, { "head", width // heads }
  local q = nn.linear { x, name = name .. ".q", out = { group, { "rep", 1 }, head } }
  local k = nn.linear { x, name = name .. ".k", out = { group, head } }
  local v = nn.linear { x, name = name .. ".v", out = { group, head } }
  local y = nn.attention {
    nn.rope { q },
    nn.rope { k },
    v,
  }
  return nn.linear { y, name = name .. ".proj", out = { "hidden", width } }
end

local function gated(x, name)
  local gate = nn.linear { x, name = name .. ".gate", out = { "ffn", 2 * width } }
  local up = nn.linear { x, name = name .. ".up", out = { "ffn", 2 * width } }
  local u = nn.rmsnorm { nn.swiglu(gate, up), name = name .. ".norm" }
  return nn.linear { u, name = name .. ".down", out = { "hidden", width } }
end

local model = nn.model("by-hand", function(tokens)
  local x = nn.embedding { tokens, name = "wte", dims = { { "vocab", 256 }, { "hidden", width } } }
  x = nn.blocks(x, 2, function(h, i)
    local a = attention(h, "h." .. i .. ".attn")
    h = nn.add(h, a)
    local g = gated(h, "h." .. i .. ".mlp")
    return nn.add(h, g)
  end)
  x = nn.layernorm { x, name = "ln_f" }
  return nn.linear { x, name = "head", out = { "vocab", 256 } }
end)

return t.run {
  steps = 10,
  batch = 8,
  microbatches = 2,
  context = 32,
  model = model,
  data = t.data.text { file = p.file, valid = 0 },
  optim = t.optim.adamw { lr = 1e-3 },
  mesh = t.mesh { dp = 2, cp = 2, tp = 2 },
  strategies = {
    t.strategy.data {},
    t.strategy.context { exchange = p.exchange },
    t.strategy.tensor {},
    t.strategy.zero { stage = 2 },
  },
}
