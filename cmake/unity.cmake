# Compiles the sources of a target in batches: each is a file that includes several of them, so that
# what their headers cost is paid once per batch. That halves the time of a build. A batch holds only
# sources of one target with the same options, none of whose private names occur in another
# (cmake/unity_batches.py). OFF compiles each source by itself, which suits the editing of single
# sources and shows whether each includes what it uses.
option(MEGATRON_UNITY "Compile sources in batches" ON)

# Says that the sources of TARGET are compiled in batches. Their options may still change.
function(megatron_unite TARGET)
  set_property(GLOBAL APPEND PROPERTY MEGATRON_UNITED ${TARGET})
endfunction()

# Options that sources of a batch have in common.
set(MEGATRON_UNITY_PROPERTIES COMPILE_OPTIONS COMPILE_DEFINITIONS OBJECT_DEPENDS)

# Puts the batches in place of the sources of all targets that were named. Call it last.
function(megatron_make_batches)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  get_property(TARGETS GLOBAL PROPERTY MEGATRON_UNITED)
  if(MEGATRON_UNITY AND NOT Python3_FOUND)
    message(STATUS "Each source is compiled by itself, which takes twice as long: there is no Python 3")
  endif()
  if(NOT MEGATRON_UNITY OR NOT Python3_FOUND OR NOT TARGETS)
    return()
  endif()
  set(REQUEST "")
  foreach(TARGET ${TARGETS})
    get_target_property(SOURCES ${TARGET} SOURCES)
    set(COUNT 0)
    foreach(SOURCE ${SOURCES})
      cmake_path(IS_PREFIX CMAKE_BINARY_DIR "${SOURCE}" IS_MADE)
      if(IS_MADE OR NOT SOURCE MATCHES "^/.*[.]cpp$")
        list(APPEND UNITED_${TARGET} ${SOURCE})
        continue()
      endif()
      set(KEY ${TARGET})
      foreach(PROPERTY ${MEGATRON_UNITY_PROPERTIES})
        get_source_file_property(VALUE ${SOURCE} ${PROPERTY})
        string(APPEND KEY " ${VALUE}")
      endforeach()
      string(MD5 KEY "${KEY}")
      if(NOT DEFINED GROUP_${KEY})  # numbers, because the key depends on where the build is
        math(EXPR COUNT "${COUNT} + 1")
        set(GROUP_${KEY} ${TARGET}_${COUNT})
        set(LIKE_${TARGET}_${COUNT} ${SOURCE})
      endif()
      string(APPEND REQUEST "${GROUP_${KEY}}\t${SOURCE}\n")
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SOURCES})
  endforeach()

  # A new name in a header may also be one that two sources of a batch keep to themselves.
  file(GLOB_RECURSE HEADERS ${CMAKE_SOURCE_DIR}/src/*.h ${CMAKE_SOURCE_DIR}/tests/*.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${HEADERS})

  file(WRITE ${CMAKE_BINARY_DIR}/unity/request.txt "${REQUEST}")
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/unity_batches.py
            ${CMAKE_BINARY_DIR}/unity/request.txt ${CMAKE_BINARY_DIR}/unity
            ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests
    OUTPUT_VARIABLE ANSWER COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" ANSWER "${ANSWER}")
  foreach(LINE ${ANSWER})
    string(REPLACE "\t" ";" LINE "${LINE}")
    list(GET LINE 0 GROUP)
    list(GET LINE 1 BATCH)
    string(REGEX REPLACE "_[0-9]+$" "" TARGET ${GROUP})
    list(APPEND UNITED_${TARGET} ${BATCH})
    foreach(PROPERTY ${MEGATRON_UNITY_PROPERTIES})
      get_source_file_property(VALUE ${LIKE_${GROUP}} ${PROPERTY})
      if(VALUE)
        set_property(SOURCE ${BATCH} PROPERTY ${PROPERTY} ${VALUE})
      endif()
    endforeach()
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # It takes an included source for a header, whose types must not use an anonymous namespace.
      set_property(SOURCE ${BATCH} APPEND PROPERTY COMPILE_OPTIONS -Wno-subobject-linkage)
    endif()
  endforeach()
  foreach(TARGET ${TARGETS})
    set_property(TARGET ${TARGET} PROPERTY SOURCES ${UNITED_${TARGET}})
  endforeach()
endfunction()
