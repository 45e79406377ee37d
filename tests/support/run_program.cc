#include "tests/support/run_program.h"

#include "tests/support/temporary_folder.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace berth::test {

namespace {

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& command,
                          const std::map<std::string, std::string>& environment) {
  const TemporaryFolder folder;
  std::vector<std::string> arguments = command, variables;
  for (char** variable = ::environ; *variable != nullptr; ++variable)
    if (std::strncmp(*variable, "BERTH_", 6) != 0) variables.emplace_back(*variable);
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);

  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  const std::string out = folder / "out", err = folder / "err";
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, arguments.at(0).c_str(), &files, nullptr,
                                  pointers(arguments).data(), pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::runtime_error(arguments[0] + ": " + std::strerror(error));

  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw std::runtime_error("waitpid failed");
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_all(out),
          .err = read_all(err)};
}

}  // namespace berth::test
