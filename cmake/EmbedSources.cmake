# cmake -DOUTPUT=FILE.cpp -DROOT=DIR "-DFILES=a;b" -P EmbedSources.cmake
# Writes the table that src/cuda/host/embedded_sources.hpp declares. Files are named relative to ROOT; those in a folder
# std/ stand in for headers of the standard library, and are named by their last component.
set(text "#include \"cuda/host/embedded_sources.hpp\"\n\nnamespace onchip::cuda {\nnamespace {\n\n")
string(APPEND text "constexpr SourceFile kFiles[] = {\n")
foreach(file IN LISTS FILES)
  file(READ ${ROOT}/${file} content)
  if(content MATCHES "\\)onchip_source\"")
    message(FATAL_ERROR "${file}: contains the end of the string that embeds it")
  endif()
  string(REGEX REPLACE "^.*/std/" "" name ${file})
  string(APPEND text "    {\"${name}\", R\"onchip_source(${content})onchip_source\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\n")
string(APPEND text "std::span<const SourceFile> embedded_sources() { return kFiles; }\n\n}  // namespace onchip::cuda\n")
file(WRITE ${OUTPUT} "${text}")
