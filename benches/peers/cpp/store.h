// The work on a table or database as its users open it, warm and cold. The counterpart of src/store.rs.

#ifndef LEVELTABLE_BENCHES_PEERS_STORE_H_
#define LEVELTABLE_BENCHES_PEERS_STORE_H_

#include <algorithm>
#include <memory>
#include <string>

#include "workload.h"

namespace peers {

// The cache of every library that has one, where tables are opened as users do.
constexpr size_t kUsersCacheBytes = size_t{32} << 20;

// The first key after an opening, which is present.
template <typename Store>
void GetFirst(const Store& store, const Keys& probes, size_t first) {
  Answers answers;
  store.Get(probes, first, first + 1, &answers);
  if (answers.count != 1) throw std::runtime_error("the first key is absent");
}

// Each pass starts with none of the files in the page cache, opens them, and reads each block at most once.
template <typename Store, typename Open>
void RunCold(const Command& command, const std::string& path, Open open) {
  const std::string work = command.work.substr(std::strlen("cold-"));
  Cold cold;
  Answers answers;
  std::unique_ptr<Store> store;
  if (work == "forward") {
    const size_t limit = std::stoul(command.probes);
    DropPages(path);
    open(&store);
    cold.Time(limit, [&] { answers = store->Scan(true, limit); });
    return cold.Report(answers);
  }
  const Keys probes(command.Path(command.probes));
  const size_t len = work == "get-few" ? kFew : kBatch;
  for (size_t first = 0; first < probes.size(); first += len) {
    const size_t last = std::min(first + len, probes.size());
    store.reset();
    DropPages(path);
    if (work == "open") {
      cold.Time(1, [&] { open(&store); });
    } else if (work == "first") {
      cold.Time(1, [&] {
        open(&store);
        GetFirst(*store, probes, first);
      });
    } else if (work == "get" || work == "get-few") {
      open(&store);
      cold.Time(last - first, [&] { store->Get(probes, first, last, &answers); });
    } else if (work == "get-many") {
      open(&store);
      cold.Time(last - first, [&] { store->GetMany(probes, first, last, &answers); });
    } else {
      throw std::runtime_error("unknown work " + command.work);
    }
  }
  cold.Report(answers);
}

// Does one piece of work on what `Store(command)` opens at `path`.
template <typename Store>
void RunAsUsersDo(const Command& command, const std::string& path) {
  using Opened = std::unique_ptr<Store>;
  const std::string& work = command.work;
  const auto open = [&](Opened* opened) { opened->reset(new Store(command)); };
  if (work.rfind("cold-", 0) == 0) return RunCold<Store>(command, path, open);
  if (work == "open") return TimeOpen<Opened>(open);
  const Keys probes(command.Path(command.probes));
  if (work == "first") {
    size_t next = 0;
    return TimeOpen<Opened>([&](Opened* opened) {
      open(opened);
      GetFirst(**opened, probes, next++ % probes.size());
    });
  }
  const auto get = [&](const Store& store) {
    Answers answers;
    store.Get(probes, 0, probes.size(), &answers);
    return answers;
  };
  if (work == "held") {
    return MeasureMemory<Opened>([&](Opened* opened) {
      open(opened);
      get(**opened);
    });
  }
  const Store store(command);
  if (work == "get") {
    TimeSecondPass(probes.size(), [&] { return get(store); });
  } else if (work == "get-many") {
    TimeSecondPass(probes.size(), [&] {
      Answers answers;
      for (size_t first = 0; first < probes.size(); first += kBatch) {
        store.GetMany(probes, first, std::min(first + kBatch, probes.size()), &answers);
      }
      return answers;
    });
  } else if (work == "forward" || work == "backward") {
    // Here the keys are those of the table.
    TimeSecondPass(probes.size(), [&] { return store.Scan(work == "forward", probes.size()); });
  } else if (work == "seek") {
    TimeSecondPass(probes.size(), [&] { return store.Seek(probes); });
  } else {
    throw std::runtime_error("unknown work " + work);
  }
}

}  // namespace peers

#endif  // LEVELTABLE_BENCHES_PEERS_STORE_H_
