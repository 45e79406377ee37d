#include "csrc/graph/other_forms.h"

#include "csrc/core/named_list.h"

namespace berth::graph {
namespace {

NamedList<OtherForm>& forms() {
  static auto& kForms = *new NamedList<OtherForm>;
  return kForms;
}

}  // namespace

void add_form(const OtherForm& form) { forms().add(form); }

std::vector<OtherForm> other_forms() { return forms().all(); }

}  // namespace berth::graph
