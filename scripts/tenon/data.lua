-- Data sets. `valid` is the share of samples, cut from the tail, that is held out for evaluation.
local core = require "tenon.core"
local s = require "tenon.schema"
local plugin = require "tenon.plugin"

local Data = s.class("a data set", "t.data.text or t.data.plugin")
local valid = s.default(s.number { min = 0, below = 1 }, 0.0)

local function make(id, options, held_out, given)
  local out = core.inherit({ plugin = id, options = options, valid = held_out }, given)
  return s.make(Data, out)
end

local data = {}

-- Bytes of text files: t.data.text { file = "corpus.txt" } or { files = { "a.txt", "b.txt" } }.
function data.text(given)
  local record = s.record("t.data.text", given, {
    file = s.optional(s.string), files = s.optional(s.list(s.string, "files")), valid = valid,
  })
  if (record.file == nil) == (record.files == nil) then
    s.fail("R004", "t.data.text needs either 'file' or 'files'", nil, given)
  end
  local options = core.object { files = record.files or { record.file } }
  core.mark(options, "files", core.place(given, record.files and "files" or "file"))
  if record.file then core.mark(options.files, nil, core.place(given, "file")) end
  return make("data/text", options, record.valid, given)
end

-- Any data plugin: t.data.plugin("data/x", { option = ..., valid = 0.1 }).
function data.plugin(id, given)
  plugin.check_id(id, "data")
  given = given or {}
  local options = plugin.options(id, given, { valid = true })
  local record = s.record(id, core.inherit({ valid = given.valid }, given), { valid = valid })
  return make(id, options, record.valid, given)
end

return { constructors = core.strict(data, "t.data"), Data = Data }
