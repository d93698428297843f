#include "json_once.h"

TENON_JSON_TEMPLATES()
