#include "csrc/cli/summaries/png.h"

#include "csrc/core/check.h"

#include <dlfcn.h>

#include <cmath>
#include <memory>
#include <string>

namespace berth::cli {
namespace {

// What we take of the interfaces of glib, librsvg 2.46 and later, and cairo. All of them are
// stable.
struct GError {
  std::uint32_t domain;
  int code;
  char* message;
};
struct RsvgRectangle {
  double x, y, width, height;
};
constexpr int kRgb24 = 1;
using Handle = void;
using Surface = void;
using Pen = void;
using Write = int(void* closure, const unsigned char* data, unsigned length);

// A function of a library; the library stays.
template <class Function>
Function* find(const char* library, const char* name) {
  void* opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  BERTH_CHECK(
      opened != nullptr, kSystem,
      "--png needs librsvg ({}), for example Debian's package librsvg2-2; --svg needs nothing",
      library);
  void* found = ::dlsym(opened, name);
  BERTH_CHECK(found != nullptr, kSystem, "--png needs a newer {}: it has no {}", library, name);
  return reinterpret_cast<Function*>(found);
}

int append(void* closure, const unsigned char* data, unsigned length) {
  auto& png = *static_cast<std::vector<std::byte>*>(closure);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  png.insert(png.end(), bytes, bytes + length);
  return 0;
}

// The number in width="..." or height="..." of our own SVGs.
double extent(std::string_view svg, std::string_view name) {
  const std::string head = " " + std::string(name) + "=\"";
  const std::size_t at = svg.find(head);
  BERTH_ASSERT(at != std::string_view::npos, "the SVG has no {}", name);
  return std::stod(std::string(svg.substr(at + head.size(), 16)));
}

}  // namespace

std::vector<std::byte> to_png(std::string_view svg, double scale) {
  constexpr const char* kRsvg = "librsvg-2.so.2";
  constexpr const char* kCairo = "libcairo.so.2";
  auto* read =
      find<Handle*(const char*, std::size_t, GError**)>(kRsvg, "rsvg_handle_new_from_data");
  auto* render = find<int(Handle*, Pen*, const RsvgRectangle*, GError**)>(
      kRsvg, "rsvg_handle_render_document");
  auto* unref = find<void(Handle*)>("libgobject-2.0.so.0", "g_object_unref");
  auto* create = find<Surface*(int, int, int)>(kCairo, "cairo_image_surface_create");
  auto* destroy_surface = find<void(Surface*)>(kCairo, "cairo_surface_destroy");
  auto* begin = find<Pen*(Surface*)>(kCairo, "cairo_create");
  auto* end = find<void(Pen*)>(kCairo, "cairo_destroy");
  auto* write = find<int(Surface*, Write*, void*)>(kCairo, "cairo_surface_write_to_png_stream");

  GError* error = nullptr;
  const auto said = [&] { return error == nullptr ? "no reason given" : error->message; };
  const std::unique_ptr<Handle, void (*)(Handle*)> handle(read(svg.data(), svg.size(), &error),
                                                          unref);
  BERTH_CHECK(handle != nullptr, kSystem, "librsvg does not read the picture: {}", said());
  const double width = std::round(extent(svg, "width") * scale);
  const double height = std::round(extent(svg, "height") * scale);
  const std::unique_ptr<Surface, void (*)(Surface*)> surface(
      create(kRgb24, static_cast<int>(width), static_cast<int>(height)), destroy_surface);
  const std::unique_ptr<Pen, void (*)(Pen*)> pen(begin(surface.get()), end);
  const RsvgRectangle viewport = {0, 0, width, height};
  BERTH_CHECK(render(handle.get(), pen.get(), &viewport, &error) != 0, kSystem,
              "librsvg does not draw the picture: {}", said());
  std::vector<std::byte> png;
  const int status = write(surface.get(), append, &png);
  BERTH_CHECK(status == 0, kSystem, "cairo does not write the picture: status {}", status);
  return png;
}

}  // namespace berth::cli
