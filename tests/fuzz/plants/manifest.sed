# core/run/checkpoint/manifest.cpp: a document that is no object is taken for one
/^Status check_self_digest/,/^}/ s/if \(!document\.is_object\(\)\)/if (document.is_null())/
