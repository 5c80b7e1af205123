# Precompiled headers: what nearly every source of a kind includes is parsed once. A source still names
# every header it uses; `make lint` compiles without these.
option(MEGATRON_PRECOMPILE "Precompile the headers that nearly every source includes" ON)

# A library whose precompiled headers others reuse: libraries, or with FOR_PROGRAMS programs, which are
# compiled with -fPIE. HEADERS are given as `#include` has them.
function(megatron_precompile NAME)
  cmake_parse_arguments(PCH "FOR_PROGRAMS" "" "HEADERS;LINK" ${ARGN})
  if(NOT MEGATRON_PRECOMPILE)
    return()
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/generated/${NAME}.cpp "// Holds the precompiled headers.\n")
  add_library(${NAME} OBJECT ${CMAKE_BINARY_DIR}/generated/${NAME}.cpp)
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${NAME} PRIVATE ${PCH_LINK})
  target_precompile_headers(${NAME} PRIVATE ${PCH_HEADERS})
  if(PCH_FOR_PROGRAMS)
    set_target_properties(${NAME} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${NAME} PRIVATE -fPIE)
  endif()
endfunction()

# Lets TARGET use the precompiled headers of the library PCH.
function(megatron_reuse_precompiled TARGET PCH)
  if(MEGATRON_PRECOMPILE)
    target_precompile_headers(${TARGET} REUSE_FROM ${PCH})
  endif()
endfunction()
