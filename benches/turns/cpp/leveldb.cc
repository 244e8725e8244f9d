// The work of some rows on C++ LevelDB, in a process of its own; see src/side.rs.
//
//   leveldb get PROBES KEYS PASSES TABLE..     keys of the table, by a table with LevelDB's defaults
//   leveldb build KEYS VALUES PASSES CODEC     in memory

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

// Runs `pass` so many times, and reports the time of each of `operations`.
template <typename Pass>
void Time(size_t passes, double operations, Pass pass) {
  Answers answers;
  const double start = peers::ProcessorTime();
  for (size_t i = 0; i < passes; i++) answers = pass();
  const double took = peers::ProcessorTime() - start;
  std::printf("%.3f nan %llu %llu\n", took / static_cast<double>(passes) / operations,
              static_cast<unsigned long long>(answers.checksum),
              static_cast<unsigned long long>(answers.count));
}

void Get(const std::string& path, size_t keys, size_t passes,
         const std::vector<std::string>& tables) {
  constexpr size_t kProbeLen = 1 + kKeyLen;  // the number of the table comes first
  const std::string probes = peers::ReadFile(path);
  const Settings settings(false);
  std::vector<std::unique_ptr<OpenTable>> open;
  for (const auto& table : tables) open.emplace_back(new OpenTable(settings, table));
  const auto pass = [&](size_t first, size_t last) {
    Answers answers;
    for (const char* probe = &probes[first * kProbeLen]; probe != &probes[last * kProbeLen];
         probe += kProbeLen) {
      Lookup lookup{probe + 1, &answers};
      leveldb::Table* table = open[static_cast<uint8_t>(*probe)]->table.get();
      Check(leveldb::TableCache::Get(table, leveldb::Slice(lookup.key, kKeyLen), &lookup,
                                     &Lookup::Found));
    }
    return answers;
  };
  pass(keys, probes.size() / kProbeLen);
  Time(passes, static_cast<double>(keys), [&] { return pass(0, keys); });
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

void Build(const std::string& keys_path, const std::string& values_path, size_t passes,
           bool snappy) {
  const peers::Keys keys(keys_path);
  const peers::Values values(values_path);
  const Settings settings(snappy);
  std::string bytes;
  const auto pass = [&] {
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
  pass();
  Time(passes, static_cast<double>(keys.size()), pass);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.at(0) == "get") {
    Get(words.at(1), std::stoul(words.at(2)), std::stoul(words.at(3)),
        {words.begin() + 4, words.end()});
  } else {
    Build(words.at(1), words.at(2), std::stoul(words.at(3)), words.at(4) == "snappy");
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
  return 1;
}
