# core/run/rendezvous/message.cpp: the length of a key is not held against the bytes that are there
s/ \|\| key_size > bytes\.size\(\)//
