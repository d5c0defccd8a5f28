// The subcommands. Each function adds one to `app`: its options, its help, and the callback that runs it.
//
// A callback writes its result to standard output and returns, or throws: InputError and onchip::Error become one line
// on standard error and exit status 2, anything else exit status 1. main.cpp holds the list.
#pragma once

#include <CLI/CLI.hpp>

namespace onchip::cli {

void add_attend(CLI::App& app);
void add_bench(CLI::App& app);
void add_compile(CLI::App& app);
void add_doctor(CLI::App& app);
void add_explain(CLI::App& app);
void add_traffic(CLI::App& app);

}  // namespace onchip::cli
