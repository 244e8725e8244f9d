// The workload on RocksDB; see workload.h.
//
// Tables are RocksDB's own (SstFileWriter), with the options that LevelDB has: blocks of 4 KiB, a
// restart every 16 keys, Bloom at 10 bits per key, CRC-32C. Lookups go through a read-only database into
// which the table was ingested, scans through SstFileReader.
//
// As users open a database, it has RocksDB's defaults, except for the filter, no compression, and the size
// of the cache.
//
// Nothing is mapped: RocksDB verifies a mapped block each time that it is read, and a block in its cache
// only once, so that the cache is what suits it best.

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "store.h"
#include "workload.h"

namespace peers {
namespace {

void Check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

bool IsTuned(const Command& command) { return command.opening == "tuned"; }

rocksdb::Options Settings(const Command& command) {
  rocksdb::BlockBasedTableOptions blocks;
  if (IsTuned(command)) {
    blocks.block_size = 4096;
    blocks.block_restart_interval = 16;
    blocks.checksum = rocksdb::kCRC32c;
  }
  blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kBloomBits));
  blocks.block_cache = rocksdb::NewLRUCache(IsTuned(command) ? kCacheBytes : kUsersCacheBytes);
  rocksdb::Options options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
  options.compression =
      command.table == "snappy" ? rocksdb::kSnappyCompression : rocksdb::kNoCompression;
  return options;
}

std::string TablePath(const Command& command) { return command.Path(command.table + ".rocksdb"); }
std::string DatabasePath(const Command& command) {
  return command.Path(IsTuned(command) ? command.table + "-db" : "rocksdb");
}

std::unique_ptr<rocksdb::DB> OpenReadOnly(const Command& command) {
  rocksdb::DB* db = nullptr;
  Check(rocksdb::DB::OpenForReadOnly(Settings(command), DatabasePath(command), &db));
  return std::unique_ptr<rocksdb::DB>(db);
}

void GetRange(rocksdb::DB* db, const Keys& probes, size_t first, size_t last, Answers* answers) {
  const rocksdb::ReadOptions options;
  rocksdb::PinnableSlice value;
  for (size_t i = first; i < last; i++) {
    const rocksdb::Slice key(probes[i], kKeyLen);
    const rocksdb::Status status = db->Get(options, db->DefaultColumnFamily(), key, &value);
    if (status.ok()) {
      answers->Value(value.data());
    } else if (!status.IsNotFound()) {
      Check(status);
    }
    value.Reset();
  }
}

// All probes, from number `first` on and around.
Answers Get(rocksdb::DB* db, const Keys& probes, size_t first) {
  Answers answers;
  GetRange(db, probes, first, probes.size(), &answers);
  GetRange(db, probes, 0, first, &answers);
  return answers;
}

void MultiGet(rocksdb::DB* db, const Keys& probes, size_t first, size_t last, Answers* answers) {
  const rocksdb::ReadOptions options;
  std::vector<rocksdb::Slice> keys(kBatch);
  std::vector<rocksdb::PinnableSlice> values(kBatch);
  std::vector<rocksdb::Status> statuses(kBatch);
  for (size_t i = first; i < last; i += kBatch) {
    const size_t n = std::min(kBatch, last - i);
    for (size_t j = 0; j < n; j++) keys[j] = rocksdb::Slice(probes[i + j], kKeyLen);
    db->MultiGet(options, db->DefaultColumnFamily(), n, keys.data(), values.data(),
                 statuses.data());
    for (size_t j = 0; j < n; j++) {
      if (statuses[j].ok()) {
        answers->Value(values[j].data());
      } else if (!statuses[j].IsNotFound()) {
        Check(statuses[j]);
      }
      values[j].Reset();
    }
  }
}

// Of a table or a database.
template <typename Source>
Answers Scan(Source* table, bool forward, size_t limit = SIZE_MAX) {
  const std::unique_ptr<rocksdb::Iterator> it(table->NewIterator(rocksdb::ReadOptions()));
  const Answers answers = ScanAll(it.get(), forward, limit);
  Check(it->status());
  return answers;
}

template <typename Source>
Answers Seek(Source* table, const Keys& starts) {
  const std::unique_ptr<rocksdb::Iterator> it(table->NewIterator(rocksdb::ReadOptions()));
  const Answers answers = SeekEach<rocksdb::Slice>(it.get(), starts);
  Check(it->status());
  return answers;
}

Answers Build(const rocksdb::Options& options, const std::string& path, const Keys& keys,
              const Values& values) {
  rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options, nullptr,
                                /*invalidate_page_cache=*/false);
  Check(writer.Open(path));
  const char* value = values.First();
  for (size_t i = 0; i < keys.size(); i++, value = values.After(value)) {
    Check(writer.Put(rocksdb::Slice(keys[i], kKeyLen), rocksdb::Slice(value, kValueLen)));
  }
  rocksdb::ExternalSstFileInfo info;
  Check(writer.Finish(&info));
  Answers answers;
  answers.count = info.num_entries;
  return answers;
}

// RocksDB syncs a table when it is finished; here it is not to.
class UnsyncedFile : public rocksdb::WritableFileWrapper {
 public:
  explicit UnsyncedFile(std::unique_ptr<rocksdb::WritableFile> file)
      : WritableFileWrapper(file.get()), file_(std::move(file)) {}

  rocksdb::Status Sync() override { return rocksdb::Status::OK(); }
  rocksdb::Status Fsync() override { return rocksdb::Status::OK(); }
  rocksdb::Status RangeSync(uint64_t, uint64_t) override { return rocksdb::Status::OK(); }

 private:
  const std::unique_ptr<rocksdb::WritableFile> file_;
};

