-- The decoder that Llama and its kin share: rotary positions, RMS norms, grouped heads, no biases; what follows
-- attention in a layer is the model's own. Names are those of Hugging Face's checkpoints.
local core = require "tenon.core"
local s = require "tenon.schema"
local attr = require("tenon.graph").attr
local nn = require("tenon.nn").functions

local decoder = {}

local size = s.count { min = 1 }

local common = {
  layers = s.required(size),
  heads = s.required(size),
  kv_heads = s.optional(size),
  width = s.required(size),
  vocab = s.required(size),
  ffn = s.optional(size),
  theta = s.default(attr("rope", "theta"), 10000.0),
  dropout = s.default(attr("dropout", "p"), 0.0),
  tied = s.default(s.boolean, false),
  eps = s.default(attr("rmsnorm", "eps"), 1e-5),
  std = s.default(s.number { min = 0 }, 0.02),
}

-- Reads the options of a decoder that has `more` options of its own.
function decoder.options(what, given, more)
  local fields = {}
  for key, field in pairs(common) do fields[key] = field end
  for key, field in pairs(more) do fields[key] = field end
  local o = s.record(what, given, fields)
  local function refuse(key, message) s.fail("R005", message .. " of " .. what, nil, given, key) end
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
  return o
end

local function attention(o, x, name)
  local group, rep, head = { "group", o.kv_heads }, { "rep", o.heads // o.kv_heads }, { "head", o.head }
  local q = nn.linear { x, name = name .. ".q_proj", out = { group, rep, head }, std = o.std }
  local k = nn.linear { x, name = name .. ".k_proj", out = { group, head }, std = o.std }
  local v = nn.linear { x, name = name .. ".v_proj", out = { group, head }, std = o.std }
  local y = nn.attention { nn.rope { q, theta = o.theta }, nn.rope { k, theta = o.theta }, v }
  return nn.linear { y, name = name .. ".o_proj", out = { "hidden", o.width }, std = o.std }
end

-- The usual feed-forward part, SwiGLU.
function decoder.dense(o, x, name)
  local gate = nn.linear { x, name = name .. ".gate_proj", out = { "ffn", o.ffn }, std = o.std }
  local up = nn.linear { x, name = name .. ".up_proj", out = { "ffn", o.ffn }, std = o.std }
  return nn.linear { nn.swiglu(gate, up), name = name .. ".down_proj", out = { "hidden", o.width }, std = o.std }
end

local function layer(o, x, name, feed_forward)
  local a = attention(o, nn.rmsnorm { x, name = name .. ".input_layernorm", eps = o.eps }, name .. ".self_attn")
  x = nn.add(x, nn.dropout { a, p = o.dropout })
  local m = feed_forward(o, nn.rmsnorm { x, name = name .. ".post_attention_layernorm", eps = o.eps }, name .. ".mlp")
  return nn.add(x, nn.dropout { m, p = o.dropout })
end

-- A decoder of o.layers layers. Rounds have as many layers as `parts` lists feed-forward parts
-- (functions of o, x and a name): layer j of round i is model.layers.<i>, or model.layers.<i>.<j> where a
-- round has several.
function decoder.model(name, o, parts)
  return nn.model(name, function(tokens)
    local dims = { { "vocab", o.vocab }, { "hidden", o.width } }
    local embed = nn.param { name = "model.embed_tokens.weight", dims = dims, init = nn.normal(o.std) }
    local x = nn.embedding { tokens, name = "model.embed_tokens", weight = embed }
    local layers = {}
    for j, feed_forward in ipairs(parts) do
      local suffix = #parts > 1 and "." .. j - 1 or ""
      layers[j] = function(h, i) return layer(o, h, "model.layers." .. i .. suffix, feed_forward) end
    end
    x = nn.blocks(x, o.layers // #parts, layers)
    x = nn.rmsnorm { x, name = "model.norm", eps = o.eps }
    if o.tied then return nn.linear { x, name = "lm_head", weight = embed } end
    return nn.linear { x, name = "lm_head", out = { "vocab", o.vocab }, std = o.std }
  end)
end

return core.strict(decoder, "tenon.models.decoder")
