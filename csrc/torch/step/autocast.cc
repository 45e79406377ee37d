#include "csrc/torch/step/autocast.h"

#include <ATen/autocast_mode.h>

namespace berth::torch::step {

namespace {

struct Kind {
  c10::DeviceType device;
  c10::DispatchKey key;
  unsigned shift;
};
constexpr Kind kKinds[] = {{c10::kCPU, c10::DispatchKey::AutocastCPU, 0},
                           {c10::kCUDA, c10::DispatchKey::AutocastCUDA, 16}};
constexpr Autocast kMask = 0xffff;

Autocast type_of(const Kind& kind) {
  return 1 + static_cast<Autocast>(at::autocast::get_autocast_dtype(kind.device));
}
void set_type(const Kind& kind, Autocast all) {
  if (const Autocast type = (all >> kind.shift) & kMask; type != 0)
    at::autocast::set_autocast_dtype(kind.device, static_cast<at::ScalarType>(type - 1));
}

c10::DispatchKeySet excluded(Autocast autocast) {
  c10::DispatchKeySet keys =
      c10::impl::tls_local_dispatch_key_set().excluded_ | c10::autocast_dispatch_keyset;
  for (const Kind& kind : kKinds)
    if (((autocast >> kind.shift) & kMask) != 0) keys = keys.remove(kind.key);
  return keys;
}

}  // namespace

Autocast autocast_now() {
  Autocast all = 0;
  for (const Kind& kind : kKinds)
    if (!c10::impl::tls_is_dispatch_key_excluded(kind.key)) all |= type_of(kind) << kind.shift;
  return all;
}

AutocastGuard::AutocastGuard(Autocast autocast)
    : autocast_(autocast),
      kept_casts_(at::autocast::is_autocast_cache_enabled()),
      keys_(c10::impl::tls_local_dispatch_key_set().included_, excluded(autocast)) {
  at::autocast::set_autocast_cache_enabled(false);
  for (const Kind& kind : kKinds)
    if (((autocast >> kind.shift) & kMask) != 0) before_ |= type_of(kind) << kind.shift;
  for (const Kind& kind : kKinds) set_type(kind, autocast_);
}

AutocastGuard::~AutocastGuard() {
  for (const Kind& kind : kKinds) set_type(kind, before_);
  at::autocast::set_autocast_cache_enabled(kept_casts_);
}

}  // namespace berth::torch::step
