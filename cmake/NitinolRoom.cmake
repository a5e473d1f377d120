# A room is one folder under src/: its sources become the static library nitinol_<name>, its *_test.cc files one test
# program <name>_test. DEPENDS names the other rooms (nitinol_ is put before) and libraries it may use. In the flavour cuda
# the room's *.cu files belong to it too.
function(nitinol_room name)
  cmake_parse_arguments(ROOM "" "" "DEPENDS;LIBRARIES;TEST_DEPENDS" ${ARGN})
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
  else()
    add_library(nitinol_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(nitinol_${name} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(nitinol_${name} ${scope}
    ${ROOM_DEPENDS} ${ROOM_LIBRARIES} nitinol_cudart Threads::Threads)
  if(NITINOL_TESTS AND tests)
    nitinol_test(${name}_test SOURCES ${tests} LIBRARIES nitinol_${name} ${ROOM_TEST_DEPENDS})
  endif()
endfunction()

# A GoogleTest program whose tests ctest knows one by one. TIMEOUT is in seconds without sanitizers. Label what takes long
# without being worth it under a sanitizer `slow`.
function(nitinol_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
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
  # Compiling a test takes far longer than running its own code: half of a build's time goes into optimising it.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
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
