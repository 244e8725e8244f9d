// The workload on C++ LevelDB; see workload.h.

#include <leveldb/cache.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>
#include <leveldb/table_builder.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "workload.h"

namespace leveldb {

// Table::InternalGet is the only lookup that asks the filter. It is private to a friend of this name,
// which the library keeps to itself.
class TableCache {
 public:
  static Status Get(Table* table, const ReadOptions& options, const Slice& key, void* arg,
                    void (*found)(void*, const Slice&, const Slice&)) {
    return table->InternalGet(options, key, arg, found);
  }
};

}  // namespace leveldb

namespace peers {
namespace {

void Check(const leveldb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// The cache that leveldb::DB makes if its user gives it none.
constexpr size_t kDefaultCacheBytes = size_t{8} << 20;

// LevelDB's defaults, except for a filter, `compression`, and in the tuned opening a cache that holds the
// whole table.
class Settings {
 public:
  explicit Settings(const Command& command)
      : filter_(leveldb::NewBloomFilterPolicy(kBloomBits)),
        cache_(leveldb::NewLRUCache(command.opening == "tuned" ? kCacheBytes
                                                               : kDefaultCacheBytes)) {
    options.filter_policy = filter_.get();
    options.block_cache = cache_.get();
    options.compression =
        command.table == "snappy" ? leveldb::kSnappyCompression : leveldb::kNoCompression;
  }

  leveldb::Options options;

 private:
  const std::unique_ptr<const leveldb::FilterPolicy> filter_;
  const std::unique_ptr<leveldb::Cache> cache_;
};

std::unique_ptr<leveldb::RandomAccessFile> OpenFile(const std::string& path) {
  leveldb::RandomAccessFile* file = nullptr;
  Check(leveldb::Env::Default()->NewRandomAccessFile(path, &file));
  return std::unique_ptr<leveldb::RandomAccessFile>(file);
}

// A table through LevelDB's own file, which maps it into memory if `Env` has maps left.
class FileTable {
 public:
  explicit FileTable(const Command& command) : settings_(command) {
    const std::string path = command.Path(command.table + ".ldb");
    file_ = OpenFile(path);
    uint64_t size = 0;
    Check(leveldb::Env::Default()->GetFileSize(path, &size));
    leveldb::Table* table = nullptr;
    Check(leveldb::Table::Open(settings_.options, file_.get(), size, &table));
    table_.reset(table);
  }

  leveldb::Table* get() const { return table_.get(); }

 private:
  const Settings settings_;
  std::unique_ptr<leveldb::RandomAccessFile> file_;
  std::unique_ptr<leveldb::Table> table_;
};

// Makes `Env` use pread for all further files. It maps the first thousand only; its setting for that is
// for LevelDB's own tests, and not in the library.
class NoMaps {
 public:
  explicit NoMaps(const Command& command) {
    const std::string path = command.Path("values");
    while (files_.size() < kMost) files_.push_back(OpenFile(path));
  }

 private:
  static constexpr size_t kMost = 1000;
  std::vector<std::unique_ptr<leveldb::RandomAccessFile>> files_;
};

// Fails if LevelDB reads files in another way than the opening says.
void CheckMapping(const Command& command) {
  const FileTable table(command);
  std::ifstream file("/proc/self/maps");
  std::stringstream maps;
  maps << file.rdbuf();
  const bool mapped = maps.str().find("/" + command.table + ".ldb") != std::string::npos;
  if (mapped == (command.opening == "pread")) {
    throw std::runtime_error(mapped ? "LevelDB maps the file" : "LevelDB does not map the file");
  }
}

// Bytes in memory, as a file to read.
class MemorySource : public leveldb::RandomAccessFile {
 public:
  explicit MemorySource(const std::string& bytes) : bytes_(bytes) {}

  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result, char*) const override {
    *result = leveldb::Slice(bytes_.data() + offset, n);
    return leveldb::Status::OK();
  }

 private:
  const std::string& bytes_;
};

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

// What InternalGet lands on is the first entry at or after the key: the caller compares.
struct Lookup {
  const char* key;
  Answers* answers;

