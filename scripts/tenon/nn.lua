-- Layers as functions on values. nn.model records what they do and returns the model of a resolved recipe
-- (docs/reference/resolved-recipe.md): named parameters, ops, repeats.
--
-- A value knows its graph, its scope (the model or one nn.blocks) and its dims: {"batch"}, {"seq"}, then
-- { name, size } pairs. A parameter's name holds {i} exactly if it belongs to a round of nn.blocks.
local core = require "tenon.core"
local s = require "tenon.schema"

local Model = s.class("a model", "t.models.gpt2, t.models.llama, t.models.mlp or t.nn.model")
local Value = s.class("a value", "what t.nn functions return")
local Param = s.class("a parameter of the model", "t.nn.param")
local Init = s.class("an initial value", "t.nn.normal, t.nn.uniform, t.nn.zeros or t.nn.ones")

local nn = {}

local any_value = s.object(Value)
local size = s.count { min = 1 }

-- ---- dims ----

local dim_type = {
  name = "a pair { \"name\", size }",
  check = function(value)
    if type(value) ~= "table" or #value ~= 2 or type(value[1]) ~= "string" then return nil end
    local number, code = size.check(value[2])
    if not number then return nil, code end
    return { value[1], number }
  end,
}
local dims_type = s.list(dim_type, "the dims")

-- { "ffn", 64 } as well as { { "ffn", 64 } }.
local one_or_more_dims = {
  name = "a pair { \"name\", size } or a list of them",
  check = function(value, owner, key)
    if type(value) ~= "table" or #value == 0 then return nil end
    if type(value[1]) ~= "string" then return dims_type.check(value, owner, key) end
    local single, code = dim_type.check(value)
    return single and { single }, code
  end,
}

local function show_dims(dims)
  local parts = {}
  for i, dim in ipairs(dims) do parts[i] = dim[2] and dim[1] .. "=" .. dim[2] or dim[1] end
  return "[" .. table.concat(parts, " ") .. "]"
end

local function same_dims(a, b)
  if #a ~= #b then return false end
  for i, dim in ipairs(a) do
    if dim[2] ~= b[i][2] then return false end
  end
  return true
end

-- What follows batch and seq.
local function inner(dims) return { table.unpack(dims, 3) } end

local function token_dims(dims) return { { "batch" }, { "seq" }, table.unpack(dims) } end

-- ---- the graph ----

local function new_scope(parent) return { ops = {}, params = {}, parent = parent, open = true } end

local function new_graph(name)
  local scope = new_scope()
  return { name = name, top = scope, scope = scope, params = {}, used = {}, num_dropouts = 0 }
end

local function check_value(what, value, owner, key)
  if getmetatable(value) ~= Value then
    s.fail("R003", what .. " wants a value of the model, got " .. s.describe(value), nil, owner, key)
  end
  if not value.scope.open then
    s.fail("R012", what .. ": the value '" .. value.name .. "' belongs to the inside of nn.blocks",
      "only what the blocks return is there behind them", owner, key)
  end
  if value.replaced then
    s.fail("R012", what .. ": the value '" .. value.name .. "' was changed by nn.blocks",
      "use what nn.blocks returned, or the argument of its function", owner, key)
  end
  return value
end

local function new_value(graph, name, dims)
  return s.make(Value, { graph = graph, scope = graph.scope, name = name, dims = dims })
end

-- A name that no other value has: the layer's without its round, or the op's kind.
local function fresh(graph, base)
  base = base:gsub("%.?{i}", "")
  local name, n = base, 1
  while graph.used[name] do
    n = n + 1
    name = base .. "." .. n
  end
  graph.used[name] = true
  return name
end

