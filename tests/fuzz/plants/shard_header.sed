# core/run/checkpoint/shard_file.cpp: of a header that is right at its front the end may be anything
s/if \(stored == layout\.header\)/if (stored.substr(0, 1000) == std::string_view(layout.header).substr(0, 1000))/
