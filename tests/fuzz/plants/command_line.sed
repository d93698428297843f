# core/cli/command_line.cpp: an option is looked for beyond the last one
s/std::find\(options\.begin\(\), options\.end\(\), name\) != options\.end\(\)/options.at(name.size()) == name/
