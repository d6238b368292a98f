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
