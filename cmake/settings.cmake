# cmake/settings.cmake: how all of qkv's own code is compiled.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

add_library(qkv_settings INTERFACE)
target_compile_options(qkv_settings INTERFACE -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wpedantic)
if(QKV_WERROR)
  target_compile_options(qkv_settings INTERFACE -Werror)
endif()
if(QKV_SANITIZE)
  target_compile_options(qkv_settings INTERFACE -fsanitize=${QKV_SANITIZE} -fno-sanitize-recover=all
                                                -fno-omit-frame-pointer)
  target_link_options(qkv_settings INTERFACE -fsanitize=${QKV_SANITIZE})
endif()

# The thread sanitizer has nothing to find in code that runs on one thread, and makes it many times slower.
function(qkv_single_threaded)
  if(QKV_SANITIZE STREQUAL "thread")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread;-O2")
  endif()
endfunction()

# Lightly optimised: for what is more often built than waited for. There g++ 12 takes std::string's own buffer for one
# that is overrun.
function(qkv_quick_to_build target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endfunction()
