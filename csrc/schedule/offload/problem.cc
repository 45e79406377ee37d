#include "csrc/schedule/offload/problem.h"

#include "csrc/core/check.h"

#include <algorithm>

namespace berth::schedule::offload {

void Problem::derive() {
  BERTH_CHECK(operators.size() <= kMostOperators && values.size() <= kMostValues, kInput,
              "a step of {} operators and {} values, the most are {} and {}", operators.size(),
              values.size(), kMostOperators, kMostValues);
  BERTH_CHECK(border <= operators.size(), kInput,
              "the backward part begins at operator {}, there are {}", border, operators.size());
  std::uint64_t ns = 0;
  Bytes bytes = constant;
  const auto add = [&bytes](Bytes more, const char* what, std::size_t number) {
    const auto sum = checked_add(bytes, more);
    BERTH_CHECK(sum, kInput, "with the {} bytes of {} {} all sizes together are above {}", more,
                what, number, kMaxBytes);
    bytes = *sum;
  };
  for (Index op = 0; op < operators.size(); ++op) {
    OperatorOf& one = operators[op];
    BERTH_CHECK(one.ns <= kMaxNs && ns <= kMaxNs - one.ns, kInput,
                "with the {} ns of operator {} all times together are above {}", one.ns, op,
                kMaxNs);
    ns += one.ns;
    add(one.workspace, "operator", op);
    one.makes.clear();
    one.reads.clear();
  }
  for (Value v = 0; v < values.size(); ++v) {
    ValueOf& value = values[v];
    add(value.bytes, "value", v);
    std::sort(value.readers.begin(), value.readers.end());
    value.readers.erase(std::unique(value.readers.begin(), value.readers.end()),
                        value.readers.end());
    const auto check_index = [&](Index op) {
      BERTH_CHECK(op < operators.size(), kInput, "value {} names operator {}, there are {}", v, op,
                  operators.size());
    };
    if (value.maker != kNobody) {
      check_index(value.maker);
      operators[value.maker].makes.push_back(v);
    }
    for (const Index reader : value.readers) {
      check_index(reader);
      BERTH_CHECK(value.maker == kNobody || value.maker < reader, kInput,
                  "operator {} uses value {} before operator {} makes it", reader, v, value.maker);
      operators[reader].reads.push_back(v);
    }
    BERTH_CHECK(value.written == kNobody ||
                    std::binary_search(value.readers.begin(), value.readers.end(), value.written),
                kInput, "operator {} writes value {} in place and is none of its readers",
                value.written, v);
  }
}

void check(const Machine& machine) {
  for (const Machine::Rate& rate : {machine.out, machine.in})
    BERTH_CHECK(rate.loaded >= 1 && rate.loaded <= rate.alone && rate.alone <= kMostRate, kUsage,
                "an engine copies {} bytes per second alone and {} beside the other one, legal are "
                "1 to {}, and no more beside the other one than alone",
                rate.alone, rate.loaded, kMostRate);
}

std::uint64_t copy_ns(Bytes bytes, std::uint64_t rate) noexcept {
  __extension__ using Wide = unsigned __int128;
  constexpr std::uint64_t kSecond = 1'000'000'000;
  if (bytes < (Bytes{1} << 33)) return (bytes * kSecond + rate - 1) / rate;
  const Wide ns = (Wide{bytes} * kSecond + rate - 1) / rate;
  return static_cast<std::uint64_t>(std::min<Wide>(ns, std::uint64_t{1} << 62));
}

}  // namespace berth::schedule::offload
