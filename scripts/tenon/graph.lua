-- The graph that a model's functions build: values, ops, parameters, rounds of nn.blocks.
--
-- A value knows its graph, its scope (the model or one nn.blocks) and its dims: {"batch"}, {"seq"} (or, behind
-- nn.dispatch, {"routing_group"}), then { name, size } pairs. A parameter's name holds {i} exactly if it belongs to
-- a round of nn.blocks.
local core = require "tenon.core"
local ops = require "tenon.ops"
local s = require "tenon.schema"

local Model = s.class("a model", "t.models.gpt2, t.models.llama, t.models.moe, t.models.mlp or t.nn.model")
local Value = s.class("a value", "what t.nn functions return")
local Param = s.class("a parameter of the model", "t.nn.param")

local graph = { Model = Model, Value = Value, Param = Param }

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
graph.dims_type = s.list(dim_type, "the dims")

-- { "ffn", 64 } as well as { { "ffn", 64 } }.
graph.one_or_more_dims = {
  name = "a pair { \"name\", size } or a list of them",
  check = function(value, owner, key)
    if type(value) ~= "table" or #value == 0 then return nil end
    if type(value[1]) ~= "string" then return graph.dims_type.check(value, owner, key) end
    local single, code = dim_type.check(value)
    return single and { single }, code
  end,
}

function graph.show_dims(dims)
  local parts = {}
  for i, dim in ipairs(dims) do parts[i] = dim[2] and dim[1] .. "=" .. dim[2] or dim[1] end
  return "[" .. table.concat(parts, " ") .. "]"
end

function graph.same_dims(a, b)
  if #a ~= #b then return false end
  for i, dim in ipairs(a) do
    if dim[2] ~= b[i][2] then return false end
  end
  return true
end

-- What follows batch and seq.
function graph.inner(dims) return { table.unpack(dims, 3) } end

function graph.token_dims(dims) return { { "batch" }, { "seq" }, table.unpack(dims) } end

-- The type of an op's attribute: a number or a whole number, in the range of the op table.
function graph.attr(kind, name)
  local row = ops.kinds[kind].attrs[name]
  return row.whole and s.count(row) or s.number(row)
end

-- ---- values and ops ----

local function new_scope(parent) return { ops = {}, params = {}, parent = parent, open = true } end

local function new_graph(name)
  local scope = new_scope()
  return { name = name, top = scope, scope = scope, params = {}, used = {}, num_dropouts = 0, groups = {} }
end

function graph.check_value(what, value, owner, key)
  if getmetatable(value) ~= Value then
    s.fail("R003", what .. " wants a value of the model, got " .. s.describe(value), nil, owner, key)
  end
  if not value.graph.top.open then
    s.fail("R012", what .. ": '" .. value.name .. "' belongs to another model", nil, owner, key)
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

local function new_value(g, name, dims)
  return s.make(Value, { graph = g, scope = g.scope, name = name, dims = dims })
end

-- A name that no other value has: the layer's without its round, or the op's kind.
local function fresh(g, base)
  base = base:gsub("%.?{i}", "")
  local name, n = base, 1
  while g.used[name] do
    n = n + 1
    name = base .. "." .. n
  end
  g.used[name] = true
  return name
end

