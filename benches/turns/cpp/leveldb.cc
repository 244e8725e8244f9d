// The work of some rows on C++ LevelDB, in a process of its own; see src/side.rs.
//
//   leveldb get|seek|scan CODEC LEN PARTS WARM PROBES TABLE..    in tables that are opened by default
//   leveldb build CODEC KEYS VALUES                         in memory

#include <leveldb/cache.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/options.h>
#include <leveldb/table.h>
#include <leveldb/table_builder.h>

#include <memory>
#include <vector>

#include "../../peers/cpp/workload.h"

namespace leveldb {

// Table::InternalGet is the only lookup that asks the filter. It is private to a friend of this name,
// which the library keeps to itself.
class TableCache {
 public:
  static Status Get(Table* table, const Slice& key, void* arg,
                    void (*found)(void*, const Slice&, const Slice&)) {
    return table->InternalGet(ReadOptions(), key, arg, found);
  }
};

}  // namespace leveldb

namespace {

using peers::Answers;
using peers::kKeyLen;

void Check(const leveldb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// LevelDB's defaults, and a filter.
class Settings {
 public:
  explicit Settings(bool snappy)
      : filter_(leveldb::NewBloomFilterPolicy(peers::kBloomBits)),
        cache_(leveldb::NewLRUCache(size_t{8} << 20)) {
    options.filter_policy = filter_.get();
    options.block_cache = cache_.get();
    options.compression = snappy ? leveldb::kSnappyCompression : leveldb::kNoCompression;
  }

  leveldb::Options options;

 private:
  const std::unique_ptr<const leveldb::FilterPolicy> filter_;
  const std::unique_ptr<leveldb::Cache> cache_;
};

struct OpenTable {
  OpenTable(const Settings& settings, const std::string& path) {
    leveldb::RandomAccessFile* opened = nullptr;
    Check(leveldb::Env::Default()->NewRandomAccessFile(path, &opened));
    file.reset(opened);
    uint64_t size = 0;
    Check(leveldb::Env::Default()->GetFileSize(path, &size));
    leveldb::Table* read = nullptr;
    Check(leveldb::Table::Open(settings.options, opened, size, &read));
    table.reset(read);
  }

  std::unique_ptr<leveldb::RandomAccessFile> file;
  std::unique_ptr<leveldb::Table> table;
};

// What InternalGet lands on is the first entry at or after the key: the caller compares.
struct Lookup {
  const char* key;
  Answers* answers;

  static void Found(void* arg, const leveldb::Slice& key, const leveldb::Slice& value) {
    auto* self = static_cast<Lookup*>(arg);
    if (key == leveldb::Slice(self->key, kKeyLen)) self->answers->Value(value.data());
  }
};

// Says that everything is ready. Then, for each number on a line, does that part of the work, and says how it
// went: nanoseconds, none of what was done beside it, and what was found.
template <typename Part>
void Serve(Part part) {
  std::printf("ready\n");
  std::fflush(stdout);
  size_t number;
  while (std::scanf("%zu", &number) == 1) {
    double took = 0;
    const Answers answers = part(number, &took);
    std::printf("%.0f nan %llu %llu\n", took, static_cast<unsigned long long>(answers.checksum),
                static_cast<unsigned long long>(answers.count));
    std::fflush(stdout);
  }
}

template <typename Work>
Answers Time(double* took, Work work) {
  const double start = peers::ProcessorTime();
  const Answers answers = work();
  *took = peers::ProcessorTime() - start;
  return answers;
}

constexpr size_t kSteps = 10;
constexpr size_t kProbeLen = 1 + kKeyLen;  // the number of the table comes first
// As many keys as src/side.rs looks up after another process had its turn.
constexpr size_t kAfterATurn = 500;

Answers Get(const std::vector<std::unique_ptr<OpenTable>>& tables, const char* first,
            const char* last) {
  Answers answers;
  for (const char* probe = first; probe != last; probe += kProbeLen) {
    Lookup lookup{probe + 1, &answers};
    leveldb::Table* table = tables[static_cast<uint8_t>(*probe)]->table.get();
    Check(leveldb::TableCache::Get(table, leveldb::Slice(lookup.key, kKeyLen), &lookup,
                                   &Lookup::Found));
  }
  return answers;
}

std::unique_ptr<leveldb::Iterator> Iterate(const OpenTable& table) {
  return std::unique_ptr<leveldb::Iterator>(table.table->NewIterator(leveldb::ReadOptions()));
}

Answers Seek(const OpenTable& table, const char* first, const char* last) {
  const auto it = Iterate(table);
  Answers answers;
  for (const char* probe = first; probe != last; probe += kProbeLen) {
    it->Seek(leveldb::Slice(probe + 1, kKeyLen));
    for (size_t step = 0; step < kSteps && it->Valid(); step++, it->Next()) {
      answers.Entry(it->key().data(), it->value().data());
    }
  }
  Check(it->status());
  return answers;
}

void Scan(const OpenTable& table) {
  const auto scan = [&] {
    const auto it = Iterate(table);
    const Answers answers = peers::ScanAll(it.get(), true);
    Check(it->status());
    return answers;
  };
  scan();
  Serve([&](size_t, double* took) { return Time(took, scan); });
}

void Read(const std::vector<std::string>& words) {
  const std::string& work = words.at(0);
  const Settings settings(words.at(1) == "snappy");
  std::vector<std::unique_ptr<OpenTable>> tables;
  for (size_t i = 6; i < words.size(); i++) tables.emplace_back(new OpenTable(settings, words[i]));
  if (work == "scan") return Scan(*tables.at(0));
  const std::string probes = peers::ReadFile(words.at(5));
  const size_t len = std::stoul(words.at(2)), parts = std::stoul(words.at(3));
  const auto look_up = [&](size_t first, size_t last) {
    const char* begin = &probes[first * kProbeLen];
    const char* end = &probes[last * kProbeLen];
    return work == "get" ? Get(tables, begin, end) : Seek(*tables.at(0), begin, end);
  };
  const size_t rest = len * parts;
  look_up(rest, rest + std::stoul(words.at(4)));
  Serve([&](size_t part, double* took) {
    look_up(rest, rest + kAfterATurn);
    return Time(took, [&] { return look_up(part * len, (part + 1) * len); });
  });
}

// A string as a file to write.
class MemoryFile : public leveldb::WritableFile {
 public:
  explicit MemoryFile(std::string* bytes) : bytes_(bytes) {}

  leveldb::Status Append(const leveldb::Slice& data) override {
    bytes_->append(data.data(), data.size());
    return leveldb::Status::OK();
  }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }

 private:
  std::string* const bytes_;
};

void Build(const std::vector<std::string>& words) {
  const Settings settings(words.at(1) == "snappy");
  const peers::Keys keys(words.at(2));
  const peers::Values values(words.at(3));
  std::string bytes;
  const auto build = [&] {
    bytes.clear();  // the memory stays
    MemoryFile file(&bytes);
    leveldb::TableBuilder builder(settings.options, &file);
    const char* value = values.First();
    for (size_t i = 0; i < keys.size(); i++, value = values.After(value)) {
      builder.Add(leveldb::Slice(keys[i], kKeyLen), leveldb::Slice(value, peers::kValueLen));
    }
    Check(builder.Finish());
    Answers answers;
    answers.count = builder.NumEntries();
    return answers;
  };
  build();
  Serve([&](size_t, double* took) { return Time(took, build); });
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  words.at(0) == "build" ? Build(words) : Read(words);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
  return 1;
}
