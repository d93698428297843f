-- Llama: rotary positions, RMS norms, SwiGLU, grouped heads, no biases. Names are those of Hugging Face's
-- checkpoints.
local s = require "tenon.schema"
local nn = require("tenon.nn").functions

local size = s.count { min = 1 }

local fields = {
  layers = s.required(size),
  heads = s.required(size),
  kv_heads = s.optional(size),
  width = s.required(size),
  vocab = s.required(size),
  ffn = s.optional(size),
  theta = s.default(s.number { above = 0 }, 10000.0),
  dropout = s.default(s.number { min = 0, below = 1 }, 0.0),
  tied = s.default(s.boolean, false),
  eps = s.default(s.number { above = 0 }, 1e-5),
  std = s.default(s.number { min = 0 }, 0.02),
}

local function attention(o, x, name)
  local group, rep, head = { "group", o.kv_heads }, { "rep", o.heads // o.kv_heads }, { "head", o.head }
  local q = nn.linear { x, name = name .. ".q_proj", out = { group, rep, head }, std = o.std }
  local k = nn.linear { x, name = name .. ".k_proj", out = { group, head }, std = o.std }
  local v = nn.linear { x, name = name .. ".v_proj", out = { group, head }, std = o.std }
  local y = nn.attention { nn.rope { q, theta = o.theta }, nn.rope { k, theta = o.theta }, v }
  return nn.linear { y, name = name .. ".o_proj", out = { "hidden", o.width }, std = o.std }
end

local function mlp(o, x, name)
  local gate = nn.linear { x, name = name .. ".gate_proj", out = { "ffn", o.ffn }, std = o.std }
  local up = nn.linear { x, name = name .. ".up_proj", out = { "ffn", o.ffn }, std = o.std }
  return nn.linear { nn.swiglu(gate, up), name = name .. ".down_proj", out = { "hidden", o.width }, std = o.std }
end

local function block(o, x, name)
  local a = attention(o, nn.rmsnorm { x, name = name .. ".input_layernorm", eps = o.eps }, name .. ".self_attn")
  x = nn.add(x, nn.dropout { a, p = o.dropout })
  local m = mlp(o, nn.rmsnorm { x, name = name .. ".post_attention_layernorm", eps = o.eps }, name .. ".mlp")
  return nn.add(x, nn.dropout { m, p = o.dropout })
end

local function check(o, given)
  local function refuse(key, message) s.fail("R005", message .. " of t.models.llama", nil, given, key) end
  if o.width % o.heads ~= 0 then
    refuse("heads", string.format("'heads' = %d does not divide 'width' = %d", o.heads, o.width))
  end
  o.kv_heads = o.kv_heads or o.heads
  if o.heads % o.kv_heads ~= 0 then
    refuse("kv_heads", string.format("'kv_heads' = %d does not divide 'heads' = %d", o.kv_heads, o.heads))
  end
  o.head = o.width // o.heads
  if o.head % 2 ~= 0 then
    refuse("heads", string.format("rotary positions need an even 'width' / 'heads', got %d", o.head))
  end
  o.ffn = o.ffn or (8 * o.width // 3 + 63) // 64 * 64
end

return function(given)
  local o = s.record("t.models.llama", given, fields)
  check(o, given)
  return nn.model("llama", function(tokens)
    local dims = { { "vocab", o.vocab }, { "hidden", o.width } }
    local embed = nn.param { name = "model.embed_tokens.weight", dims = dims, init = nn.normal(o.std) }
    local x = nn.embedding { tokens, name = "model.embed_tokens", weight = embed }
    x = nn.blocks(x, o.layers, function(h, i) return block(o, h, "model.layers." .. i) end)
    x = nn.rmsnorm { x, name = "model.norm", eps = o.eps }
    if o.tied then return nn.linear { x, name = "lm_head", weight = embed } end
    return nn.linear { x, name = "lm_head", out = { "vocab", o.vocab }, std = o.std }
  end)
end
