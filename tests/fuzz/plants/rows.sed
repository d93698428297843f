# core/plan/rows/rows.cpp: a stage need not be followed by a dot, although the character behind it is skipped
s/if \(!stage \|\| !text\.starts_with\('\.'\)\)/if (!stage)/
