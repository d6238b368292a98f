# cmake/fuzzers.cmake: every tests/fuzz/*_fuzz.cpp is a libFuzzer program in the folder fuzz/ of the build.

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "qkv: QKV_FUZZERS needs clang, and the compiler is ${CMAKE_CXX_COMPILER_ID}; "
                      "the preset `fuzz` chooses it")
endif()

# Only the fuzzers' programs have libFuzzer's main; everything else is told what is covered.
target_compile_options(qkv_settings INTERFACE -fsanitize=fuzzer-no-link)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE qkv_settings qkv_inside)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
endforeach()
