#include "csrc/cli/summaries/picture.h"

#include "csrc/cli/core/output.h"
#include "csrc/cli/summaries/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace berth::cli {
namespace {

constexpr double kWidth = 1200, kHeight = 640;
constexpr double kLeft = 92, kRight = 176, kTop = 76, kBottom = 58, kPanelGap = 18;
constexpr std::size_t kMostBoxes = 40000;
constexpr std::size_t kMostPanels = 6;

// Lifetimes in seven classes, the shortest first; colours of viridis (Smith and van der Walt 2015),
// legible in grey and to the colour-blind.
constexpr std::array<const char*, 7> kColours = {"#f2d732", "#93cf46", "#37b678", "#21918c",
                                                 "#31688e", "#453882", "#44125c"};

// Upper limits of all classes but the last: what is freed at once, then shares of the longest
// lifetime. Activations of a training step live evenly long, so the shares are nearly even.
std::array<std::uint64_t, kColours.size() - 1> class_limits(std::uint64_t longest) {
  constexpr std::array<double, kColours.size() - 2> kShares = {0.02, 0.1, 0.25, 0.5, 0.75};
  std::array<std::uint64_t, kColours.size() - 1> limits{2};
  for (std::size_t i = 0; i < kShares.size(); ++i) {
    const double exact = kShares[i] * static_cast<double>(longest);
    const double digit = std::pow(10, std::floor(std::log10(std::max(exact, 10.0))) - 1);
    limits[i + 1] =
        std::max(limits[i] + 1, static_cast<std::uint64_t>(std::round(exact / digit) * digit));
  }
  return limits;
}

class Drawing {
 public:
  explicit Drawing(const Picture& picture) : picture_(picture) {
    std::size_t boxes = 0;
    for (const Picture::Panel& panel : picture.panels) {
      boxes += panel.boxes.size();
      for (const Picture::Box& box : panel.boxes) longest_ = std::max(longest_, box.length);
    }
    limits_ = class_limits(longest_);
    if (boxes > kMostBoxes) least_area_ = area_limit();
    top_bytes_ = static_cast<double>(std::max<Bytes>({picture.arena, picture.bound, 1}));
  }

  std::string draw() {
    frame();
    y_axis();
    const std::size_t panels = std::min(picture_.panels.size(), kMostPanels);
    const double gaps = kPanelGap * static_cast<double>(panels > 0 ? panels - 1 : 0);
    double ticks = 0;
    for (std::size_t i = 0; i < panels; ++i) ticks += weight(picture_.panels[i]);
    double x = kLeft;
    for (std::size_t i = 0; i < panels; ++i) {
      const double width = (kWidth - kLeft - kRight - gaps) * weight(picture_.panels[i]) / ticks;
      panel(picture_.panels[i], x, width, panels > 1);
      x += width + kPanelGap;
    }
    bound_line();
    legend();
    notes();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }

  // A lane of few requests still gets room to be seen.
  static double weight(const Picture::Panel& panel) {
    return std::sqrt(static_cast<double>(std::max<std::uint64_t>(panel.period, 1)));
  }

  [[nodiscard]] double y_of(double bytes) const {
    return kHeight - kBottom - bytes / top_bytes_ * (kHeight - kTop - kBottom);
  }

  [[nodiscard]] std::size_t class_of(std::uint64_t length) const {
    std::size_t i = 0;
    while (i < limits_.size() && length > limits_[i]) ++i;
    return i;
  }

  // The area of the smallest of the kMostBoxes largest boxes.
  double area_limit() const {
    std::vector<double> areas;
    for (const Picture::Panel& panel : picture_.panels) {
      for (const Picture::Box& box : panel.boxes) areas.push_back(area(box));
    }
    const auto cut = areas.begin() + static_cast<std::ptrdiff_t>(kMostBoxes - 1);
    std::nth_element(areas.begin(), cut, areas.end(), std::greater<>());
    return *cut;
  }

  static double area(const Picture::Box& box) {
    return static_cast<double>(box.size) * static_cast<double>(box.length);
  }

  void frame() {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" "
        "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"13\" "
        "fill=\"#333\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
        "<text x=\"{2}\" y=\"28\" font-size=\"17\" font-weight=\"600\" fill=\"#111\">{3}</text>\n",
        kWidth, kHeight, kLeft, escape(picture_.title));
    const double gap =
        picture_.bound == 0
            ? 0
            : static_cast<double>(picture_.arena) / static_cast<double>(picture_.bound) - 1;
    if (!picture_.about.empty()) {
      add("<text x=\"{}\" y=\"49\" fill=\"#666\">{}</text>\n", kLeft, escape(picture_.about));
      return;
    }
    add("<text x=\"{}\" y=\"49\" fill=\"#666\">arena {}{}</text>\n", kLeft,
        format_bytes(picture_.arena),
        picture_.bound == 0                ? ""
        : picture_.arena == picture_.bound ? ", the lower bound: no smaller one exists"
                                           : fmt::format(", {:.2f} % above the lower bound of {}",
                                                         gap * 100, format_bytes(picture_.bound)));
  }

