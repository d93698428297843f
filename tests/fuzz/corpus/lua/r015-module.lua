local m = require "missing"
