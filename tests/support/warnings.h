#pragma once

#include <berth/warnings.h>

#include <string>
#include <string_view>
#include <vector>

namespace berth::test {

// Warnings of its scope, by name and text.
struct Warnings {
  Warnings() {
    set_warning_sink([this](std::string_view name, const std::string& text) {
      names.emplace_back(name);
      texts.push_back(text);
    });
  }
  ~Warnings() { set_warning_sink({}); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  std::vector<std::string> names, texts;
};

}  // namespace berth::test