  void y_axis() {
    const Unit unit = unit_of(static_cast<Bytes>(top_bytes_));
    const double step = nice_step(top_bytes_ / unit.bytes, 8);
    const double right = kWidth - kRight;
    for (double value = 0; value <= top_bytes_ / unit.bytes * 1.0001; value += step) {
      const double y = y_of(value * unit.bytes);
      add("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e6e6e6\"/>\n"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
          kLeft, y, right, kLeft - 8, y + 4.5, std::round(value * 1000) / 1000);
    }
    const double middle = (kTop + kHeight - kBottom) / 2;
    add("<text transform=\"translate(26 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}, "
        "{}</text>\n",
        middle, escape(picture_.address), unit.name);
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", (kLeft + right) / 2,
        kHeight - 14, escape(picture_.time));
  }

  void panel(const Picture::Panel& panel, double x, double width, bool several) {
    const double period = static_cast<double>(std::max<std::uint64_t>(panel.period, 1));
    const double scale = width / period;
    std::array<std::string, 2 * kColours.size()> paths;  // small boxes, then those with an edge
    std::string faded;
    const auto piece = [&](const Picture::Box& box, std::uint64_t from, std::uint64_t to) {
      const double left = x + static_cast<double>(from) * scale;
      const double w = std::max(static_cast<double>(to - from) * scale, 0.3);
      const double bottom = y_of(static_cast<double>(box.offset));
      const double top = y_of(static_cast<double>(box.offset + box.size));
      const double h = std::max(bottom - top, 0.15);
      const bool edged = w > 2.5 && h > 2.5;
      std::string& path =
          box.faded ? faded : paths[class_of(box.length) + (edged ? kColours.size() : 0)];
      fmt::format_to(std::back_inserter(path), "M{:.2f} {:.2f}h{:.2f}v{:.2f}h-{:.2f}z", left,
                     bottom - h, w, h, w);
    };
    for (const Picture::Box& box : panel.boxes) {
      if (area(box) < least_area_ || drawn_ == kMostBoxes) {
        ++left_out_;
        continue;
      }
      ++drawn_;
      const std::uint64_t end = box.birth + box.length;
      piece(box, box.birth, std::min(end, panel.period));
      if (end > panel.period) piece(box, 0, std::min(end - panel.period, panel.period));
    }
    if (!faded.empty()) add("<path d=\"{}\" fill=\"#ddd\"/>\n", faded);
    for (std::size_t i = 0; i < kColours.size(); ++i) {
      if (!paths[i].empty()) add("<path d=\"{}\" fill=\"{}\"/>\n", paths[i], kColours[i]);
      const std::string& edged = paths[i + kColours.size()];
      if (!edged.empty())
        add("<path d=\"{}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\".5\"/>\n", edged,
            kColours[i]);
    }
    live_line(panel, x, width);

    const double bottom = kHeight - kBottom;
    add("<path d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\" fill=\"none\" stroke=\"#444\"/>\n", x, kTop,
        bottom, x + width);
    const double step = std::max(1.0, nice_step(period, std::max(1.0, width / 110)));
    for (double tick = 0; tick <= period; tick += step) {
      const double at = x + tick * scale;
      if (several && at > x + width - 14) break;  // the next panel begins at 0
      add("<path d=\"M{:.1f} {:.1f}v5\" stroke=\"#444\"/>\n"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
          at, bottom, at, bottom + 19, format_count(static_cast<std::uint64_t>(tick)));
    }
    if (several)
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#666\">{}</text>\n", x + 4, kTop - 4,
          escape(panel.label));
  }

  // Live bytes at each point of the picture: the largest in it.
  void live_line(const Picture::Panel& panel, double x, double width) {
    if (panel.boxes.empty() || panel.period == 0) return;
    std::vector<std::pair<std::uint64_t, double>> changes;
    double live = 0;
    for (const Picture::Box& box : panel.boxes) {
      const std::uint64_t end = box.birth + box.length;
      const double size = static_cast<double>(box.size);
      changes.emplace_back(box.birth, size);
      if (end <= panel.period) {
        changes.emplace_back(end, -size);
      } else {
        live += size;
        changes.emplace_back(end - panel.period, -size);
      }
    }
    std::sort(changes.begin(), changes.end());
    const auto columns =
        static_cast<std::size_t>(std::min(width, static_cast<double>(panel.period)));
    std::vector<double> most(std::max<std::size_t>(columns, 1), 0);
    const auto column_of = [&](std::uint64_t tick) {
      return std::min(most.size() - 1, static_cast<std::size_t>(static_cast<double>(tick) *
                                                                static_cast<double>(most.size()) /
                                                                static_cast<double>(panel.period)));
    };
    std::uint64_t since = 0;
    const auto alive_until = [&](std::uint64_t tick) {
      if (tick == since) return;
      for (std::size_t at = column_of(since); at <= column_of(tick - 1); ++at)
        most[at] = std::max(most[at], live);
      since = tick;
    };
    for (const auto& [tick, change] : changes) {
      alive_until(tick);
      live += change;
    }
    alive_until(panel.period);
    std::string path;
    const double step = width / static_cast<double>(most.size());
    for (std::size_t i = 0; i < most.size(); ++i) {
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}H{:.1f}", i == 0 ? "M" : "L",
                     x + static_cast<double>(i) * step, y_of(most[i]),
                     x + static_cast<double>(i + 1) * step);
    }
    add("<path d=\"{}\" fill=\"none\" stroke=\"#fff\" stroke-width=\"3\" stroke-opacity=\".7\"/>\n"
        "<path d=\"{}\" fill=\"none\" stroke=\"#d1322d\" stroke-width=\"1.4\"/>\n",
        path, path);
  }

  void bound_line() {
    if (picture_.bound == 0) return;
    const double y = y_of(static_cast<double>(picture_.bound));
    add("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#111\" stroke-dasharray=\"6 4\"/>\n", kLeft, y,
        kWidth - kRight);
  }

  void legend() {
    const double x = kWidth - kRight + 16;
    double y = kTop + 52;
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" font-weight=\"600\">alive for</text>\n", x, y);
    for (std::size_t i = 0; i < kColours.size() && (i == 0 || limits_[i - 1] < longest_); ++i) {
      y += 22;
      const std::string label =
          i < limits_.size() ? "to " + format_number_of(limits_[i], picture_.unit) : "longer";
      add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"16\" height=\"14\" fill=\"{}\"/>\n"
          "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
          x, y - 11.5, kColours[i], x + 24, y, label);
    }
    y += 30;
    add("<path d=\"M{:.1f} {:.1f}h16\" stroke=\"#d1322d\" stroke-width=\"1.6\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">live bytes</text>\n",
        x, y - 4, x + 24, y);
    y += 22;
    if (picture_.bound != 0) svg_ += bound_legend(x, y);
  }

  void notes() {
    std::string note;
    if (left_out_ > 0) note = fmt::format("{} smallest boxes not drawn", format_count(left_out_));
    if (picture_.panels.size() > kMostPanels) {
      note += fmt::format("{}{} more paths not drawn", note.empty() ? "" : ", ",
                          picture_.panels.size() - kMostPanels);
    }
    if (!note.empty())
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#666\">{}</text>\n",
          kWidth - kRight, 49.0, note);
  }

  const Picture& picture_;
  std::uint64_t longest_ = 1;  // lifetime
  std::array<std::uint64_t, kColours.size() - 1> limits_{};
  double least_area_ = 0;
  double top_bytes_ = 1;
  std::size_t drawn_ = 0;
  std::uint64_t left_out_ = 0;
  std::string svg_;
};

}  // namespace

