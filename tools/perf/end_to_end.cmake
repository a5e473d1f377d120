# nitinol-perf as a whole, over virtual GPUs: each way of spreading ranks and each mode once, results checked.
set(perf_timeout 120)
if(NITINOL_SANITIZE)
  set(perf_timeout 600)
endif()

function(perf_test name)
  cmake_parse_arguments(PERF "" "" "LAUNCHER;LABELS;ARGS" ${ARGN})
  add_test(NAME perf.${name} COMMAND ${PERF_LAUNCHER} $<TARGET_FILE:nitinol-perf> ${PERF_ARGS})
  set_tests_properties(perf.${name} PROPERTIES TIMEOUT ${perf_timeout} LABELS "perf;${PERF_LABELS}")
endfunction()

set(brief -n 2 -m 2 -w 1 --timeout 100)
perf_test(threads ARGS all hypercube -t 4 -b 0 -e 64K -f 64 ${brief})
perf_test(processes ARGS all hypercube -p 4 -b 8 -e 64K -f 64 ${brief})
perf_test(mixed ARGS all -p 2 -t 2 -g 2 -b 1K -e 1M -f 1024 ${brief})
perf_test(types_and_operators ARGS all_reduce reduce_scatter -t 3 -d all -o all -b 300 -e 70K -i 69K ${brief})
perf_test(every_root ARGS broadcast reduce gather scatter -t 3 -r all -b 4K -e 4K ${brief})
perf_test(hypercube_of_several_per_thread ARGS hypercube -t 2 -g 2 -b 0 -e 64K -f 64 ${brief})
perf_test(graph ARGS all -t 2 -g 2 -G -b 64 -e 256K -f 4096 ${brief})
perf_test(registered ARGS all -t 2 -g 2 -R local -b 64 -e 256K -f 4096 ${brief})
perf_test(windows ARGS all -t 2 -g 2 -R window -b 64 -e 256K -f 4096 ${brief})
perf_test(shifted ARGS all -t 3 -d float double --shift 8 -b 64 -e 256K -f 61 ${brief})
perf_test(non_blocking ARGS all -t 2 -g 2 --non-blocking -b 64 -e 256K -f 4096 ${brief})

# Without warm-up the budget holds, too: all iterations would take longer than the test may.
perf_test(budget_alone ARGS all_reduce -t 2 -b 1M -e 1M -n 10000000 -m 2 -w 0 --budget 0.5 --timeout 100)

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  set(start ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/strange_start.py)
  perf_test(processes_whose_ends_their_parent_ignores LAUNCHER ${start} ignoring
    ARGS all_reduce -p 2 -b 8 -e 8 ${brief})
  perf_test(processes_beside_other_children LAUNCHER ${start} children ARGS all_reduce -p 2 -b 8 -e 64K ${brief})
  perf_test(rows_that_are_measured_are_kept LAUNCHER ${start} killed ARGS all -t 2 -b 8 -e 1M -f 2 -n 5000 -m 20 -w 1)
  perf_test(file_names_of_any_bytes LAUNCHER ${start} bytes ARGS all_reduce -t 2 -b 8 -e 8 ${brief})
endif()

# Without -p there is a rank for each device.
perf_test(one_process ARGS all_reduce -p 1 -b 8 -e 8 ${brief})
set_tests_properties(perf.one_process PROPERTIES PASS_REGULAR_EXPRESSION "# 1 ranks = 1 processes x 1 threads x 1 GPUs")

# A copy of the library is another library: both must work side by side.
set(twin ${CMAKE_CURRENT_BINARY_DIR}/twin/libnccl.so.2)
add_test(NAME perf.copy_library COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:nccl> ${twin})
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/twin)
set_tests_properties(perf.copy_library PROPERTIES FIXTURES_SETUP perf_twin)
perf_test(against ARGS all -t 3 -b 1K -e 64K -f 64 ${brief} --against ${twin})
set_tests_properties(perf.against PROPERTIES FIXTURES_REQUIRED perf_twin)

perf_test(says_whose_library_it_is ARGS all_reduce -t 2 -b 8 -e 8 ${brief})
set_tests_properties(perf.says_whose_library_it_is PROPERTIES
  PASS_REGULAR_EXPRESSION "library A: NCCL [0-9.]+ .Nitinol., ")

perf_test(refuses_itself ARGS all_reduce --library $<TARGET_FILE:nccl> --against $<TARGET_FILE:nccl>)
perf_test(refuses_unknown_operation ARGS all_reduced)
perf_test(refuses_unknown_library ARGS all_reduce --library /nonexistent/libnccl.so.2)
set_tests_properties(perf.refuses_itself perf.refuses_unknown_operation perf.refuses_unknown_library PROPERTIES
  WILL_FAIL TRUE)

perf_test(refuses_to_synchronise_within_graphs ARGS all_reduce -G -s -b 8 -e 8)
set_tests_properties(perf.refuses_to_synchronise_within_graphs PROPERTIES PASS_REGULAR_EXPRESSION "--graph excludes --sync")
perf_test(refuses_batches_without_end ARGS all_reduce -b 8 -e 8 -m 1000000000)
set_tests_properties(perf.refuses_batches_without_end PROPERTIES
  PASS_REGULAR_EXPRESSION "--batches: Value 1000000000 not in range 1 to 1000000")

perf_test(refuses_a_shift_within_elements ARGS all_reduce -t 2 -d double --shift 4 -b 8 -e 8)
set_tests_properties(perf.refuses_a_shift_within_elements PROPERTIES
  PASS_REGULAR_EXPRESSION "--shift 4 is no multiple of the size of double")

find_package(MPI COMPONENTS C)
if(MPI_C_FOUND)
  perf_test(mpirun LABELS mpi LAUNCHER ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe -n 4
    ARGS all_reduce sendrecv -b 1K -e 64K -f 64 ${brief})
endif()
