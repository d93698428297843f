# plugins/frontend/lua/evaluate.cpp: the limit of memory is 64 KiB higher than it says
s/(session\.memory \+ \(size - old_size\) > session\.limits\.memory)\)/\1 + 65536)/
