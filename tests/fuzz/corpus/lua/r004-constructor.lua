return require("tenon").run(__tenon_table(0, {}))
