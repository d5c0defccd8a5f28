// onchip: the command line. Exit status 0: done; 2: the input or the usage was refused; 1: a fault inside.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "onchip/commands.hpp"
#include "onchip/input_error.hpp"
#include "onchip/onchip.hpp"

namespace {

using namespace onchip;

constexpr int kRefused = 2;
constexpr int kFault = 1;

constexpr const char* kFooter =
    "Examples\n"
    "  onchip doctor                                      what this machine has\n"
    "  onchip attend IN.safetensors -o OUT.safetensors    attention over tensors named q, k, v\n"
    "  onchip attend IN.safetensors --compare standard    the same beside textbook attention\n"
    "  onchip COMMAND --help                              options, units, defaults and examples\n"
    "Exit status: 0 done, 2 the input or the usage was refused (one line on standard error says why), 1 a fault "
    "inside.";

/// `text` on one line: whatever a file or an argument smuggled in, control characters become '?'.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = c == '\n' ? ' ' : '?';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

int complain(int status, const std::string& message) {
  std::fprintf(stderr, "onchip: %s\n", one_line(message).c_str());
  return status;
}

int status_of(StatusCode code) { return code == StatusCode::internal ? kFault : kRefused; }

void add_commands(CLI::App& app) {
  cli::add_attend(app);
  cli::add_bench(app);
  cli::add_compile(app);
  cli::add_doctor(app);
  cli::add_explain(app);
  cli::add_traffic(app);
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw cli::InputError("standard output: could not be written");
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
    std::string names;
    for (const CLI::App* command : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + command->get_name();
    return fmt::format("'{}' is no command, expected one of {}", argv[1], names);
  }
  return fmt::format("{} (see onchip {}--help)", error.what(),
                     app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " ");
}

int run(int argc, char** argv) {
  CLI::App app{"Exact attention whose N×N scores never leave the chip."};
  app.name("onchip");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("onchip ") + version(), "Print the version and exit");
  app.require_subcommand(1);
  add_commands(app);
  try {
    for (int i = 1; i < argc; ++i)
      if (*argv[i] == '\0')
        return complain(kRefused, fmt::format("argument {} after '{}' is empty, expected a value", i, argv[i - 1]));
    app.parse(argc, argv);
    flush_output();
  } catch (const CLI::Success& request) {  // --help, --version
    app.exit(request);
    flush_output();
  } catch (const CLI::ParseError& error) {
    return complain(kRefused, usage_message(app, error, argc, argv));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is reported as any other failure to write
  try {
    return run(argc, argv);
  } catch (const cli::InputError& error) {
    return complain(kRefused, error.what());
  } catch (const Error& error) {
    return complain(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return complain(kRefused, "out of memory: the problem does not fit on this machine");
  } catch (const std::exception& error) {
    return complain(kFault, std::string("internal error: ") + error.what());
  }
}
