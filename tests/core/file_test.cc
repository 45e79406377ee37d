#include "csrc/core/file.h"

#include "csrc/core/check.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

using namespace berth;

namespace {
std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> data(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) data[i] = static_cast<std::byte>(text[i]);
  return data;
}
}  // namespace

TEST_CASE("A file replaced atomically holds the new bytes and leaves nothing beside it", "[file]") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "a.plan";
  write_file_atomically(path, bytes_of("old"));
  write_file_atomically(path, bytes_of("new and longer"));
  REQUIRE(read_file(path, 1000) == bytes_of("new and longer"));
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  REQUIRE((info.st_mode & 0777) == 0600);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  REQUIRE(files == 1);
}

TEST_CASE("A replacement that cannot be written leaves the old file and names the path", "[file]") {
  const test::TemporaryFolder folder;
  REQUIRE_THROWS_WITH(
      write_file_atomically(folder / "missing/a.plan", bytes_of("x")),
      Catch::Matchers::Contains("missing/a.plan") && Catch::Matchers::Contains("No such file"));
  // The target is a folder: the rename fails after the temporary file was written.
  std::filesystem::create_directory(folder / "taken");
  REQUIRE_THROWS_AS(write_file_atomically(folder / "taken", bytes_of("x")), Error);
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++entries;
  REQUIRE(entries == 1);
}

TEST_CASE("Only regular files within the limit are read", "[file]") {
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "ten", bytes_of("0123456789"));
  REQUIRE(read_file(folder / "ten", 10).size() == 10);
  REQUIRE(read_file_head(folder / "ten", 4).size() == 4);
  REQUIRE(read_file_head(folder / "ten", 40).size() == 10);
  REQUIRE_THROWS_WITH(read_file(folder / "ten", 9), Catch::Matchers::Contains("limit"));
  REQUIRE_THROWS_WITH(read_file(folder.path(), 9), Catch::Matchers::Contains("not a regular file"));
  REQUIRE_THROWS_WITH(read_file(folder / "none", 9), Catch::Matchers::Contains("cannot open"));
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  REQUIRE_THROWS_WITH(read_file(folder / "fifo", 9),
                      Catch::Matchers::Contains("not a regular file"));
  REQUIRE_THROWS_WITH(read_file_head(folder / "fifo", 9),
                      Catch::Matchers::Contains("not a regular file"));
}

TEST_CASE("A symbolic link stays and the file at its end is replaced", "[file]") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "there");
  std::filesystem::create_symlink("there/second", folder / "first");
  std::filesystem::create_symlink(folder / "there/file", folder / "there/second");
  REQUIRE_FALSE(is_there(folder / "first"));
  for (const char* text : {"new", "newer"}) {
    write_file_atomically(folder / "first", bytes_of(text));
    REQUIRE(read_file(folder / "there/file", 10) == bytes_of(text));
  }
  REQUIRE(is_there(folder / "first"));
  REQUIRE(std::filesystem::is_symlink(folder / "first"));
  REQUIRE(std::filesystem::is_symlink(folder / "there/second"));
}

TEST_CASE("Symbolic links that lead nowhere are an error by name", "[file]") {
  const test::TemporaryFolder folder;
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  REQUIRE_THROWS_WITH(write_file_atomically(folder / "a", bytes_of("x")),
                      Catch::Matchers::Contains("cannot follow"));
}

TEST_CASE("A pipe is written to, and stays one", "[file]") {
  const test::TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  REQUIRE_FALSE(is_special(folder / "none"));
  REQUIRE(is_special(folder / "fifo"));
  std::string text;
  std::thread reader([&] { std::getline(std::ifstream(folder / "fifo"), text); });
  write_file_atomically(folder / "fifo", bytes_of("statistics\n"));
  reader.join();
  REQUIRE(text == "statistics");
  REQUIRE(std::filesystem::is_fifo(folder / "fifo"));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  REQUIRE(files == 1);
}

TEST_CASE("A program that wants pipes reads each whole and as often as it likes", "[file][pipe]") {
  (void)std::signal(SIGPIPE, SIG_IGN);  // of what is too large the rest is not read
  const test::TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(folder / "fifo") << std::string(200'000, 'x') << "end"; });
  read_pipes_too(1 << 20);
  REQUIRE(read_file_head(folder / "fifo", 4) == bytes_of("xxxx"));
  writer.join();
  const auto whole = read_file(folder / "fifo", 1 << 20);
  REQUIRE(whole.size() == 200'003);
  REQUIRE(read_file_head(folder / "fifo", 300'000) == whole);
  REQUIRE_THROWS_WITH(read_file(folder / "fifo", 1000), Catch::Matchers::Contains("limit"));

  REQUIRE(::mkfifo((folder / "large").c_str(), 0600) == 0);
  std::thread second([&] { std::ofstream(folder / "large") << std::string(3 << 20, 'x'); });
  REQUIRE_THROWS_WITH(read_file(folder / "large", 1 << 24),
                      Catch::Matchers::Contains("has more than"));
  second.join();
  REQUIRE_THROWS_WITH(read_file("/dev/zero", 9), Catch::Matchers::Contains("not a regular file"));
  read_pipes_too(0);
}
