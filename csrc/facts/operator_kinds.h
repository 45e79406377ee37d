#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What is known of operators by their names alone, where neither schema nor operands say it. Names
// are libtorch's, with or without the overload behind a dot.
namespace berth::facts {

namespace detail {
template <std::size_t N>
[[nodiscard]] constexpr bool is_one_of(std::string_view name,
                                       const std::string_view (&names)[N]) noexcept {
  name = name.substr(0, name.find('.'));
  for (const std::string_view one : names)
    if (name == one) return true;
  return false;
}
}  // namespace detail

// Makes a tensor, and writes nothing into its memory.
[[nodiscard]] constexpr bool makes_room(std::string_view name) noexcept {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

// Makes room, in a tensor of its own or of its arguments, that another operator fills: it does not
// tell who needs the memory.
[[nodiscard]] constexpr bool only_allocates(std::string_view name) noexcept {
  return makes_room(name) || name.starts_with("aten::resize");
}

// Changes the tensor in place, but not what its memory holds.
[[nodiscard]] constexpr bool only_changes_shape(std::string_view name) noexcept {
  return detail::is_one_of(
      name, {"aten::detach_", "detach_", "aten::requires_grad_", "aten::t_", "aten::transpose_",
             "aten::swapaxes_", "aten::swapdims_", "aten::squeeze_", "aten::unsqueeze_",
             "aten::as_strided_", "aten::rename_", "aten::set_", "aten::set_data"});
}

// The arguments of a norm that are its running statistics.
inline constexpr std::size_t kRunningMean = 3, kRunningVariance = 4;

// Writes the argument at `position` though its schema is silent: the running statistics of a norm.
[[nodiscard]] constexpr bool writes_unseen(std::string_view name, std::uint16_t position) noexcept {
  return (position == kRunningMean || position == kRunningVariance) &&
         detail::is_one_of(
             name, {"aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm",
                    "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::instance_norm"});
}

// Operators whose arguments 3 and 4 are the running statistics of a norm, and that give or take the
// statistics of the batch where they train. Most schemas do not tell that they are written.
struct RunningStatistics {
  static constexpr std::size_t kAlways = ~std::size_t{0};
  std::string_view name;
  bool writes;
  std::size_t training;  // the argument that tells whether it trains; kAlways: it does
};
// mutant: step-hidden
inline constexpr RunningStatistics kWithStatistics[] = {
    {"aten::native_batch_norm", true, 5},
    {"aten::_native_batch_norm_legit", true, 5},
    {"aten::_batch_norm_with_update", true, RunningStatistics::kAlways},
    {"aten::cudnn_batch_norm", true, 5},
    {"aten::miopen_batch_norm", true, 5},
    {"aten::batch_norm_gather_stats", true, RunningStatistics::kAlways},
    {"aten::batch_norm_gather_stats_with_counts", true, RunningStatistics::kAlways},
    {"aten::native_batch_norm_backward", false, 7},
    {"aten::batch_norm_backward", false, 7},
    {"aten::cudnn_batch_norm_backward", false, RunningStatistics::kAlways},
    {"aten::miopen_batch_norm_backward", false, RunningStatistics::kAlways},
};

[[nodiscard]] constexpr bool updates_statistics(std::string_view name) noexcept {
  name = name.substr(0, name.find('.'));
  for (const RunningStatistics& one : kWithStatistics)
    if (one.name == name) return true;
  return false;
}

// Of these and what calls them: an argument that is such statistics.
[[nodiscard]] constexpr bool is_statistics(std::string_view name, std::uint16_t position) noexcept {
  return (position == kRunningMean || position == kRunningVariance) &&
         (updates_statistics(name) || writes_unseen(name, position));
}

// The statistics of the batch, where there are bytes of them: by that a norm trains, and goes back.
[[nodiscard]] constexpr bool is_saved_by_norm(std::string_view name, bool output,
                                              std::uint16_t position) noexcept {
  const bool back = name.find("backward") != std::string_view::npos;
  return updates_statistics(name) && (back ? !output && position == 5 : output && position == 1);
}

// Gives the host a number that depends on contents.
[[nodiscard]] constexpr bool reads_number(std::string_view name) noexcept {
  return detail::is_one_of(name, {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero",
                                  "aten::equal", "aten::allclose"});
}

// Gives results whose shapes depend on contents.
[[nodiscard]] constexpr bool sizes_by_contents(std::string_view name) noexcept {
  return detail::is_one_of(
      name, {"aten::nonzero", "aten::masked_select", "aten::_unique", "aten::_unique2",
             "aten::unique_consecutive", "aten::unique_dim", "aten::bincount"});
}

// The host waits for contents: for such a number or shape, or because berth's operator reads them.
[[nodiscard]] constexpr bool waits_for_contents(std::string_view name) noexcept {
  return reads_number(name) || sizes_by_contents(name) ||
         detail::is_one_of(name, {"berth::read_bytes", "berth::share_bytes"});
}

// What its arguments hold may make an operator fail: always; where one is on the CPU, as with
// indices, which kernels of devices do not look at; where all are integers there, as with division
// by 0.
enum class Fails : std::uint8_t { kNever, kAlways, kOnHost, kIntegers };

[[nodiscard]] constexpr Fails fails_by_contents(std::string_view name) noexcept {
  const std::size_t dot = name.find('.');
  const std::string_view overload = dot == std::string_view::npos ? "" : name.substr(dot + 1);
  name = name.substr(0, dot);
  // Numbers that they are given may be wrong, too, which is seen where they are called.
  if (name == "aten::normal_" ||
      (name.starts_with("aten::bernoulli") && (overload == "float" || overload == "p")))
    return Fails::kNever;
  const bool linear_algebra =
      name.starts_with("aten::linalg_") || name.starts_with("aten::_linalg_");
  if (name.ends_with('_')) name.remove_suffix(1);
  if (linear_algebra ||
      detail::is_one_of(
          name, {"aten::_assert_async", "aten::_assert_scalar", "aten::_assert_tensor_metadata",
                 "aten::_functional_assert_async", "aten::_linalg_check_errors",
                 "aten::_validate_compressed_sparse_indices", "aten::cholesky", "aten::geqrf",
                 "aten::inverse", "aten::linalg_ldl_factor_ex", "aten::lstsq", "aten::lu_solve",
                 "aten::slogdet", "aten::triangular_solve"}))
    return Fails::kAlways;
  if (detail::is_one_of(name, {"aten::_ctc_loss",
                               "aten::_embedding_bag",
                               "aten::_embedding_bag_forward_only",
                               "aten::_fake_quantize_learnable_per_channel_affine",
                               "aten::_histogramdd_bin_edges",
                               "aten::_histogramdd_from_bin_cts",
                               "aten::_index_put_impl",
                               "aten::_jagged_to_padded_dense_forward",
                               "aten::_padded_dense_to_jagged_forward",
                               "aten::bernoulli",
                               "aten::binary_cross_entropy",
                               "aten::binary_cross_entropy_backward",
                               "aten::binomial",
                               "aten::embedding",
                               "aten::embedding_renorm",
                               "aten::fake_quantize_per_channel_affine_cachemask",
                               "aten::fractional_max_pool2d",
                               "aten::fractional_max_pool3d",
                               "aten::gather",
                               "aten::histc",
                               "aten::histogram",
                               "aten::index",
                               "aten::index_add",
                               "aten::index_copy",
                               "aten::index_fill",
                               "aten::index_put",
                               "aten::index_reduce",
                               "aten::index_select",
                               "aten::kthvalue",
                               "aten::masked_scatter",
                               "aten::max_unpool2d",
                               "aten::max_unpool3d",
                               "aten::multi_margin_loss",
                               "aten::multilabel_margin_loss_forward",
                               "aten::multinomial",
                               "aten::nll_loss2d_forward",
                               "aten::nll_loss_forward",
                               "aten::normal",
                               "aten::poisson",
                               "aten::put",
                               "aten::repeat_interleave",
                               "aten::scatter",
                               "aten::scatter_add",
                               "aten::scatter_reduce",
                               "aten::segment_reduce",
                               "aten::take",
                               "aten::unique_dim",
                               "aten::_unsafe_masked_index",
                               "aten::_unsafe_masked_index_put_accumulate",
                               "aten::cholesky_inverse",
                               "aten::cholesky_solve",
                               "aten::lu_unpack",
                               "aten::ormqr",
                               "aten::searchsorted"}))
    return Fails::kOnHost;
  if (detail::is_one_of(
          name, {"aten::div", "aten::floor_divide", "aten::fmod", "aten::pow", "aten::remainder"}))
    return Fails::kIntegers;
  return Fails::kNever;
}
// Whether a call may, of which an operand is on the CPU, and all are integers.
[[nodiscard]] constexpr bool may_fail(Fails fails, bool on_host, bool integers) noexcept {
  return fails == Fails::kAlways ||
         (on_host && (fails == Fails::kOnHost || (fails == Fails::kIntegers && integers)));
}

// Runs on all ranks together: an operator, or a range that a backend of c10d names.
[[nodiscard]] constexpr bool is_collective(std::string_view name) noexcept {
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional::") ||
         name.starts_with("c10d_functional::") || name.starts_with("nccl:") ||
         name.starts_with("gloo:");
}

// Autograd's engine around one node: "<prefix>: <node>".
inline constexpr std::string_view kEngine = "autograd::engine::evaluate_function";

// Whether the name is an operator's, "aten::add.Tensor", rather than that of a node of autograd:
// those have none of libtorch's namespaces, or that of autograd.
[[nodiscard]] constexpr bool is_operator(std::string_view name) noexcept {
  const std::size_t colon = name.find("::");
  return colon != std::string_view::npos && name.find(' ') > colon && !name.starts_with("torch::");
}

// Bytes of an element of c10's ScalarType by number; 0 where it is not known or not whole.
[[nodiscard]] constexpr std::uint32_t element_bytes(std::int8_t type) noexcept {
  constexpr std::uint8_t kBytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2};
  return type >= 0 && type < 16 ? kBytes[type] : 0;
}

}  // namespace berth::facts