-- Letters of an operand in the op table, "b s k..", with what some say of their size: { "v", attr = "rows" }.
local function letters_of(text)
  local letters = {}
  for word in text:gmatch("%S+") do
    local letter, note = word:match("^(%a+)=(.+)$")
    letters[#letters + 1] = { letter or word, attr = note and not note:find("/", 1, true) and note or nil }
  end
  return letters
end

local function is_open(letter) return letter:sub(-2) == ".." end

-- What an operand must be: of a letter that is not bound yet, its name.
local function wanted(letters, bound)
  local dims = {}
  for _, word in ipairs(letters) do
    for _, dim in ipairs(bound[word[1]] or { { ops.letters[word[1]] or word[1] } }) do dims[#dims + 1] = dim end
  end
  return dims
end

-- How many dims a letter stands for: those that it is bound to, or one; an open one, all `rest` of them.
local function count_of(letter, bound, rest)
  if bound[letter] then return #bound[letter] end
  return is_open(letter) and rest or 1
end

-- How many dims are left for the operand's open letter; nothing where they do not fit.
local function rest_of(letters, dims, bound)
  local known, open = 0, false
  for _, word in ipairs(letters) do
    known = known + count_of(word[1], bound, 0)
    open = open or (not bound[word[1]] and is_open(word[1]))
  end
  local rest = #dims - known
  return (rest == 0 or (open and rest > 0)) and rest or nil
end

-- Binds letters to an operand's dims, each to a list of them; false where they do not fit.
local function bind(letters, dims, bound)
  local rest, at = rest_of(letters, dims, bound), 1
  if not rest then return false end
  for _, word in ipairs(letters) do
    local have, count = bound[word[1]], count_of(word[1], bound, rest)
    local part = { table.unpack(dims, at, at + count - 1) }
    if have and not graph.same_dims(have, part) then return false end
    bound[word[1]], at = have or part, at + count
  end
  return true
end

-- The dims of the first operands of an op, which are the arguments 1, 2, ... of what the recipe calls.
function graph.check_operands(what, given, kind, values)
  local bound = {}
  for i, value in ipairs(values) do
    local operand = ops.kinds[kind].inputs[i]
    local letters = letters_of(operand[2])
    local want = wanted(letters, bound)
    if not bind(letters, value.dims, bound) then
      s.fail("R003", string.format("%s wants %s of %s, got %s", what, operand[1], graph.show_dims(want),
        graph.show_dims(value.dims)), nil, given, i)
    end
  end
  for letter, divisor in pairs(ops.kinds[kind].divisors or {}) do
    local dim = bound[letter][1]
    if dim[2] % divisor ~= 0 then
      local cause = string.format("%s wants a '%s' divisible by %d, got %d", what, dim[1], divisor, dim[2])
      s.fail("R005", cause, nil, given, 1)
    end
  end
end

-- Adds an op; returns the list of its outputs, whose dims follow from the op table. An input of the model that has
-- no dims of its own has those that the op wants.
function graph.emit_all(g, kind, base, inputs, attrs)
  local names, values, first = {}, {}, fresh(g, base)
  local row, bound = ops.kinds[kind], {}
  for i, input in ipairs(inputs) do
    if input.graph ~= g then core.fail("R012", "nn." .. kind .. ": '" .. input.name .. "' belongs to another model") end
    names[i] = input.name
    local letters = letters_of(row.inputs[i][2])
    if input.dims and not bind(letters, input.dims, bound) then
      core.fail("R005", string.format("nn.%s wants %s of %s, got %s", kind, row.inputs[i][1],
        graph.show_dims(wanted(letters, bound)), graph.show_dims(input.dims)))
    end
  end
  local op = { op = kind, ["in"] = names, out = {}, attrs = attrs }
  for i, output in ipairs(row.outputs) do
    local letters = letters_of(output[2])
    for _, word in ipairs(letters) do
      if word.attr then bound[word[1]] = { { ops.letters[word[1]], attrs[word.attr] } } end
    end
    op.out[i] = i == 1 and first or fresh(g, first .. "." .. output[1])
    values[i] = new_value(g, op.out[i], wanted(letters, bound))
  end
  core.mark(op, nil, core.caller())
  local made = g.scope.ops
  made[#made + 1] = op
  return values
end

-- The same for ops whose first output is all that matters: returns its value.
function graph.emit(...) return graph.emit_all(...)[1] end

-- What every model has beside its own values: positions, samples, step.
function graph.input(g, name) return { name = name, graph = g } end

-- ---- parameters ----

function graph.new_param(name, dims, init) return s.make(Param, { name = name, dims = dims, init = init }) end

-- Adds the parameter to the round if its name holds {i}, else to the model.
local function add_param(g, what, param)
  if g.used[param.name] then
    core.fail("R006", what .. ": '" .. param.name .. "' is the name of a value", "give the parameter another name")
  end
  local in_round = param.name:find("{i}", 1, true) ~= nil
  if in_round and g.scope == g.top then
    core.fail("R006", what .. ": parameter '" .. param.name .. "' has {i} outside of nn.blocks")
  end
  local scope = in_round and g.scope or g.top
  local entry = { name = param.name, dims = {}, init = param.init }
  for i, dim in ipairs(param.dims) do entry.dims[i] = { dim[1], dim[2] } end
  core.mark(entry, nil, core.caller())
  scope.params[#scope.params + 1] = entry
  return { name = param.name, dims = param.dims, scope = in_round and scope or nil, graph = g }
end

-- The model's parameter of that name; the same name means the same parameter.
function graph.use_param(g, what, param)
  local known = g.params[param.name]
  if not known then
    known = add_param(g, what, param)
    g.params[param.name], g.used[param.name] = known, true
  elseif not graph.same_dims(known.dims, param.dims) then
    core.fail("R006", string.format("%s: parameter '%s' is %s and %s", what, param.name, graph.show_dims(known.dims),
      graph.show_dims(param.dims)), "give each layer its own name")
  elseif known.scope and not known.scope.open then
    core.fail("R006", what .. ": parameter '" .. param.name .. "' belongs to other blocks", "give it another name")
  end
  return known
end

-- ---- rounds and models ----

function graph.check_pair(what, a, b)
  graph.check_value(what, a)
  graph.check_value(what, b)
  if not graph.same_dims(a.dims, b.dims) then
    core.fail("R005", what .. ": " .. graph.show_dims(a.dims) .. " and " .. graph.show_dims(b.dims) .. " differ")
  end
end

-- One layer of a round, from a value to its result.
local function layer_of(g, what, entry, body, at)
  local before = #g.scope.ops
  local out = graph.check_value(what .. ": the function must return a value;", body(entry, "{i}"))
  if out == entry then core.fail("R012", what .. ": the function returns its argument unchanged", nil, at) end
  graph.check_pair(what .. ": argument and result of the function", entry, out)
  return out, #g.scope.ops - before
end

-- nn.blocks(x, count, function(x, i) ... return x end): `count` rounds, of which the function describes one; `i` is
-- its number in names, `"h." .. i .. ".fc"`. A list of functions: each is a layer, and a round has all of them.
function graph.blocks(x, count, body)
  local what = "nn.blocks"
  graph.check_value(what, x)
  s.accept(size, count, nil, "count", what)
  local bodies = type(body) == "table" and #body > 0 and body or { body }
  for _, one in ipairs(bodies) do s.accept(s.callback, one, nil, "body", what) end
  local g = x.graph
  if g.scope ~= g.top then core.fail("R012", what .. " inside nn.blocks is not possible") end
  if x.scope ~= g.top or x.is_input then
    core.fail("R012", what .. ": the blocks change '" .. x.name .. "', which is an input of the model")
  end
  local scope = new_scope(g.top)
  local at = core.caller()
  g.scope, x.replaced = scope, true
  local out, layers = new_value(g, x.name, x.dims), {}
  for j, one in ipairs(bodies) do out, layers[j] = layer_of(g, what, out, one, at) end
  g.scope, scope.open = g.top, false
  local made = g.top.ops
  local loop = {
    ["repeat"] = count, index = "i", carry = { { x.name, out.name } }, params = scope.params, ops = scope.ops,
    layers = #layers > 1 and layers or nil,
  }
  core.mark(loop, nil, at)
  made[#made + 1] = loop
  return new_value(g, x.name, x.dims)
end

-- nn.model("name", function(tokens, positions) ... return logits end): the model.
function graph.model(name, body)
  local what = "nn.model"
  s.accept(s.string, name, nil, "name", what)
  s.accept(s.callback, body, nil, "body", what)
  local at = core.caller()
  local g = new_graph(name)
  for _, given in ipairs { "tokens", "targets", "positions", "samples", "step" } do g.used[given] = true end
  local ids = { { "batch" }, { "seq" } }
  local tokens, positions = new_value(g, "tokens", ids), new_value(g, "positions", ids)
  tokens.is_input, positions.is_input = true, true
  local logits = graph.check_value(what .. ": the function must return the logits;", body(tokens, positions))
  if #logits.dims ~= 3 then
    core.fail("R005", what .. ": logits are [batch seq vocab], got " .. graph.show_dims(logits.dims), nil, at)
  end
  g.top.open = false
  local model = { name = name, params = g.top.params, ops = g.top.ops, logits = logits.name }
  core.mark(model, nil, at)
  return s.make(Model, model, { context = g.context, groups = g.groups, vocab = logits.dims[3][2] })
end

return core.strict(graph, "tenon.graph")
