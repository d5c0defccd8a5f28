# libonchip.so exports the functions of the public headers, the type of onchip::Error, and nothing else.
cmake_minimum_required(VERSION 3.25)
set(expected
  "onchip::contiguous" "onchip::plan" "onchip::explain" "onchip::explain_json" "onchip::forward" "onchip::backward"
  "onchip::decode" "onchip::merge" "onchip::merge_on_device" "onchip::version" "onchip::name" "onchip::size_of"
  "onchip::compile" "onchip::gpu_software" "onchip::synchronize" "onchip::DeviceMemory::DeviceMemory"
  "onchip::DeviceMemory::~DeviceMemory" "onchip::DeviceMemory::operator=" "onchip::DeviceMemory::read"
  "onchip::DeviceMemory::write"
  "typeinfo for onchip::Error" "typeinfo name for onchip::Error" "vtable for onchip::Error"
  onchip_backward onchip_contiguous onchip_decode onchip_explain onchip_explain_decode onchip_forward onchip_last_error onchip_merge
  onchip_merge_on_device onchip_plan onchip_plan_decode onchip_version)
# Where the compiler did not inline them.
set(allowed ${expected} "onchip::Error::Error" "onchip::Error::~Error" "onchip::Error::code")

execute_process(COMMAND ${NM} --dynamic --defined-only --demangle ${LIBRARY}
  OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" lines "${output}")
set(found "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^[0-9a-f]* +[A-Za-z] " "" symbol "${line}")
  string(REGEX REPLACE "(\\[abi:[a-z0-9]+\\])?\\(.*$" "" symbol "${symbol}")
  list(APPEND found "${symbol}")
  if(NOT symbol IN_LIST allowed)
    message(SEND_ERROR "exported, but in no public header: ${line}")
  endif()
endforeach()
foreach(symbol IN LISTS expected)
  if(NOT symbol IN_LIST found)
    message(SEND_ERROR "not exported: ${symbol}")
  endif()
endforeach()
