# tenon_add_plugin(<kind> <name> SOURCES <file>... [LIBRARIES <target>...])
# Builds libtenon-<kind>-<name>.so (plugin "<kind>/<name>", C11 or C++20), which exports its one symbol and
# links to nothing of Tenon's, and installs it into lib/tenon.
include(GNUInstallDirs)
set(TENON_PLUGIN_EXPORTS ${CMAKE_CURRENT_LIST_DIR}/plugin-exports.map)

function(tenon_add_plugin kind name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(target tenon-${kind}-${name})
  add_library(${target} MODULE ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE tenon::sdk ${ARG_LIBRARIES})
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(CXX IN_LIST languages)
    target_compile_features(${target} PRIVATE cxx_std_20)
  endif()
  if(C IN_LIST languages)
    target_compile_features(${target} PRIVATE c_std_11)
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX lib C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON LINK_DEPENDS ${TENON_PLUGIN_EXPORTS})
  # Hidden visibility alone is not enough: templates of the C++ library would still leak out.
  target_link_options(${target} PRIVATE -Wl,--version-script=${TENON_PLUGIN_EXPORTS})
  if(NOT TENON_SANITIZE)  # the sanitizers' runtime is resolved when loaded
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  if(DEFINED TENON_PLUGIN_DIR)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TENON_PLUGIN_DIR})
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tenon)
endfunction()

# tenon_add_test(<name> SOURCES <file>... [LIBRARIES <target>...] [LABELS <label>...])
# One GoogleTest executable, its cases found when ctest runs. Label `quick` unless said otherwise. Compiled
# quickly; what computes much lies in libraries and plugins, or asks for more.
function(tenon_add_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT TENON_TESTS)
    return()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS quick)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(TARGET tenon_precompiled_tests)
    target_link_libraries(${name} PRIVATE tenon_precompiled_tests)
    target_precompile_headers(${name} REUSE_FROM tenon_precompiled_tests)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
endfunction()
