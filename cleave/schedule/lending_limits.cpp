#include "cleave/schedule/lending_limits.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cleave/schedule/simulate_lending.h"

namespace cleave {
namespace {

constexpr unsigned kDisturbances = 16;

// What a rank needs most differs with the disturbance: of all those needs, in
// their order, the limit is that in the middle, if all are as fast with it and
// nobody is stuck; otherwise one further up.
constexpr double kSharesToTry[] = {0.5, 0.75, 1.0};

// As fast: all together, and each disturbance for itself.
constexpr double kAllAsFast = 1.003;
constexpr double kEachAsFast = 1.02;

// A rank that needs much less than its limit at other times is then allowed so
// many hundredths more than that, on the same conditions.
constexpr int kMoreThanLeast = 10;

// What is allowed beside that is this share: for what steps on paper lack.
constexpr int kSlackShare = 100;

// The same steps, undisturbed and disturbed in many ways.
struct ManySteps {
  std::vector<Seconds> periods;
  std::vector<std::vector<Bytes>> needs;  // by rank, rising
};

ManySteps run_all(const std::vector<SharedRow>& rows,
                  const ScheduleCosts& costs) {
  ManySteps all{.needs = std::vector<std::vector<Bytes>>(rows.size())};
  for (unsigned number = 0; number <= kDisturbances; ++number) {
    const LentSteps steps =
        number == 0 ? simulate_lent_steps(rows, costs)
                    : simulate_lent_steps(rows, costs, Disturbance{number});
    all.periods.push_back(steps.period);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      all.needs[rank].push_back(steps.most[rank]);
    }
  }
  for (std::vector<Bytes>& of_rank : all.needs) {
    std::ranges::sort(of_rank);
  }
  return all;
}

Seconds sum_of(const std::vector<Seconds>& times) {
  Seconds sum;
  for (const Seconds time : times) {
    sum += time;
  }
  return sum;
}

class LimitSearch {
 public:
  LimitSearch(const std::vector<SharedRow>& rows,
              const ScheduleCosts& costs,
              const std::vector<Bytes>& beside)
      : rows_(rows),
        widest_(limits()),
        costs_(costs),
        beside_(beside),
        fastest_(run_all(rows, costs)) {}

  std::vector<Bytes> find() {
    ManySteps steps = fastest_;
    for (const double share : kSharesToTry) {
      limit_to(share);
      steps = run_all(rows_, costs_);
      if (is_good(steps)) {
        break;
      }
    }
    if (!is_good(steps)) {
      return widest_;
    }
    for (std::size_t rank = rows_.size(); rank-- > 0;) {
      lower(rank, steps.needs[rank].front());
    }
    add_slack();
    return limits();
  }

 private:
  std::vector<Bytes> limits() const {
    std::vector<Bytes> limits;
    limits.reserve(rows_.size());
    for (const SharedRow& row : rows_) {
      limits.push_back(row.limit);
    }
    return limits;
  }

  void limit_to(double share) {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      const std::vector<Bytes>& needs = fastest_.needs[rank];
      const auto place = static_cast<std::size_t>(
          share * static_cast<double>(needs.size() - 1));
      rows_[rank].limit = std::min(needs[place], widest_[rank]);
    }
  }

  bool is_good(const ManySteps& steps) const {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      if (steps.needs[rank].back() > rows_[rank].limit) {
        return false;
      }
    }
    for (std::size_t i = 0; i < steps.periods.size(); ++i) {
      if (steps.periods[i] > kEachAsFast * fastest_.periods[i]) {
        return false;
      }
    }
    return sum_of(steps.periods) <= kAllAsFast * sum_of(fastest_.periods);
  }

  // The rank's limit, to little more than the least that it needed.
  void lower(std::size_t rank, Bytes least) {
    const Bytes all = least + beside_[rank];
    const Bytes lower = least + Bytes{all.value * kMoreThanLeast / 100};
    const Bytes before = rows_[rank].limit;
    if (lower < before) {
      rows_[rank].limit = lower;
      if (!is_good(run_all(rows_, costs_))) {
        rows_[rank].limit = before;
      }
    }
  }

  void add_slack() {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      Bytes& limit = rows_[rank].limit;
      const Bytes all = limit + beside_[rank];
      limit = std::min(limit + Bytes{all.value / kSlackShare}, widest_[rank]);
    }
  }

  std::vector<SharedRow> rows_;
  std::vector<Bytes> widest_;
  const ScheduleCosts& costs_;
  const std::vector<Bytes>& beside_;
  ManySteps fastest_;
};

}  // namespace

std::vector<Bytes> lending_limits(const std::vector<SharedRow>& rows,
                                  const ScheduleCosts& costs,
                                  const std::vector<Bytes>& beside) {
  return LimitSearch(rows, costs, beside).find();
}

}  // namespace cleave
