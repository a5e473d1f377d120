option(NITINOL_QUICK_BUILD "Precompile what tests include, and compile several sources of a room at a time" OFF)
if(NITINOL_FLAVOUR STREQUAL "cuda")  # kernels take longest, and would be compiled one by one
  set(NITINOL_QUICK_BUILD OFF)
endif()

# nitinol_precompile_headers(TARGET KIND): with NITINOL_QUICK_BUILD a test's files find the headers that most of them include
# compiled. Tests of a kind, which are compiled with the same options, share what the first of them has.
function(nitinol_precompile_headers target kind)
  if(NOT NITINOL_QUICK_BUILD)
    return()
  endif()
  get_property(owner GLOBAL PROPERTY NITINOL_PRECOMPILED_${kind})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    return()
  endif()
  set(headers algorithm array atomic chrono cstdint cstring functional map memory mutex optional span string thread utility
    vector gtest/gtest.h)
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  target_precompile_headers(${target} PRIVATE ${headers})
  set_property(GLOBAL PROPERTY NITINOL_PRECOMPILED_${kind} ${target})
endfunction()

# A room is one folder under src/: its sources become the static library nitinol_<name>, its *_test.cc files one test
# program <name>_test. DEPENDS names the other rooms (nitinol_ is put before) and libraries it may use. In the flavour cuda
# the room's *.cu files belong to it too. SEES_GPUS: its tests differ between the flavours; those of other rooms would say
# the same again in the flavour cuda, and are not built there. PURE: it has no threads, and ThreadSanitizer nothing to see.
# COMPUTES: its tests have more to do than the compiler with them.
function(nitinol_room name)
  cmake_parse_arguments(ROOM "SEES_GPUS;PURE;COMPUTES;C_ENUMS" "" "DEPENDS;LIBRARIES;TEST_DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(NITINOL_FLAVOUR STREQUAL "cuda")
    file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
    list(APPEND sources ${kernels})
  endif()
  list(TRANSFORM ROOM_DEPENDS PREPEND nitinol_)
  list(TRANSFORM ROOM_TEST_DEPENDS PREPEND nitinol_)
  if(sources)
    add_library(nitinol_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(nitinol_${name} PRIVATE nitinol_compile)
    set_target_properties(nitinol_${name} PROPERTIES NITINOL_C_ENUMS ${ROOM_C_ENUMS})
    set_target_properties(nitinol_${name} PROPERTIES UNITY_BUILD ${NITINOL_QUICK_BUILD})
  else()
    add_library(nitinol_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(nitinol_${name} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(nitinol_${name} ${scope}
    ${ROOM_DEPENDS} ${ROOM_LIBRARIES} nitinol_cudart Threads::Threads)
  set(tells_nothing OFF)
  if((NITINOL_FLAVOUR STREQUAL "cuda" AND NOT ROOM_SEES_GPUS) OR (ROOM_PURE AND NITINOL_SANITIZE MATCHES "thread"))
    set(tells_nothing ON)
  endif()
  set(computes "")
  if(ROOM_COMPUTES)
    set(computes COMPUTES)
  endif()
  if(NITINOL_TESTS AND tests AND NOT tells_nothing)
    nitinol_test(${name}_test ${computes} SOURCES ${tests} LIBRARIES nitinol_${name} ${ROOM_TEST_DEPENDS})
  endif()
endfunction()

# A GoogleTest program whose tests ctest knows one by one. TIMEOUT is in seconds without sanitizers. Label what takes long
# without being worth it under a sanitizer `slow`. C_ENUMS, as of a room: it looks at enumerations that callers from C have
# filled with any number. COMPUTES: as of a room.
function(nitinol_test name)
  cmake_parse_arguments(TEST "C_ENUMS;COMPUTES" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  if(NITINOL_SANITIZE)
    math(EXPR TEST_TIMEOUT "5 * ${TEST_TIMEOUT}")
  endif()
  set(lock "")
  set(prefix "")
  if("gpu" IN_LIST TEST_LABELS)  # CUDA starts up for one process after the other, and some tests measure a GPU's memory
    set(lock RESOURCE_LOCK gpus)
    set(prefix TEST_PREFIX gpu.)  # names stand for one test each: another program may have the same suites
  endif()
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE nitinol_compile ${TEST_LIBRARIES} nitinol_test_main)
  # Compiling most tests takes far longer than running their own code: half of a build's time goes into optimising it.
  if(NOT TEST_COMPUTES)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
  endif()
  set_target_properties(${name} PROPERTIES NITINOL_C_ENUMS ${TEST_C_ENUMS})
  nitinol_precompile_headers(${name} c_enums_${TEST_C_ENUMS}_computes_${TEST_COMPUTES})
  include(GoogleTest)
  gtest_discover_tests(${name} ${prefix} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}" ${lock})
endfunction()

# Sets `result` to those of the targets that this configuration does not have.
function(nitinol_missing_targets result)
  set(missing "")
  foreach(target ${ARGN})
    if(NOT TARGET ${target})
      list(APPEND missing ${target})
    endif()
  endforeach()
  set(${result} ${missing} PARENT_SCOPE)
endfunction()
