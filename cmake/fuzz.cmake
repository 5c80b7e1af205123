# The fuzz targets of tests/fuzz: one program fuzz_<target> for each with libFuzzer, where the build has its
# instrumentation, and the test program fuzz_tests, which needs none.

# The sources of the targets, and what they use of a room that links LibTorch without using it.
function(megatron_fuzz)
  set(FOLDER ${CMAKE_SOURCE_DIR}/tests/fuzz)
  file(GLOB TARGETS CONFIGURE_DEPENDS ${FOLDER}/targets/*.cpp)
  set(CHECKPOINT ${CMAKE_SOURCE_DIR}/src/megatron/checkpoint)
  # These have the precompiled headers of their rooms, so they are compiled with LibTorch's flags. The
  # programs take their objects, not what they link.
  add_library(fuzz_checkpoint OBJECT EXCLUDE_FROM_ALL ${CHECKPOINT}/safetensors.cpp
              ${CHECKPOINT}/slice_math.cpp ${CHECKPOINT}/manifest.cpp
              ${CMAKE_SOURCE_DIR}/src/megatron/params/sharding.cpp)
  target_link_libraries(fuzz_checkpoint PRIVATE megatron_datasets Torch::cpu)
  add_library(fuzz_targets OBJECT EXCLUDE_FROM_ALL ${FOLDER}/target.cpp ${TARGETS})
  target_include_directories(fuzz_targets PUBLIC ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(fuzz_targets PUBLIC megatron_metrics megatron_datasets megatron_chat megatron_grammar megatron_formats)
  megatron_define_paths(fuzz ${TARGETS})
  megatron_unite(fuzz_targets)
  add_executable(fuzz_tests EXCLUDE_FROM_ALL ${FOLDER}/finds_test.cpp $<TARGET_OBJECTS:fuzz_checkpoint>)
  target_link_libraries(fuzz_tests PRIVATE fuzz_targets GTest::gtest_main)
  megatron_define_paths(fuzz ${FOLDER}/finds_test.cpp)
  megatron_test(fuzz fuzz LABELS torch_free)
  add_dependencies(megatron_tests fuzz_tests)
  if(NOT MEGATRON_SANITIZE MATCHES "fuzzer")
    return()
  endif()
  add_custom_target(fuzz_programs)
  foreach(SOURCE ${TARGETS})
    get_filename_component(NAME ${SOURCE} NAME_WE)
    add_executable(fuzz_${NAME} EXCLUDE_FROM_ALL ${FOLDER}/fuzz_main.cpp $<TARGET_OBJECTS:fuzz_checkpoint>)
    target_compile_definitions(fuzz_${NAME} PRIVATE MEGATRON_FUZZ_TARGET="${NAME}")
    target_link_libraries(fuzz_${NAME} PRIVATE fuzz_targets)
    target_link_options(fuzz_${NAME} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_programs fuzz_${NAME})
  endforeach()
endfunction()