-- Adds an op. `outputs` lists { suffix, dims }; the first is returned.
local function emit(graph, kind, base, inputs, outputs, attrs)
  local names, first = {}, fresh(graph, base)
  for i, input in ipairs(inputs) do names[i] = input.name end
  local op = { op = kind, ["in"] = names, out = {}, attrs = attrs }
  for i, output in ipairs(outputs) do
    op.out[i] = i == 1 and first or fresh(graph, first .. "." .. output[1])
  end
  core.mark(op, nil, core.caller())
  local ops = graph.scope.ops
  ops[#ops + 1] = op
  return new_value(graph, first, outputs[1][2])
end

local function input(graph, name) return { name = name, graph = graph } end

-- ---- parameters ----

function nn.normal(std)
  return s.make(Init, { kind = "normal", std = s.accept(s.number { min = 0 }, std, nil, "std", "nn.normal") })
end
function nn.uniform(bound)
  return s.make(Init, { kind = "uniform", bound = s.accept(s.number { min = 0 }, bound, nil, "bound", "nn.uniform") })
end
function nn.zeros() return s.make(Init, { kind = "zeros" }) end
function nn.ones() return s.make(Init, { kind = "ones" }) end

-- nn.param { name = "wte.weight", dims = { { "vocab", 256 }, { "hidden", 64 } }, init = nn.normal(0.02) }: for a
-- parameter that several layers use. It joins the model when a layer uses it.
function nn.param(given)
  local record = s.record("nn.param", given, {
    name = s.required(s.string), dims = s.required(dims_type), init = s.required(s.object(Init)),
  })
  return s.make(Param, record)
end

local function new_param(name, dims, init) return s.make(Param, { name = name, dims = dims, init = init }) end

-- The model's parameter of that name; the same name means the same parameter.
local function use_param(graph, what, param)
  local known = graph.params[param.name]
  if known then
    if not same_dims(known.dims, param.dims) then
      core.fail("R006", string.format("%s: parameter '%s' is %s and %s", what, param.name, show_dims(known.dims),
        show_dims(param.dims)), "give each layer its own name")
    end
    if known.scope and not known.scope.open then
      core.fail("R006", what .. ": parameter '" .. param.name .. "' belongs to other blocks", "give it another name")
    end
    return known
  end
  if graph.used[param.name] then
    core.fail("R006", what .. ": '" .. param.name .. "' is the name of a value", "give the parameter another name")
  end
  local in_round = param.name:find("{i}", 1, true) ~= nil
  if in_round and graph.scope == graph.top then
    core.fail("R006", what .. ": parameter '" .. param.name .. "' has {i} outside of nn.blocks")
  end
  local scope = in_round and graph.scope or graph.top
  local entry = { name = param.name, dims = {}, init = param.init }
  for i, dim in ipairs(param.dims) do entry.dims[i] = { dim[1], dim[2] } end
  core.mark(entry, nil, core.caller())
  scope.params[#scope.params + 1] = entry
  known = { name = param.name, dims = param.dims, scope = in_round and scope or nil }
  graph.params[param.name], graph.used[param.name] = known, true
  return known
end

-- ---- layers ----

local function layer(what, given, fields)
  fields[1] = s.required(any_value)
  local record = s.record(what, given, fields)
  check_value(what, record[1], given, 1)
  return record, record[1].graph
end

local function need_name(what, record, given)
  if not record.name then s.fail("R004", what .. " needs 'name', a string", nil, given) end
  return record.name
end

-- nn.embedding { ids, name = "wte", dims = { { "vocab", 256 }, { "hidden", 64 } }, std = 0.02 }, or with
-- weight = nn.param { ... } in place of name, dims and std. y = weight[ids]
function nn.embedding(given)
  local what = "nn.embedding"
  local record, graph = layer(what, given, {
    name = s.optional(s.string), dims = s.optional(dims_type), std = s.default(s.number { min = 0 }, 0.02),
    weight = s.optional(s.object(Param)),
  })
  local weight = record.weight
  if not weight then
    local name = need_name(what, record, given)
    if not record.dims then s.fail("R004", what .. " needs 'dims', two of them", nil, given) end
    weight = new_param(name .. ".weight", record.dims, nn.normal(record.std))
  end
  if #weight.dims ~= 2 then
    s.fail("R005", what .. ": 'dims' are the rows and the columns of the table, got " .. show_dims(weight.dims), nil,
      given, record.weight and "weight" or "dims")
  end
  local ids = record[1]
  if #ids.dims ~= 2 then s.fail("R003", what .. " wants ids of [batch seq], got " .. show_dims(ids.dims), nil, given, 1) end
  if ids.name == "positions" then
    graph.context = math.min(graph.context or weight.dims[1][2], weight.dims[1][2])
  end
  local table_ = use_param(graph, what, weight)
  return emit(graph, "embedding", record.name or "embedding", { ids, table_ },
    { { "y", token_dims { weight.dims[2] } } })
end

local function linear_weight(what, record, given, from)
  if record.weight then
    for _, key in ipairs { "out", "std" } do
      if record[key] then s.fail("R002", what .. ": '" .. key .. "' has no meaning beside 'weight'", nil, given, key) end
    end
    return record.weight
  end
  local name = need_name(what, record, given)
  if not record.out then s.fail("R004", what .. " needs 'out', " .. one_or_more_dims.name, nil, given) end
  local dims = { table.unpack(record.out) }
  for _, dim in ipairs(from) do dims[#dims + 1] = dim end
  return new_param(name .. ".weight", dims, nn.normal(record.std or 0.02))
end

-- nn.linear { x, name = "fc", out = { "ffn", 256 }, bias = false, std = 0.02 }: all dims of x behind batch and
-- seq are contracted. Or with weight = nn.param { ... } in place of name, out and std. y = x weight^T + bias
function nn.linear(given)
  local what = "nn.linear"
  local record, graph = layer(what, given, {
    name = s.optional(s.string), out = s.optional(one_or_more_dims), bias = s.default(s.boolean, false),
    std = s.optional(s.number { min = 0 }), weight = s.optional(s.object(Param)),
  })
  local x = record[1]
  local from = inner(x.dims)
  local weight = linear_weight(what, record, given, from)
  local num_out = #weight.dims - #from
  local out = { table.unpack(weight.dims, 1, math.max(num_out, 0)) }
  if num_out < 1 or not same_dims({ table.unpack(weight.dims, num_out + 1) }, from) then
    s.fail("R005", string.format("%s: the weight %s does not end with the dims of x, %s", what, show_dims(weight.dims),
      show_dims(from)), nil, given, "weight")
  end
  local base = record.name or "linear"
  local y = emit(graph, "linear", base, { x, use_param(graph, what, weight) }, { { "y", token_dims(out) } })
  if not record.bias then return y end
  local bias = new_param(need_name(what, record, given) .. ".bias", out, nn.zeros())
  return emit(graph, "bias_add", base .. ".biased", { y, use_param(graph, what, bias) }, { { "y", y.dims } })
end

local function norm(what, given)
  local record, graph = layer(what, given, {
    name = s.required(s.string), eps = s.default(s.number { above = 0 }, 1e-5),
  })
  local x = record[1]
  if #x.dims ~= 3 then s.fail("R003", what .. " wants x of [batch seq hidden], got " .. show_dims(x.dims), nil, given, 1) end
  return record, graph, x
end

-- nn.layernorm { x, name = "ln_1", eps = 1e-5 }: over the last dim, with weight and bias.
function nn.layernorm(given)
  local what = "nn.layernorm"
  local record, graph, x = norm(what, given)
  local weight = use_param(graph, what, new_param(record.name .. ".weight", inner(x.dims), nn.ones()))
  local bias = use_param(graph, what, new_param(record.name .. ".bias", inner(x.dims), nn.zeros()))
  local rows = { { "batch" }, { "seq" } }
  return emit(graph, "layernorm", record.name, { x, weight, bias },
    { { "y", x.dims }, { "mean", rows }, { "rstd", rows } }, { eps = record.eps })
end

-- nn.rmsnorm { x, name = "norm", eps = 1e-5 }: over the last dim, with weight.
function nn.rmsnorm(given)
  local what = "nn.rmsnorm"
  local record, graph, x = norm(what, given)
  local weight = use_param(graph, what, new_param(record.name .. ".weight", inner(x.dims), nn.ones()))
  return emit(graph, "rmsnorm", record.name, { x, weight }, { { "y", x.dims }, { "rstd", { { "batch" }, { "seq" } } } },
    { eps = record.eps })
end

-- nn.gelu(x): tanh approximation.
function nn.gelu(x)
  check_value("nn.gelu", x)
  return emit(x.graph, "gelu", "gelu", { x }, { { "y", x.dims } })
end

local function check_pair(what, a, b)
  check_value(what, a)
  check_value(what, b)
  if not same_dims(a.dims, b.dims) then
    core.fail("R005", what .. ": " .. show_dims(a.dims) .. " and " .. show_dims(b.dims) .. " differ")
  end
end

-- nn.swiglu(gate, up): silu(gate) * up.
function nn.swiglu(gate, up)
  check_pair("nn.swiglu", gate, up)
  return emit(gate.graph, "swiglu", "swiglu", { gate, up }, { { "y", gate.dims } })
end

-- nn.add(x, y)
function nn.add(x, y)
  check_pair("nn.add", x, y)
  return emit(x.graph, "add", "add", { x, y }, { { "z", x.dims } })
end

-- nn.rope { x, theta = 10000 }: rotary positions on the last dim, halves rotated against each other.
function nn.rope(given)
  local record, graph = layer("nn.rope", given, { theta = s.default(s.number { above = 0 }, 10000.0) })
  local x = record[1]
  local last = x.dims[#x.dims]
  if #x.dims < 3 or last[2] % 2 ~= 0 then
    s.fail("R005", "nn.rope wants an even last dim, got " .. show_dims(x.dims), nil, given, 1)
  end
  return emit(graph, "rope", "rope", { x, input(graph, "positions") }, { { "y", x.dims } },
    { theta = record.theta, inverse = 0 })
end

local function check_attention(q, k, v, given)
  local what = "nn.attention"
  if #q.dims ~= 5 then
    s.fail("R003", what .. " wants q of [batch seq group rep head], got " .. show_dims(q.dims), nil, given, 1)
  end
  local want = token_dims { q.dims[3], q.dims[5] }
  for i, side in ipairs { k, v } do
    if not same_dims(side.dims, want) then
      s.fail("R003", string.format("%s wants %s of %s, got %s", what, i == 1 and "k" or "v", show_dims(want),
        show_dims(side.dims)), nil, given, i + 1)
    end
  end
end

-- nn.attention { q, k, v, scale = 1 / sqrt(head) }: causal; q of [.. group rep head], k and v of [.. group head].
function nn.attention(given)
  local record, graph = layer("nn.attention", given, {
    [2] = s.required(any_value), [3] = s.required(any_value), scale = s.optional(s.number { above = 0 }),
  })
  local q = record[1]
  local k = check_value("nn.attention", record[2], given, 2)
  local v = check_value("nn.attention", record[3], given, 3)
  check_attention(q, k, v, given)
  local lse = { { "batch" }, q.dims[3], q.dims[4], { "seq" } }
  local positions = input(graph, "positions")
  return emit(graph, "attention", "attention", { q, k, v, positions, positions }, { { "o", q.dims }, { "lse", lse } },
    { scale = record.scale or 1 / math.sqrt(q.dims[5][2]) })
end

-- nn.dropout { x, p = 0.1 }: nothing when p is 0.
function nn.dropout(given)
  local record, graph = layer("nn.dropout", given, { p = s.required(s.number { min = 0, below = 1 }) })
  local x = record[1]
  if record.p == 0 then return x end
  local key = graph.num_dropouts * 65536  -- the core adds the round
  graph.num_dropouts = graph.num_dropouts + 1
  return emit(graph, "dropout", "dropout",
    { x, input(graph, "samples"), input(graph, "positions"), input(graph, "step") }, { { "y", x.dims } },
    { p = record.p, key = key })
end

-- nn.blocks(x, count, function(x, i) ... return x end): the function describes one round; `i` is its number in
-- names, "h." .. i .. ".fc".
function nn.blocks(x, count, body)
  local what = "nn.blocks"
  check_value(what, x)
  s.accept(size, count, nil, "count", what)
  s.accept(s.callback, body, nil, "body", what)
  local graph = x.graph
  if graph.scope ~= graph.top then core.fail("R012", what .. " inside nn.blocks is not possible") end
  if x.scope ~= graph.top or x.is_input then
    core.fail("R012", what .. ": the blocks change '" .. x.name .. "', which is an input of the model")
  end
  local scope = new_scope(graph.top)
  local at = core.caller()
  graph.scope, x.replaced = scope, true
  local entry = new_value(graph, x.name, x.dims)
  local out = check_value(what .. ": the function must return a value;", body(entry, "{i}"))
  if out == entry then core.fail("R012", what .. ": the function returns its argument unchanged", nil, at) end
  check_pair(what .. ": argument and result of the function", entry, out)
  graph.scope, scope.open = graph.top, false
  local ops = graph.top.ops
  local loop = {
    ["repeat"] = count, index = "i", carry = { { x.name, out.name } }, params = scope.params, ops = scope.ops,
  }
  core.mark(loop, nil, at)
  ops[#ops + 1] = loop
  return new_value(graph, x.name, x.dims)
end

-- nn.model("name", function(tokens, positions) ... return logits end)
function nn.model(name, body)
  local what = "nn.model"
  s.accept(s.string, name, nil, "name", what)
  s.accept(s.callback, body, nil, "body", what)
  local at = core.caller()
  local graph = new_graph(name)
  for _, given in ipairs { "tokens", "targets", "positions", "samples", "step" } do graph.used[given] = true end
  local ids = { { "batch" }, { "seq" } }
  local tokens, positions = new_value(graph, "tokens", ids), new_value(graph, "positions", ids)
  tokens.is_input, positions.is_input = true, true
  local logits = check_value(what .. ": the function must return the logits;", body(tokens, positions))
  if #logits.dims ~= 3 then
    core.fail("R005", what .. ": logits are [batch seq vocab], got " .. show_dims(logits.dims), nil, at)
  end
  local model = { name = name, params = graph.top.params, ops = graph.top.ops, logits = logits.name }
  core.mark(model, nil, at)
  return s.make(Model, model, { context = graph.context, vocab = logits.dims[3][2] })
end

return { functions = core.strict(nn, "t.nn"), Model = Model }
