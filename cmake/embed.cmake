# Makes a C++ source that holds text files as raw strings: megatron_embed(OUTPUT file.cpp HEADER "x/assets.h" FUNCTION name STRUCT Name FILES a b …)
# defines `const Name& name()` whose members, in order, are the files. The source is made anew when a file changes.
function(megatron_embed)
  cmake_parse_arguments(EMBED "" "OUTPUT;HEADER;FUNCTION;STRUCT" "FILES" ${ARGN})
  set(MEMBERS "")
  foreach(FILE ${EMBED_FILES})
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FILE})
    file(READ ${FILE} TEXT)
    string(APPEND MEMBERS "R\"embedded(${TEXT})embedded\",\n")
  endforeach()
  file(CONFIGURE OUTPUT ${EMBED_OUTPUT} @ONLY CONTENT
"// Made by cmake/embed.cmake.
#include \"@EMBED_HEADER@\"

namespace megatron {

const @EMBED_STRUCT@& @EMBED_FUNCTION@() {
  static constexpr @EMBED_STRUCT@ assets{
@MEMBERS@};
  return assets;
}

}  // namespace megatron
")
endfunction()
