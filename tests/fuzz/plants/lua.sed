# plugins/frontend/lua/sandbox.cpp: a number of a constructor that is not there is believed
s/number >= 0 && static_cast<size_t>\(number\) < session_of\(L\)\.origins\.size\(\)/number < 100000/