class UnsyncedEnv : public rocksdb::EnvWrapper {
 public:
  UnsyncedEnv() : EnvWrapper(rocksdb::Env::Default()) {}

  const char* Name() const override { return "UnsyncedEnv"; }

  rocksdb::Status NewWritableFile(const std::string& name,
                                  std::unique_ptr<rocksdb::WritableFile>* file,
                                  const rocksdb::EnvOptions& options) override {
    std::unique_ptr<rocksdb::WritableFile> inner;
    const rocksdb::Status status = EnvWrapper::NewWritableFile(name, &inner, options);
    if (status.ok()) file->reset(new UnsyncedFile(std::move(inner)));
    return status;
  }
};

void TimeBuild(const Command& command, rocksdb::Env* env, const std::string& path) {
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  rocksdb::Options options = Settings(command);
  options.env = env;
  TimeSecondPass(keys.size(), [&] { return Build(options, path, keys, values); });
  Check(env->DeleteFile(path));
}

void BuildInMemory(const Command& command) {
  const std::unique_ptr<rocksdb::Env> env(rocksdb::NewMemEnv(rocksdb::Env::Default()));
  Check(env->CreateDirIfMissing("/memory"));
  TimeBuild(command, env.get(), "/memory/table");
}

void BuildFile(const Command& command) {
  UnsyncedEnv env;
  TimeBuild(command, &env, command.Path("built-by-rocksdb"));
}

// From the file: there is no way to give RocksDB memory that would not copy it.
void Open(const Command& command) {
  const rocksdb::Options options = Settings(command);
  using Opened = std::unique_ptr<rocksdb::SstFileReader>;
  const auto open = [&](Opened* opened) {
    opened->reset(new rocksdb::SstFileReader(options));
    Check((*opened)->Open(TablePath(command)));
  };
  if (command.work == "memory") return MeasureMemory<Opened>(open);
  TimeOpen<Opened>(open);
}

// Writes a table, and a database that holds nothing else at `path`.
void WriteDatabase(const Command& command, const std::string& path, const Keys& keys,
                   const Values& values) {
  rocksdb::Options options = Settings(command);
  const std::string table = IsTuned(command) ? TablePath(command) : path + ".sst";
  Build(options, table, keys, values);
  Check(rocksdb::DestroyDB(path, options));
  options.create_if_missing = true;
  rocksdb::DB* db = nullptr;
  Check(rocksdb::DB::Open(options, path, &db));
  const std::unique_ptr<rocksdb::DB> owner(db);
  rocksdb::IngestExternalFileOptions ingestion;
  ingestion.move_files = !IsTuned(command);
  Check(db->IngestExternalFile({table}, ingestion));
}

void Prepare(const Command& command) {
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  WriteDatabase(command, DatabasePath(command), keys, values);
  Report(0, Answers());
}

// As users do, who need not wait for a compaction: the table is synced, and then moved into the database.
void BuildDatabase(const Command& command) {
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  const std::string path = command.Path("built-by-rocksdb");
  TimeWriting(keys.size(), path, [&] { WriteDatabase(command, path, keys, values); });
}

// A database as users open it.
class Database {
 public:
  explicit Database(const Command& command) : db_(OpenReadOnly(command)) {}

  void Get(const Keys& probes, size_t first, size_t last, Answers* answers) const {
    GetRange(db_.get(), probes, first, last, answers);
  }
  void GetMany(const Keys& probes, size_t first, size_t last, Answers* answers) const {
    MultiGet(db_.get(), probes, first, last, answers);
  }
  Answers Scan(bool forward, size_t limit) const { return peers::Scan(db_.get(), forward, limit); }
  Answers Seek(const Keys& starts) const { return peers::Seek(db_.get(), starts); }

 private:
  const std::unique_ptr<rocksdb::DB> db_;
};

void Lookup(const Command& command) {
  const std::unique_ptr<rocksdb::DB> owner = OpenReadOnly(command);
  rocksdb::DB* const db = owner.get();
  const Keys probes(command.Path(command.probes));
  if (command.work == "threads") {
    TimeThreads(probes.size(), [&](size_t first) { return Get(db, probes, first); });
  } else if (command.work == "get-many") {
    TimeSecondPass(probes.size(), [&] {
      Answers answers;
      MultiGet(db, probes, 0, probes.size(), &answers);
      return answers;
    });
  } else {
    TimeSecondPass(probes.size(), [&] { return Get(db, probes, 0); });
  }
}

void Run(const Command& command) {
  const std::string& work = command.work;
  if (work == "prepare") return Prepare(command);
  if (work == "build") return BuildDatabase(command);
  if (!IsTuned(command)) return RunAsUsersDo<Database>(command, DatabasePath(command));
  if (work == "open" || work == "memory") return Open(command);
  if (work == "build-memory") return BuildInMemory(command);
  if (work == "build-file") return BuildFile(command);
  if (work == "get" || work == "get-many" || work == "threads") return Lookup(command);
  rocksdb::SstFileReader table(Settings(command));
  Check(table.Open(TablePath(command)));
  if (work == "forward" || work == "backward") {
    const size_t entries = Keys(command.Path("keys")).size();
    TimeSecondPass(entries, [&] { return Scan(&table, work == "forward"); });
  } else if (work == "seek") {
    const Keys starts(command.Path(command.probes));
    TimeSecondPass(starts.size(), [&] { return Seek(&table, starts); });
  } else {
    throw std::runtime_error("unknown work " + work);
  }
}

}  // namespace
}  // namespace peers

int main(int argc, char** argv) {
  return peers::Main(argc, argv, rocksdb::GetRocksVersionAsString(), peers::Run);
}
