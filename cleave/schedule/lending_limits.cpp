#include "cleave/schedule/lending_limits.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cleave/schedule/simulate_lending.h"

namespace cleave {
namespace {

// Of one search: actions done on paper, in all.
constexpr std::int64_t kEffort = 800'000;

// Ways in which steps are disturbed, at most and at least.
constexpr int kDisturbances = 16;
constexpr int kFewDisturbances = 3;

// Further ones, in which somebody may be stuck after all.
constexpr int kLaterDisturbances = 48;

// What a rank needs most differs with the disturbance: of all those needs, in
// their order, the limit is the least, if all are as fast with it and nobody is
// stuck; otherwise one further up.
constexpr double kSharesToTry[] = {0.0, 0.25, 0.5, 0.75, 1.0};

// What memory may cost: so much of all steps together, and perhaps of the
// undisturbed one. Somewhat more where that saves a rank this share of it.
struct Price {
  double of_all;
  bool of_undisturbed;
};
constexpr Price kUsual{1.01, true};
constexpr Price kForMuch{1.03, false};
constexpr double kMostOfEach = 1.05;
constexpr int kMuchShare = 20;

// A rank that needs much less than its limit at other times is then allowed so
// many hundredths more than that, on the same conditions.
constexpr int kMoreThanLeast = 5;

// Then limits are lowered by this share again and again, on the same
// conditions.
constexpr int kTightenShare = 40;

// What is allowed beside that is this share: for what steps on paper lack.
constexpr int kSlackShare = 100;

// The same steps, undisturbed and disturbed in many ways.
struct ManySteps {
  std::vector<Seconds> periods;
  std::vector<std::vector<Bytes>> needs;  // by rank, rising
};

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
              const std::vector<Bytes>& in_order,
              const std::vector<Bytes>& beside)
      : rows_(rows),
        widest_(limits()),
        costs_(costs),
        in_order_(in_order),
        beside_(beside),
        left_(static_cast<int>(kEffort / actions_in_lent_steps(rows))),
        later_(std::min(left_ / 4, kLaterDisturbances)),
        disturbances_(static_cast<unsigned>(
            std::clamp(left_ / 16, kFewDisturbances, kDisturbances))),
        fastest_(run_all()) {}

  std::vector<Bytes> find() {
    ManySteps steps = fastest_;
    for (const double share : kSharesToTry) {
      limit_to(share);
      steps = run_all();
      if (is_good(steps) || !may_go_on()) {
        break;
      }
    }
    if (!is_good(steps)) {
      return widest_;
    }
    lower_to_least(steps);
    tighten();
    add_slack();
    raise_where_stuck();
    return limits();
  }

 private:
  LentSteps run(std::optional<Disturbance> disturbance = std::nullopt) {
    --left_;
    return simulate_lent_steps(rows_, costs_, disturbance);
  }

  ManySteps run_all() {
    ManySteps all{.needs = std::vector<std::vector<Bytes>>(rows_.size())};
    for (unsigned number = 0; number <= disturbances_; ++number) {
      const LentSteps steps = number == 0 ? run() : run(Disturbance{number});
      all.periods.push_back(steps.period);
      for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
        all.needs[rank].push_back(steps.most[rank]);
      }
    }
    for (std::vector<Bytes>& of_rank : all.needs) {
      std::ranges::sort(of_rank);
    }
    return all;
  }

  bool may_go_on() const { return left_ > later_; }

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

  bool is_good(const ManySteps& steps, Price most = kUsual) const {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      if (steps.needs[rank].back() > rows_[rank].limit) {
        return false;
      }
    }
    for (std::size_t i = 0; i < steps.periods.size(); ++i) {
      if (steps.periods[i] > kMostOfEach * fastest_.periods[i]) {
        return false;
      }
    }
    return (most.of_undisturbed || steps.periods[0] <= fastest_.periods[0]) &&
           sum_of(steps.periods) <= most.of_all * sum_of(fastest_.periods);
  }

  // Lowers the limits of the ranks from `first` to before `end` to these: all
  // of them, or each half that can. Returns whether any is lower now.
  bool lower_to(const std::vector<Bytes>& wanted,
                std::size_t first,
                std::size_t end,
                Price most = kUsual) {
    const std::vector<Bytes> before = limits();
    for (std::size_t rank = first; rank < end; ++rank) {
      rows_[rank].limit = std::min(before[rank], wanted[rank]);
    }
    if (limits() == before) {
      return false;
    }
    if (may_go_on() && is_good(run_all(), most)) {
      return true;
    }
    for (std::size_t rank = first; rank < end; ++rank) {
      rows_[rank].limit = before[rank];
    }
    if (end - first == 1) {
      return false;
    }
    const std::size_t middle = first + (end - first) / 2;
    const bool later = lower_to(wanted, middle, end, most);
    return lower_to(wanted, first, middle, most) || later;
  }

  // Little more than the least that ranks needed in these steps.
  void lower_to_least(const ManySteps& steps) {
    std::vector<Bytes> wanted;
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      const Bytes least = steps.needs[rank].front();
      const Bytes all = least + beside_[rank];
      wanted.push_back(least + Bytes{all.value * kMoreThanLeast / 100});
    }
    lower_to(wanted, 0, rows_.size());
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      const Bytes limit = rows_[rank].limit;
      const Bytes all = limit + beside_[rank];
      const bool is_much = limit - wanted[rank] > Bytes{all.value / kMuchShare};
      wanted[rank] = is_much ? wanted[rank] : limit;
    }
    lower_to(wanted, 0, rows_.size(), kForMuch);
  }

  // Somewhat less than now, as long as that costs nothing, and not less than in
  // order: so that nobody is held up who does only his own.
  void tighten() {
    for (bool lower = true; lower && may_go_on();) {
      std::vector<Bytes> wanted;
      for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
        const Bytes limit = rows_[rank].limit;
        const Bytes all = limit + beside_[rank];
        wanted.push_back(std::max(in_order_[rank],
                                  limit - Bytes{all.value / kTightenShare}));
      }
      lower = lower_to(wanted, 0, rows_.size());
    }
  }

  void add_slack() {
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
      Bytes& limit = rows_[rank].limit;
      const Bytes all = limit + beside_[rank];
      limit = std::min(limit + Bytes{all.value / kSlackShare}, widest_[rank]);
    }
  }

  void raise_where_stuck() {
    for (int later = 1; later <= later_; ++later) {
      const LentSteps steps =
          run(Disturbance{disturbances_ + static_cast<unsigned>(later)});
      for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
        Bytes& limit = rows_[rank].limit;
        limit = std::min(std::max(limit, steps.most[rank]), widest_[rank]);
      }
    }
  }

  std::vector<SharedRow> rows_;
  std::vector<Bytes> widest_;
  const ScheduleCosts& costs_;
  const std::vector<Bytes>& in_order_;
  const std::vector<Bytes>& beside_;
  int left_;   // runs that the effort allows for
  int later_;  // of those, with further disturbances
  unsigned disturbances_;
  ManySteps fastest_;
};

}  // namespace

std::vector<Bytes> lending_limits(const std::vector<SharedRow>& rows,
                                  const ScheduleCosts& costs,
                                  const std::vector<Bytes>& in_order,
                                  const std::vector<Bytes>& beside) {
  return LimitSearch(rows, costs, in_order, beside).find();
}

}  // namespace cleave
