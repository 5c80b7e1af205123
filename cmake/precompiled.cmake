# Precompiled headers: what many sources include is parsed once. Whoever includes one also instantiates
# the templates that its inline functions use: 0.1 s for the standard library, 0.6 s with ATen's Tensor,
# 1.0 s with JSON, 2.0 s with ATen's operators. So a source gets the smallest that has the heavy headers
# it names; the few with both JSON and ATen's operators parse JSON themselves. A source still names
# every header it uses; `make lint` compiles without these.
option(MEGATRON_PRECOMPILE "Precompile the headers that many sources include" ON)
# Tests are compiled in a fifth less time than with -O2; what they compute, libraries compute. A
# precompiled header serves only sources of the same optimization.
set(MEGATRON_TEST_OPTIMIZATION -O1)
set(MEGATRON_PRECOMPILED_SUFFIX gch)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(MEGATRON_PRECOMPILED_SUFFIX pch)
endif()

# An object library that holds the precompiled header NAME: for libraries, or with FOR_PROGRAMS for
# programs, which are compiled with -fPIE. HEADERS are given as `#include` has them.
function(megatron_precompile NAME)
  cmake_parse_arguments(PCH "FOR_PROGRAMS" "" "HEADERS;LINK" ${ARGN})
  if(NOT MEGATRON_PRECOMPILE)
    return()
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/generated/${NAME}.cpp "// Holds the precompiled header.\n")
  add_library(${NAME} OBJECT ${CMAKE_BINARY_DIR}/generated/${NAME}.cpp)
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${NAME} PRIVATE ${PCH_LINK})
  target_precompile_headers(${NAME} PRIVATE ${PCH_HEADERS})
  if(PCH_FOR_PROGRAMS)
    megatron_compile_as_program(${NAME})
  endif()
endfunction()

# The precompiled headers of a kind of target: <kind>_plain, <kind>_json, and for sources that see
# LibTorch <kind>_torch, <kind>_torch_json and <kind>_torch_ops.
function(megatron_precompile_kind KIND)
  cmake_parse_arguments(KIND "FOR_PROGRAMS" "" "HEADERS;LINK" ${ARGN})
  set(PROGRAMS "")
  if(KIND_FOR_PROGRAMS)
    set(PROGRAMS FOR_PROGRAMS)
  endif()
  set(JSON <nlohmann/json.hpp> "${CMAKE_SOURCE_DIR}/cmake/json_instance.h")
  set(LINK LINK nlohmann_json::nlohmann_json ${KIND_LINK})
  set(TORCH ${LINK} Torch::cpu)
  set(TENSOR <ATen/core/Tensor.h>)
  megatron_precompile(${KIND}_plain ${PROGRAMS} ${LINK} HEADERS ${KIND_HEADERS})
  megatron_precompile(${KIND}_json ${PROGRAMS} ${LINK} HEADERS ${KIND_HEADERS} ${JSON})
  megatron_precompile(${KIND}_torch ${PROGRAMS} ${TORCH} HEADERS ${TENSOR} ${KIND_HEADERS})
  megatron_precompile(${KIND}_torch_json ${PROGRAMS} ${TORCH} HEADERS ${TENSOR} ${KIND_HEADERS} ${JSON})
  megatron_precompile(${KIND}_torch_ops ${PROGRAMS} ${TORCH}
                      HEADERS ${TENSOR} <ATen/TensorOperators.h> ${KIND_HEADERS})
endfunction()

# Gives each of SOURCES the precompiled header of KIND that fits it.
function(megatron_use_precompiled KIND)
  cmake_parse_arguments(USE "TORCH" "" "SOURCES" ${ARGN})
  if(NOT MEGATRON_PRECOMPILE)
    return()
  endif()
  foreach(SOURCE ${USE_SOURCES})
    file(STRINGS ${SOURCE} OPS REGEX "^#include .(ATen/(ops/|TensorOperators)|torch/csrc/)")
    file(STRINGS ${SOURCE} JSON REGEX "^#include .nlohmann/json\\.hpp")
    set(NAME ${KIND})
    if(USE_TORCH)
      string(APPEND NAME _torch)
    endif()
    if(USE_TORCH AND OPS)
      string(APPEND NAME _ops)
    elseif(JSON)
      string(APPEND NAME _json)
    elseif(NOT USE_TORCH)
      string(APPEND NAME _plain)
    endif()
    set(HEADER ${CMAKE_BINARY_DIR}/CMakeFiles/${NAME}.dir/cmake_pch.hxx)  # where CMake puts it
    get_source_file_property(OPTIONS ${SOURCE} COMPILE_OPTIONS)
    if("${HEADER}" IN_LIST OPTIONS)  # a source of two programs
      continue()
    endif()
    set_property(SOURCE ${SOURCE} APPEND PROPERTY COMPILE_OPTIONS -Winvalid-pch -include ${HEADER})
    set_property(SOURCE ${SOURCE} APPEND PROPERTY OBJECT_DEPENDS ${HEADER}.${MEGATRON_PRECOMPILED_SUFFIX})
  endforeach()
endfunction()

# Compiles a program with -fPIC, so that it can use the precompiled headers of the libraries.
function(megatron_compile_as_library PROGRAM)
  set_target_properties(${PROGRAM} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${PROGRAM} PRIVATE -fPIC)
endfunction()

# Compiles a library with -fPIE, so that it can use the precompiled headers of the programs.
function(megatron_compile_as_program LIBRARY)
  set_target_properties(${LIBRARY} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${LIBRARY} PRIVATE -fPIE ${MEGATRON_TEST_OPTIMIZATION})
endfunction()
