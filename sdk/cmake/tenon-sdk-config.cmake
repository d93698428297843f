# find_package(tenon-sdk): the target tenon::sdk (headers only), the function tenon_add_plugin(), and, where
# libtenon.so is installed too, the target tenon::embed (tenon/embed.h and the library).
get_filename_component(tenon_libdir "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(prefix "${tenon_libdir}/.." ABSOLUTE)
if(NOT EXISTS "${prefix}/include/tenon/plugin.h")  # lib/<triplet>/cmake/tenon-sdk
  get_filename_component(prefix "${prefix}/.." ABSOLUTE)
endif()
if(NOT TARGET tenon::sdk)
  add_library(tenon::sdk INTERFACE IMPORTED)
  set_target_properties(tenon::sdk PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include")
endif()
if(EXISTS "${tenon_libdir}/libtenon.so" AND NOT TARGET tenon::embed)
  add_library(tenon::embed SHARED IMPORTED)
  set_target_properties(tenon::embed PROPERTIES
    IMPORTED_LOCATION "${tenon_libdir}/libtenon.so"
    IMPORTED_SONAME libtenon.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/tenon-sdk-functions.cmake")
