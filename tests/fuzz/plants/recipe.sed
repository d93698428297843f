# core/graph/recipe.cpp: a name may lack its size
s/pair\.size\(\) == 2 && //
