-- Recipes and their vocabulary run in an allow-list environment (docs/reference/lua.md).
std = {
  read_globals = {
    "assert", "error", "getmetatable", "ipairs", "pairs", "pcall", "print", "rawequal", "rawget", "rawlen", "rawset",
    "require", "select", "setmetatable", "tonumber", "tostring", "type",
    math = { other_fields = true }, string = { other_fields = true }, table = { other_fields = true },
    utf8 = { other_fields = true },
  },
}
max_line_length = 120
max_cyclomatic_complexity = 12