  static void Found(void* arg, const leveldb::Slice& key, const leveldb::Slice& value) {
    auto* self = static_cast<Lookup*>(arg);
    if (key == leveldb::Slice(self->key, kKeyLen)) self->answers->Value(value.data());
  }
};

void GetRange(leveldb::Table* table, const Keys& probes, size_t first, size_t last,
              Answers* answers) {
  const leveldb::ReadOptions options;
  for (size_t i = first; i < last; i++) {
    Lookup lookup{probes[i], answers};
    Check(leveldb::TableCache::Get(table, options, leveldb::Slice(probes[i], kKeyLen), &lookup,
                                   &Lookup::Found));
  }
}

// All probes, from number `first` on and around.
Answers Get(leveldb::Table* table, const Keys& probes, size_t first) {
  Answers answers;
  GetRange(table, probes, first, probes.size(), &answers);
  GetRange(table, probes, 0, first, &answers);
  return answers;
}

// The first key after an opening, which is present.
void GetFirst(leveldb::Table* table, const Keys& probes, size_t first) {
  Answers answers;
  GetRange(table, probes, first, first + 1, &answers);
  if (answers.count != 1) throw std::runtime_error("the first key is absent");
}

Answers ScanFirst(leveldb::Table* table, size_t limit) {
  const std::unique_ptr<leveldb::Iterator> it(table->NewIterator(leveldb::ReadOptions()));
  Answers answers;
  it->SeekToFirst();
  for (size_t i = 0; i < limit && it->Valid(); i++, it->Next()) {
    answers.Entry(it->key().data(), it->value().data());
  }
  Check(it->status());
  return answers;
}

Answers Scan(leveldb::Table* table, bool forward) {
  const std::unique_ptr<leveldb::Iterator> it(table->NewIterator(leveldb::ReadOptions()));
  const Answers answers = ScanAll(it.get(), forward);
  Check(it->status());
  return answers;
}

Answers Seek(leveldb::Table* table, const Keys& starts) {
  const std::unique_ptr<leveldb::Iterator> it(table->NewIterator(leveldb::ReadOptions()));
  const Answers answers = SeekEach<leveldb::Slice>(it.get(), starts);
  Check(it->status());
  return answers;
}

Answers Build(const Settings& settings, leveldb::WritableFile* file, const Keys& keys,
              const Values& values) {
  leveldb::TableBuilder builder(settings.options, file);
  const char* value = values.First();
  for (size_t i = 0; i < keys.size(); i++, value = values.After(value)) {
    builder.Add(leveldb::Slice(keys[i], kKeyLen), leveldb::Slice(value, kValueLen));
  }
  Check(builder.Finish());
  Check(file->Close());
  Answers answers;
  answers.count = builder.NumEntries();
  return answers;
}

void BuildInMemory(const Command& command, std::string* bytes) {
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  const Settings settings(command);
  TimeSecondPass(keys.size(), [&] {
    bytes->clear();  // the memory stays
    MemoryFile file(bytes);
    return Build(settings, &file, keys, values);
  });
}

void BuildFile(const Command& command) {
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  const Settings settings(command);
  const std::string path = command.Path("built-by-leveldb");
  leveldb::Env* env = leveldb::Env::Default();
  TimeSecondPass(keys.size(), [&] {
    leveldb::WritableFile* file = nullptr;
    Check(env->NewWritableFile(path, &file));
    const std::unique_ptr<leveldb::WritableFile> owner(file);
    return Build(settings, file, keys, values);
  });
  Check(env->RemoveFile(path));
}

// Paranoid, so that LevelDB checks index, metaindex and filter, as leveltable does.
void Open(const Command& command) {
  const std::string bytes = ReadFile(command.Path(command.table + ".ldb"));
  Settings settings(command);
  settings.options.paranoid_checks = true;
  MemorySource source(bytes);
  using Opened = std::unique_ptr<leveldb::Table>;
  const auto open = [&](Opened* opened) {
    leveldb::Table* table = nullptr;
    Check(leveldb::Table::Open(settings.options, &source, bytes.size(), &table));
    opened->reset(table);
  };
  if (command.work == "memory") return MeasureMemory<Opened>(open);
  TimeOpen<Opened>(open);
}

// LevelDB writes the very bytes that leveltable wrote (uncompressed; Snappy libraries differ).
void Prepare(const Command& command) {
  std::string bytes;
  BuildInMemory(command, &bytes);
  if (bytes != ReadFile(command.Path(command.table + ".ldb"))) {
    throw std::runtime_error("LevelDB and leveltable wrote different tables");
  }
}

// As a user opens a table. The counterpart of src/store.rs.
void OpenAsUsersDo(const Command& command) {
  using Opened = std::unique_ptr<FileTable>;
  const auto open = [&](Opened* opened) { opened->reset(new FileTable(command)); };
  if (command.work == "open") return TimeOpen<Opened>(open);
  const Keys probes(command.Path(command.probes));
  if (command.work == "first") {
    size_t next = 0;
    return TimeOpen<Opened>([&](Opened* opened) {
      open(opened);
      GetFirst(opened->get()->get(), probes, next++ % probes.size());
    });
  }
  MeasureMemory<Opened>([&](Opened* opened) {
    open(opened);
    Get(opened->get()->get(), probes, 0);
  });
}

// Each pass starts with none of the file in the page cache, opens it, and reads each block at most once.
void RunCold(const Command& command) {
  const std::string path = command.Path(command.table + ".ldb");
  const std::string work = command.work.substr(std::strlen("cold-"));
  Cold cold;
  Answers answers;
  if (work == "forward") {
    const size_t limit = std::stoul(command.probes);
    DropPages(path);
    const FileTable table(command);
    cold.Time(limit, [&] { answers = ScanFirst(table.get(), limit); });
    return cold.Report(answers);
  }
  const Keys probes(command.Path(command.probes));
  const size_t len = work == "get-few" ? kFew : kBatch;
  for (size_t first = 0; first < probes.size(); first += len) {
    const size_t last = std::min(first + len, probes.size());
    DropPages(path);
    std::unique_ptr<FileTable> table;
    const auto open = [&] { table.reset(new FileTable(command)); };
    if (work == "open") {
      cold.Time(1, open);
    } else if (work == "first") {
      cold.Time(1, [&] {
        open();
        GetFirst(table->get(), probes, first);
      });
    } else if (work == "get" || work == "get-few") {
      open();
      cold.Time(last - first, [&] { GetRange(table->get(), probes, first, last, &answers); });
    } else {
      throw std::runtime_error("unknown work " + command.work);
    }
  }
  cold.Report(answers);
}

void Run(const Command& command) {
  const std::string& work = command.work;
  if (work == "prepare") return Prepare(command);
  std::unique_ptr<NoMaps> no_maps;
  if (command.opening == "pread") no_maps.reset(new NoMaps(command));
  if (command.opening != "tuned") CheckMapping(command);
  if (work.rfind("cold-", 0) == 0) return RunCold(command);
  if (work == "held" || work == "first") return OpenAsUsersDo(command);
  if (work == "open" && command.opening != "tuned") return OpenAsUsersDo(command);
  if (work == "open" || work == "memory") return Open(command);
  if (work == "build-file") return BuildFile(command);
  if (work == "build-memory") {
    std::string bytes;
    return BuildInMemory(command, &bytes);
  }
  const FileTable table(command);
  const Keys probes(command.Path(command.probes));
  if (work == "get" || work == "get-many") {
    TimeSecondPass(probes.size(), [&] { return Get(table.get(), probes, 0); });
  } else if (work == "threads") {
    TimeThreads(probes.size(), [&](size_t first) { return Get(table.get(), probes, first); });
  } else if (work == "forward" || work == "backward") {
    const size_t entries = Keys(command.Path("keys")).size();
    TimeSecondPass(entries, [&] { return Scan(table.get(), work == "forward"); });
  } else if (work == "seek") {
    TimeSecondPass(probes.size(), [&] { return Seek(table.get(), probes); });
  } else {
    throw std::runtime_error("unknown work " + work);
  }
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) { return peers::Main(argc, argv, peers::Run); }
