return require("tenon").run(__tenon_table(100000000, {}))
