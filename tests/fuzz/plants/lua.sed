# source.cpp: an escape at the end of a text steps beyond it
s/for \(; n > 0 && at_ < text_\.size\(\); --n\)/for (; n > 0; --n)/
