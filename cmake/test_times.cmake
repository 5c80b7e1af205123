# Each GoogleTest program leaves test-times/<test>.xml, which tests/slowest.py reads.
function(megatron_test_times)
  get_property(TESTS DIRECTORY PROPERTY TESTS)
  foreach(TEST ${TESTS})
    set_property(TEST ${TEST} APPEND PROPERTY ENVIRONMENT_MODIFICATION "GTEST_OUTPUT=set:xml:${CMAKE_BINARY_DIR}/test-times/${TEST}.xml")
  endforeach()
endfunction()
