// The workload on RocksDB; see workload.h.
//
// Tables are RocksDB's own (SstFileWriter), with the options that LevelDB has: blocks of 4 KiB, a
// restart every 16 keys, Bloom at 10 bits per key, CRC-32C. Lookups go through a read-only database into
// which the table was ingested, scans through SstFileReader.
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

#include <algorithm>
#include <memory>
#include <vector>

#include "workload.h"

namespace peers {
namespace {

void Check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

rocksdb::Options Settings(const std::string& table) {
  rocksdb::BlockBasedTableOptions blocks;
  blocks.block_size = 4096;
  blocks.block_restart_interval = 16;
  blocks.checksum = rocksdb::kCRC32c;
  blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kBloomBits));
  blocks.block_cache = rocksdb::NewLRUCache(kCacheBytes);
  rocksdb::Options options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
  options.compression =
      table == "snappy" ? rocksdb::kSnappyCompression : rocksdb::kNoCompression;
  return options;
}

std::string TablePath(const Command& command) { return command.Path(command.table + ".rocksdb"); }
std::string DatabasePath(const Command& command) { return command.Path(command.table + "-db"); }

Answers Get(rocksdb::DB* db, const Keys& probes, size_t first) {
  Answers answers;
  const rocksdb::ReadOptions options;
  rocksdb::PinnableSlice value;
  for (size_t n = 0, i = first; n < probes.size(); n++, i++) {
    if (i == probes.size()) i = 0;
    const rocksdb::Slice key(probes[i], kKeyLen);
    const rocksdb::Status status = db->Get(options, db->DefaultColumnFamily(), key, &value);
    if (status.ok()) {
      answers.Value(value.data());
    } else if (!status.IsNotFound()) {
      Check(status);
    }
    value.Reset();
  }
  return answers;
}

Answers MultiGet(rocksdb::DB* db, const Keys& probes) {
  Answers answers;
  const rocksdb::ReadOptions options;
  std::vector<rocksdb::Slice> keys(kBatch);
  std::vector<rocksdb::PinnableSlice> values(kBatch);
  std::vector<rocksdb::Status> statuses(kBatch);
  for (size_t i = 0; i < probes.size(); i += kBatch) {
    const size_t n = std::min(kBatch, probes.size() - i);
    for (size_t j = 0; j < n; j++) keys[j] = rocksdb::Slice(probes[i + j], kKeyLen);
    db->MultiGet(options, db->DefaultColumnFamily(), n, keys.data(), values.data(),
                 statuses.data());
    for (size_t j = 0; j < n; j++) {
      if (statuses[j].ok()) {
        answers.Value(values[j].data());
      } else if (!statuses[j].IsNotFound()) {
        Check(statuses[j]);
      }
      values[j].Reset();
    }
  }
  return answers;
}

Answers Scan(rocksdb::SstFileReader* table, bool forward) {
  const std::unique_ptr<rocksdb::Iterator> it(table->NewIterator(rocksdb::ReadOptions()));
  const Answers answers = ScanAll(it.get(), forward);
  Check(it->status());
  return answers;
}

Answers Seek(rocksdb::SstFileReader* table, const Keys& starts) {
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
  rocksdb::Options options = Settings(command.table);
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
  const rocksdb::Options options = Settings(command.table);
  using Opened = std::unique_ptr<rocksdb::SstFileReader>;
  const auto open = [&](Opened* opened) {
    opened->reset(new rocksdb::SstFileReader(options));
    Check((*opened)->Open(TablePath(command)));
  };
  if (command.work == "memory") return MeasureMemory<Opened>(open);
  TimeOpen<Opened>(open);
}

// Writes the table, and a database that holds nothing else.
void Prepare(const Command& command) {
  rocksdb::Options options = Settings(command.table);
  const std::string path = TablePath(command);
  const Keys keys(command.Path("keys"));
  const Values values(command.Path("values"));
  Build(options, path, keys, values);
  Check(rocksdb::DestroyDB(DatabasePath(command), options));
  options.create_if_missing = true;
  rocksdb::DB* db = nullptr;
  Check(rocksdb::DB::Open(options, DatabasePath(command), &db));
  const std::unique_ptr<rocksdb::DB> owner(db);
  Check(db->IngestExternalFile({path}, rocksdb::IngestExternalFileOptions()));
  Report(0, Answers());
}

void Lookup(const Command& command) {
  rocksdb::DB* db = nullptr;
  Check(rocksdb::DB::OpenForReadOnly(Settings(command.table), DatabasePath(command), &db));
  const std::unique_ptr<rocksdb::DB> owner(db);
  const Keys probes(command.Path(command.probes));
  if (command.work == "threads") {
    TimeThreads(probes.size(), [&](size_t first) { return Get(db, probes, first); });
  } else {
    TimeSecondPass(probes.size(), [&] {
      return command.work == "get-many" ? MultiGet(db, probes) : Get(db, probes, 0);
    });
  }
}

void Run(const Command& command) {
  const std::string& work = command.work;
  if (work == "prepare") return Prepare(command);
  if (work == "open" || work == "memory") return Open(command);
  if (work == "build-memory") return BuildInMemory(command);
  if (work == "build-file") return BuildFile(command);
  if (work == "get" || work == "get-many" || work == "threads") return Lookup(command);
  rocksdb::SstFileReader table(Settings(command.table));
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

int main(int argc, char** argv) { return peers::Main(argc, argv, peers::Run); }
