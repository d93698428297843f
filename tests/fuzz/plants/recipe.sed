# recipe.cpp: a dim may lack its size
s/dim\.is_array\(\) && dim\.size\(\) == 2 && /dim.is_array() \&\& /
