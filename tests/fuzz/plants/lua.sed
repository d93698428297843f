# plugins/frontend/lua/source.cpp: lines are counted from 0, unless there are none
/^std::string Source::line/,/^}/ s/line_starts_\[static_cast<size_t>\(number\) - 1\]/line_starts_[static_cast<size_t>(number) - (text_.empty() ? 1 : 0)]/
