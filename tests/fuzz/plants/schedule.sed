# core/plan/rows/rows.cpp: a row of the rank behind the last one is accepted
s/static_cast<size_t>\(rank\) >= out\.of_rank\.size\(\)/static_cast<size_t>(rank) > out.of_rank.size()/
