# cmake -DOUTPUT=page_files.cc -DFOLDER=page -P embed_page.cmake: the files of the page as string literals. Long ones
# are cut into pieces, which the compiler joins.
function(berth_literal variable)
  set(text "")
  foreach(name IN LISTS ARGN)
    file(READ "${FOLDER}/${name}" content)
    string(APPEND text "${content}")
  endforeach()
  string(FIND "${text}" ")~page\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "the page holds the end of its own literal")
  endif()
  string(LENGTH "${text}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND pieces "R\"~page(${piece})~page\"\n")
    math(EXPR at "${at} + 8000")
  endwhile()
  set(${variable} "${pieces}" PARENT_SCOPE)
endfunction()

berth_literal(html page.html)
berth_literal(style page.css)
berth_literal(script ${SCRIPTS})
file(WRITE "${OUTPUT}" "#include \"csrc/cli/report/page_files.h\"

namespace berth::cli {

std::string_view page_html() noexcept { return ${html}; }
std::string_view page_style() noexcept { return ${style}; }
std::string_view page_script() noexcept { return ${script}; }

}  // namespace berth::cli
")
