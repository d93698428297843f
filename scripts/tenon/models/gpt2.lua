-- GPT-2: learned positions, pre-norm blocks with biases, tied head. Names are those of Hugging Face's
-- checkpoints, with q, k and v as parameters of their own.
local s = require "tenon.schema"
local attr = require("tenon.graph").attr
local nn = require("tenon.nn").functions

local size = s.count { min = 1 }

local fields = {
  layers = s.required(size),
  heads = s.required(size),
  width = s.required(size),
  vocab = s.required(size),
  context = s.required(size),
  ffn = s.optional(size),
  dropout = s.default(attr("dropout", "p"), 0.0),
  tied = s.default(s.boolean, true),
  eps = s.default(attr("layernorm", "eps"), 1e-5),
  std = s.default(s.number { min = 0 }, 0.02),
}

local function attention(o, x, name)
  local group, rep, head = { "group", o.heads }, { "rep", 1 }, { "head", o.width // o.heads }
  local q = nn.linear { x, name = name .. ".q", out = { group, rep, head }, bias = true, std = o.std }
  local k = nn.linear { x, name = name .. ".k", out = { group, head }, bias = true, std = o.std }
  local v = nn.linear { x, name = name .. ".v", out = { group, head }, bias = true, std = o.std }
  local y = nn.attention { q, k, v }
  return nn.linear { y, name = name .. ".c_proj", out = { "hidden", o.width }, bias = true, std = o.residual_std }
end

local function mlp(o, x, name)
  local u = nn.linear { x, name = name .. ".c_fc", out = { "ffn", o.ffn }, bias = true, std = o.std }
  u = nn.gelu(u)
  return nn.linear { u, name = name .. ".c_proj", out = { "hidden", o.width }, bias = true, std = o.residual_std }
end

local function block(o, x, name)
  local a = attention(o, nn.layernorm { x, name = name .. ".ln_1", eps = o.eps }, name .. ".attn")
  x = nn.add(x, nn.dropout { a, p = o.dropout })
  local m = mlp(o, nn.layernorm { x, name = name .. ".ln_2", eps = o.eps }, name .. ".mlp")
  return nn.add(x, nn.dropout { m, p = o.dropout })
end

return function(given)
  local o = s.record("t.models.gpt2", given, fields)
  if o.width % o.heads ~= 0 then
    s.fail("R005", string.format("'heads' = %d of t.models.gpt2 does not divide 'width' = %d", o.heads, o.width), nil,
      given, "heads")
  end
  o.ffn = o.ffn or 4 * o.width
  o.residual_std = o.std / math.sqrt(2 * o.layers)  -- keeps the residual stream's variance at any depth
  return nn.model("gpt2", function(tokens, positions)
    local hidden = { "hidden", o.width }
    local wte = nn.param { name = "wte.weight", dims = { { "vocab", o.vocab }, hidden }, init = nn.normal(o.std) }
    local x = nn.embedding { tokens, name = "wte", weight = wte }
    x = nn.add(x, nn.embedding { positions, name = "wpe", dims = { { "position", o.context }, hidden }, std = o.std })
    x = nn.dropout { x, p = o.dropout }
    x = nn.blocks(x, o.layers, function(h, i) return block(o, h, "h." .. i) end)
    x = nn.layernorm { x, name = "ln_f", eps = o.eps }
    if o.tied then return nn.linear { x, name = "lm_head", weight = wte } end
    return nn.linear { x, name = "lm_head", out = { "vocab", o.vocab }, std = o.std }
  end)
end
