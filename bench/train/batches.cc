#include "bench/train/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <stdexcept>

namespace berth::bench {

DigitBatches::DigitBatches(const std::string& path, std::int64_t channels, std::int64_t side,
                           std::uint64_t seed)
    : channels_(channels), side_(side), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
  const Digits digits = read_digits(path);
  const auto count = static_cast<std::int64_t>(digits.labels.size());
  images_ = torch::tensor(digits.pixels).view({count, 1, Digits::kSide, Digits::kSide});
  labels_ = torch::tensor(digits.labels);
}

Batch DigitBatches::next(std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor index = torch::randint(labels_.size(0), {batch}, generator_, torch::kLong);
  namespace F = torch::nn::functional;
  torch::Tensor images = images_.index_select(0, index);
  if (side_ != Digits::kSide)
    images = F::interpolate(images, F::InterpolateFuncOptions()
                                        .size(std::vector<std::int64_t>{side_, side_})
                                        .mode(torch::kBilinear)
                                        .align_corners(false));
  return {images.expand({batch, channels_, side_, side_}).contiguous(),
          labels_.index_select(0, index)};
}

CharacterBatches::CharacterBatches(const std::string& path, std::int64_t context,
                                   std::uint64_t seed)
    : context_(context), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
  const Characters characters = read_characters(path);
  const auto length = static_cast<std::int64_t>(characters.text.size());
  if (length <= context)
    throw std::runtime_error(
        fmt::format("{}: {} characters, want more than {}", path, length, context));
  alphabet_ = static_cast<std::int64_t>(characters.alphabet.size());
  text_ = torch::empty({length}, torch::kByte);
  std::copy(characters.text.begin(), characters.text.end(), text_.data_ptr<std::uint8_t>());
}

Batch CharacterBatches::next(std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor start =
      torch::randint(text_.size(0) - context_, {batch}, generator_, torch::kLong);
  torch::Tensor windows = torch::empty({batch, context_ + 1}, torch::kLong);
  const auto* from = text_.const_data_ptr<std::uint8_t>();
  auto* to = windows.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < batch; ++i)
    std::copy_n(from + start[i].item<std::int64_t>(), context_ + 1, to + i * (context_ + 1));
  return {windows.slice(1, 0, context_).contiguous(),
          windows.slice(1, 1, context_ + 1).contiguous()};
}

}  // namespace berth::bench
