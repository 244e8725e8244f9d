// The workload on C++ LevelDB; see workload.h.

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>
#include <leveldb/table_builder.h>
#include <leveldb/write_batch.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <vector>

#include "store.h"
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

// LevelDB's defaults, except for a filter, `compression`, and the size of the cache, which in the tuned
// opening holds the whole table.
class Settings {
 public:
  explicit Settings(const Command& command)
      : filter_(leveldb::NewBloomFilterPolicy(kBloomBits)),
        cache_(leveldb::NewLRUCache(command.opening == "tuned" ? kCacheBytes : kUsersCacheBytes)) {
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

// Of a table or a database.
template <typename Source>
Answers Scan(Source* source, bool forward, size_t limit = SIZE_MAX) {
  const std::unique_ptr<leveldb::Iterator> it(source->NewIterator(leveldb::ReadOptions()));
  const Answers answers = ScanAll(it.get(), forward, limit);
  Check(it->status());
  return answers;
}

Answers Seek(leveldb::Table* table, const Keys& starts) {
  const std::unique_ptr<leveldb::Iterator> it(table->NewIterator(leveldb::ReadOptions()));
  const Answers answers = SeekEach<leveldb::Slice>(it.get(), starts);
  Check(it->status());
  return answers;
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

  void Get(const Keys& probes, size_t first, size_t last, Answers* answers) const {
    GetRange(get(), probes, first, last, answers);
  }
  void GetMany(const Keys&, size_t, size_t, Answers*) const {
    throw std::runtime_error("no such call");
  }
  Answers Scan(bool forward, size_t limit) const { return peers::Scan(get(), forward, limit); }
  Answers Seek(const Keys& starts) const { return peers::Seek(get(), starts); }

 private:
  const Settings settings_;
  std::unique_ptr<leveldb::RandomAccessFile> file_;
  std::unique_ptr<leveldb::Table> table_;
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

Answers Build(const Settings& settings, leveldb::WritableFile* file, const Keys& keys,
              const Values& values, bool sync = false) {
  leveldb::TableBuilder builder(settings.options, file);
  const char* value = values.First();
  for (size_t i = 0; i < keys.size(); i++, value = values.After(value)) {
    builder.Add(leveldb::Slice(keys[i], kKeyLen), leveldb::Slice(value, kValueLen));
  }
  Check(builder.Finish());
  if (sync) Check(file->Sync());
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

// As users build a table: synced, as LevelDB's own are.
void BuildSynced(const Command& command) {
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  const Settings settings(command);
  const std::string path = command.Path("built-by-leveldb");
  TimeWriting(keys.size(), path, [&] {
    leveldb::WritableFile* file = nullptr;
    Check(leveldb::Env::Default()->NewWritableFile(path, &file));
    const std::unique_ptr<leveldb::WritableFile> owner(file);
    Build(settings, file, keys, values, /*sync=*/true);
  });
}

// Databases. The counterpart of src/database.rs.

std::unique_ptr<leveldb::DB> OpenDatabase(const Settings& settings, const std::string& path) {
  leveldb::Options options = settings.options;
  options.create_if_missing = true;
  leveldb::DB* db = nullptr;
  Check(leveldb::DB::Open(options, path, &db));
  return std::unique_ptr<leveldb::DB>(db);
}

void CompactAll(leveldb::DB* db) { db->CompactRange(nullptr, nullptr); }

// Entries of a write batch.
constexpr size_t kWriteBatch = 1000;

// Puts or deletes entries, whose numbers are 0, `stride`, 2 * `stride` and so on, modulo their number.
template <typename Change>
void WriteBatches(leveldb::DB* db, size_t entries, size_t stride, Change change) {
  leveldb::WriteBatch batch;
  for (size_t n = 0, i = 0; n < entries; n++, i = (i + stride) % entries) {
    change(&batch, i);
    if ((n + 1) % kWriteBatch == 0 || n + 1 == entries) {
      Check(db->Write(leveldb::WriteOptions(), &batch));
      batch.Clear();
    }
  }
}

void PutAll(leveldb::DB* db, const Keys& keys, const Values& values, size_t stride) {
  WriteBatches(db, keys.size(), stride, [&](leveldb::WriteBatch* batch, size_t i) {
    batch->Put(leveldb::Slice(keys[i], kKeyLen), leveldb::Slice(values[i], kValueLen));
  });
}

// A database whose entries came in random order, and every second of which was then deleted. A copy of it
// has lost CURRENT and its MANIFEST.
void PrepareDatabases(const Command& command) {
  constexpr size_t kStride = 1'000'003;  // a prime
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  const Settings settings(command);
  const std::filesystem::path old = command.Path("old"), broken = command.Path("broken");
  std::filesystem::remove_all(old);
  std::filesystem::remove_all(broken);
  {
    const std::unique_ptr<leveldb::DB> db = OpenDatabase(settings, old);
    PutAll(db.get(), keys, values, kStride);
    WriteBatches(db.get(), keys.size(), kStride, [&](leveldb::WriteBatch* batch, size_t i) {
      if (i % 2 == 1) batch->Delete(leveldb::Slice(keys[i], kKeyLen));
    });
  }
  std::filesystem::copy(old, broken);
  std::filesystem::remove(broken / "CURRENT");
  for (const auto& entry : std::filesystem::directory_iterator(broken)) {
    const std::string name = entry.path().filename();
    if (name.rfind("MANIFEST-", 0) == 0) std::filesystem::remove(entry.path());
  }
  Report(0, Answers());
}

// Times `write`, which leaves a database at `path`, and reads that.
template <typename Write>
void TimeDatabase(const Settings& settings, const std::string& path, Write write) {
  const double start = WallTime();
  write();
  const double took = WallTime() - start;
  const double bytes = FileBytes(path);
  const Answers answers = Scan(OpenDatabase(settings, path).get(), true);
  Report(took, answers, bytes);
  std::filesystem::remove_all(path);
}

void RunDatabase(const Command& command) {
  const Settings settings(command);
  const std::string path = command.Path("database-by-leveldb");
  std::filesystem::remove_all(path);
  if (command.work == "database-build") {
    const Keys keys(command.Path("keys"));
    const Values values(command.Path("values"));
    return TimeDatabase(settings, path, [&] {
      const std::unique_ptr<leveldb::DB> db = OpenDatabase(settings, path);
      PutAll(db.get(), keys, values, 1);
      if (command.opening == "compacted") CompactAll(db.get());
    });
  }
  const bool shrinks = command.work == "database-shrink";
  std::filesystem::copy(command.Path(shrinks ? "old" : "broken"), path);
  TimeDatabase(settings, path, [&] {
    if (shrinks) return CompactAll(OpenDatabase(settings, path).get());
    Check(leveldb::RepairDB(path, settings.options));
  });
}

void Run(const Command& command) {
  const std::string& work = command.work;
  if (work == "prepare") return Prepare(command);
  if (work == "build") return BuildSynced(command);
  if (work == "database-prepare") return PrepareDatabases(command);
  if (work.rfind("database-", 0) == 0) return RunDatabase(command);
  if (command.opening != "tuned") {
    std::unique_ptr<NoMaps> no_maps;
    if (command.opening == "pread") no_maps.reset(new NoMaps(command));
    CheckMapping(command);
    return RunAsUsersDo<FileTable>(command, command.Path(command.table + ".ldb"));
  }
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

int main(int argc, char** argv) {
  const std::string version =
      std::to_string(leveldb::kMajorVersion) + "." + std::to_string(leveldb::kMinorVersion);
  return peers::Main(argc, argv, version, peers::Run);
}
