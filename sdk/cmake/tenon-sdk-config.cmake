# find_package(tenon-sdk): the target tenon::sdk (headers only) and the function tenon_add_plugin().
get_filename_component(prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT EXISTS "${prefix}/include/tenon/plugin.h")  # lib/<triplet>/cmake/tenon-sdk
  get_filename_component(prefix "${prefix}/.." ABSOLUTE)
endif()
if(NOT TARGET tenon::sdk)
  add_library(tenon::sdk INTERFACE IMPORTED)
  set_target_properties(tenon::sdk PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/tenon-sdk-functions.cmake")
