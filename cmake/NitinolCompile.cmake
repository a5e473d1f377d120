# Compiler settings shared by every target: language level, warnings, sanitizers, output folders, compiler cache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/archives)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
# Programs find the libraries in the build tree, and beside themselves once installed.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN")
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# Warnings are errors with the compilers they were seen with; a newer compiler's new warning must not stop a user.
set(werror_default OFF)
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
   OR (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  set(werror_default ON)
endif()
option(NITINOL_WERROR "Treat warnings as errors" ${werror_default})

# Paths below the source folder do not count, so that a fresh clone elsewhere profits from an older one's cache.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

add_library(nitinol_compile INTERFACE)
target_compile_options(nitinol_compile INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow>
  $<$<AND:$<BOOL:${NITINOL_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
if(NITINOL_SANITIZE)
  target_compile_options(nitinol_compile INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${NITINOL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  # Callers from C may pass any int for an enumeration: the targets that look at such arguments set NITINOL_C_ENUMS.
  target_compile_options(nitinol_compile INTERFACE
    $<$<BOOL:$<TARGET_PROPERTY:NITINOL_C_ENUMS>>:$<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=enum>>)
  target_link_options(nitinol_compile INTERFACE -fsanitize=${NITINOL_SANITIZE})
  # glibc frees the thread-local variables of threads that have ended from others, and ThreadSanitizer does not see why it
  # may. These lie with the thread's stack instead.
  if(NITINOL_SANITIZE MATCHES thread)
    target_compile_options(nitinol_compile INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ftls-model=initial-exec>)
  endif()
endif()

# The CUDA runtime that everything sees: virtual GPUs' own, or the toolkit's (linked statically).
add_library(nitinol_cudart INTERFACE)
if(NITINOL_FLAVOUR STREQUAL "cuda")
  include(NitinolCuda)
  target_compile_definitions(nitinol_compile INTERFACE NITINOL_CUDA=1)
elseif(NITINOL_FLAVOUR STREQUAL "vgpu")
  target_compile_definitions(nitinol_compile INTERFACE NITINOL_VGPU=1)
else()
  message(FATAL_ERROR "NITINOL_FLAVOUR is '${NITINOL_FLAVOUR}'; it must be vgpu or cuda")
endif()
