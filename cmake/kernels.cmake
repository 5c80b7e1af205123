# Kernels: raw pointers, no torch (src/kernels/cpu). One list says which source is compiled for which
# instruction sets; MEGATRON_DISPATCH (src/kernels/cpu/dispatch.h) chooses among them at run time.

# Compiles SOURCES for one instruction set into objects of megatron_kernels. Kernels stand in its namespace.
function(megatron_kernel_objects ISA)
  cmake_parse_arguments(OBJECTS "" "" "FLAGS;DEFINITIONS;SOURCES" ${ARGN})
  set(NAME megatron_kernels_${ISA})
  add_library(${NAME} OBJECT ${OBJECTS_SOURCES})
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${NAME} PRIVATE MEGATRON_KERNEL_ISA=${ISA} ${OBJECTS_DEFINITIONS})
  target_compile_options(${NAME} PRIVATE -O3 -fopenmp-simd ${OBJECTS_FLAGS} -ffp-contract=off)
  target_sources(megatron_kernels PRIVATE $<TARGET_OBJECTS:${NAME}>)
  if(NOT ISA STREQUAL portable)
    add_test(NAME kernel_symbols_${ISA} COMMAND_EXPAND_LISTS
             COMMAND sh ${CMAKE_SOURCE_DIR}/tests/kernels/symbols_test.sh ${CMAKE_NM} ${ISA} $<TARGET_OBJECTS:${NAME}>)
  endif()
endfunction()

function(megatron_kernels)
  # A source and its instruction sets, the fastest first. Sources that are not listed are compiled once, as portable.
  set(VARIANTS
    "activation_kernels   avx512 avx2 portable"
    "adamw                avx512 avx2 portable"
    "attention            avx512 avx2 portable"
    "causal_conv          avx512 avx2 portable"
    "conversions                 avx2 portable"
    "cross_entropy        avx512 avx2 portable"
    "embedding            avx512 avx2 portable"
    "gated_norm           avx512 avx2 portable"
    "gemm_epilogue        avx512 avx2 portable"
    "gradient_norm        avx512 avx2 portable"
    "linear_attention     avx512 avx2 portable"
    "norm_kernels         avx512 avx2 portable"
    "sgd                  avx512 avx2 portable"
    "random_kernels       avx512 avx2 portable"
    "row_kernels          avx512 avx2 portable"
    "row_sums             avx512 avx2 portable"
    "micro_kernel_amx     amx"
    "micro_kernel_avx512  avx512bf16 avx512"
    "micro_kernel_avx2    avx2")
  set(ISAS_of_this_cpu portable)
  set(OTHER_FEATURES x86)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND ISAS_of_this_cpu avx2 avx512 avx512bf16 amx)
    set(OTHER_FEATURES no_x86)
  endif()

  file(GLOB SOURCES_portable CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cpp)
  list(REMOVE_ITEM SOURCES_portable ${CMAKE_SOURCE_DIR}/src/kernels/cpu/${OTHER_FEATURES}_features.cpp)
  foreach(LINE ${VARIANTS})
    separate_arguments(ISAS UNIX_COMMAND ${LINE})
    list(POP_FRONT ISAS NAME)
    set(SOURCE ${CMAKE_SOURCE_DIR}/src/kernels/cpu/${NAME}.cpp)
    list(REMOVE_ITEM SOURCES_portable ${SOURCE})
    foreach(ISA ${ISAS})
      if(ISA IN_LIST ISAS_of_this_cpu)
        list(APPEND SOURCES_${ISA} ${SOURCE})
      else()
        list(REMOVE_ITEM ISAS ${ISA})
      endif()
    endforeach()
    list(REMOVE_ITEM ISAS portable)
    list(JOIN ISAS "," ISAS)
    set_source_files_properties(${SOURCE} PROPERTIES COMPILE_DEFINITIONS "MEGATRON_KERNEL_ISAS=${ISAS}")
  endforeach()

  # Its loops are written with vectors: -O3 takes more than twice as long to compile, and a GPT-2 step
  # takes the same time.
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/kernels/cpu/activation_kernels.cpp PROPERTY COMPILE_OPTIONS -O2)

  add_library(megatron_kernels STATIC)
  set_target_properties(megatron_kernels PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(megatron_kernels PUBLIC ${CMAKE_SOURCE_DIR}/src)
  set(QUIET -Wno-uninitialized -Wno-maybe-uninitialized)  # GCC 12 finds its own AVX-512 header uninitialised
  if(MEGATRON_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 aligns the stack frames that find a use after return to 32 bytes, and stores 64 aligned ones (its bug 110027).
    set(REAL_STACK --param=asan-use-after-return=0)
  endif()
  megatron_kernel_objects(portable DEFINITIONS MEGATRON_KERNEL_IS_PORTABLE SOURCES ${SOURCES_portable})
  if(NOT avx2 IN_LIST ISAS_of_this_cpu)
    return()
  endif()
  megatron_kernel_objects(avx2 FLAGS -march=x86-64-v3 SOURCES ${SOURCES_avx2})
  megatron_kernel_objects(avx512 FLAGS -march=x86-64-v4 ${QUIET} ${REAL_STACK} SOURCES ${SOURCES_avx512})
  megatron_kernel_objects(avx512bf16 FLAGS -march=x86-64-v4 -mavx512bf16 ${QUIET} ${REAL_STACK} SOURCES ${SOURCES_avx512bf16})
  megatron_kernel_objects(amx FLAGS -march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16 ${REAL_STACK} SOURCES ${SOURCES_amx})
endfunction()