Picture picture_of(const Plan& plan, const std::string& name) {
  Picture picture;
  picture.title = fmt::format("{}: {} requests a step", name, format_count(plan.slot_count()));
  picture.arena = plan.arena_bytes;
  picture.bound = plan.lower_bound;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const Sequence& sequence = plan.sequences[i];
    Picture::Panel panel;
    panel.label = fmt::format("lane {}{}", plan.lane_keys.at(sequence.lane),
                              sequence.parent < 0 ? "" : fmt::format(", path {}", i));
    panel.period = sequence.period;
    // The whole path: what an ancestor shares is drawn, too, but faded.
    std::uint32_t until = sequence.period;
    for (auto at = static_cast<std::int32_t>(i); at >= 0;) {
      const Sequence& part = plan.sequences[static_cast<std::size_t>(at)];
      for (const Slot& slot : part.slots) {
        if (slot.planned() && slot.birth < until)
          panel.boxes.push_back({slot.offset, slot.size, slot.birth, slot.length,
                                 at != static_cast<std::int32_t>(i)});
      }
      until = std::min(until, part.fork);
      at = part.parent;
    }
    picture.panels.push_back(std::move(panel));
  }
  return picture;
}

std::string to_svg(const Picture& picture) { return Drawing(picture).draw(); }

}  // namespace berth::cli
