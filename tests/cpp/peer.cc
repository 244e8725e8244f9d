// C++ LevelDB as the other party: it reads tables that this crate wrote, and writes tables for this
// crate to read. Driven by cpp_leveldb.rs, which says what is to be true of the answers.
//
//   peer SCRIPT
//
// A script has a command a line, its words separated by single spaces; one process runs thousands.
// TABLE, ENTRIES and so on are paths. SETTINGS are seven words:
//
//   user|internal bytewise|reverse none|snappy BLOCK_SIZE RESTART_INTERVAL BITS_PER_KEY FLUSH_EVERY
//
// where BITS_PER_KEY 0 is no filter (or, when reading, none consulted) and FLUSH_EVERY 0 no flush.
//
//   write ENTRIES TABLE SETTINGS            builds TABLE of ENTRIES
//   scan TABLE FORWARD BACKWARD SETTINGS    writes the entries of TABLE, from both ends
//   lookup TABLE KEYS ANSWERS SETTINGS      writes an answer for each of KEYS (see Lookup)
//
// A database's commands take the SETTINGS of user keys. DB is a directory:
//
//   repair DB SETTINGS                      makes a database of the tables in DB, by RepairDB
//   read-db DB FORWARD BACKWARD KEYS ANSWERS SETTINGS    scan and lookup in one
//   compact-db DB SETTINGS                  has LevelDB rewrite the tables
//
// Anything that LevelDB reports as an error ends the process with a message that names the line.

#include <leveldb/db.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/table.h>
#include <leveldb/table_builder.h>

#include <future>
#include <sstream>

#include "../../testdata/leveldb_internals.h"

namespace leveldb {

// Table::InternalGet is the one way to a lookup that asks the filter, and is private to a friend of
// this name, which the library keeps to itself.
class TableCache {
 public:
  static Status Lookup(Table* table, const ReadOptions& options, const Slice& key, void* arg,
                       void (*found)(void*, const Slice&, const Slice&)) {
    return table->InternalGet(options, key, arg, found);
  }
};

}  // namespace leveldb

namespace leveltable {
namespace {

// Remembers what the filter said, so that a lookup which LevelDB answered without its filter (it
// passes over a metaindex that it cannot read) is not taken for one that the filter let through.
class ObservedPolicy : public leveldb::FilterPolicy {
 public:
  enum Verdict : char { kNotAsked = '-', kMayMatch = 'y', kRejected = 'n' };

  explicit ObservedPolicy(const leveldb::FilterPolicy* inner) : inner_(inner) {}

  const char* Name() const override { return inner_->Name(); }

  void CreateFilter(const leveldb::Slice* keys, int n, std::string* dst) const override {
    inner_->CreateFilter(keys, n, dst);
  }

  bool KeyMayMatch(const leveldb::Slice& key, const leveldb::Slice& filter) const override {
    const bool may_match = inner_->KeyMayMatch(key, filter);
    verdict_ = may_match ? kMayMatch : kRejected;
    return may_match;
  }

  Verdict TakeVerdict() const { return std::exchange(verdict_, kNotAsked); }

 private:
  const std::unique_ptr<const leveldb::FilterPolicy> inner_;
  mutable Verdict verdict_ = kNotAsked;
};

class Settings {
 public:
  explicit Settings(std::istream& words) {
    std::string keys, comparator, compression;
    int bits_per_key = 0;
    words >> keys >> comparator >> compression >> options.block_size >>
        options.block_restart_interval >> bits_per_key >> flush_every;
    Check(!words.fail(), "bad settings");
    internal = keys == "internal";
    user_comparator = comparator == "reverse"
                          ? static_cast<const leveldb::Comparator*>(&reverse_)
                          : leveldb::BytewiseComparator();
    if (bits_per_key != 0) {
      policy.reset(new ObservedPolicy(leveldb::NewBloomFilterPolicy(bits_per_key)));
    }
    internal_comparator_.reset(new InternalKeyComparator(user_comparator));
    internal_policy_.reset(new InternalFilterPolicy(policy.get()));
    options.comparator = internal ? internal_comparator_.get() : user_comparator;
    options.filter_policy = policy.get();
    if (internal && policy) options.filter_policy = internal_policy_.get();
    options.compression =
        compression == "snappy" ? leveldb::kSnappyCompression : leveldb::kNoCompression;
    options.paranoid_checks = true;
  }

  leveldb::Options options;
  bool internal;
  const leveldb::Comparator* user_comparator;
  std::unique_ptr<const ObservedPolicy> policy;  // null: no filter
  int flush_every = 0;

 private:
  const ReverseBytewiseComparator reverse_;
  std::unique_ptr<const leveldb::Comparator> internal_comparator_;
  std::unique_ptr<const leveldb::FilterPolicy> internal_policy_;
};

class OpenTable {
 public:
  OpenTable(const std::string& path, const Settings& settings) : source_(ReadFile(path)) {
    leveldb::Table* table = nullptr;
    Check(leveldb::Table::Open(settings.options, &source_, source_.size(), &table), "open " + path);
    table_.reset(table);
    verified.verify_checksums = true;
  }

  leveldb::Table* operator->() const { return table_.get(); }
  leveldb::Table* get() const { return table_.get(); }

  leveldb::ReadOptions verified;

 private:
  StringSource source_;
  std::unique_ptr<leveldb::Table> table_;
};

void Write(const std::string& entries_path, const std::string& table_path,
           const Settings& settings) {
  StringSink sink;
  leveldb::TableBuilder builder(settings.options, &sink);
  int added = 0;
  for (const auto& [key, value] : DecodeEntries(ReadFile(entries_path))) {
    builder.Add(key, value);
    added++;
    if (settings.flush_every != 0 && added % settings.flush_every == 0) builder.Flush();
  }
  Check(builder.Finish(), "finish " + table_path);
  WriteFile(table_path, sink.contents);
}

// `source` is a table or a database.
template <typename Open>
void Scan(const Open& source, const std::string& forward_path, const std::string& backward_path) {
  const std::unique_ptr<leveldb::Iterator> it(source->NewIterator(source.verified));
  Entries entries;
  const auto take = [&] { entries.emplace_back(it->key().ToString(), it->value().ToString()); };

  for (it->SeekToFirst(); it->Valid(); it->Next()) take();
  Check(it->status(), "forward");
  WriteFile(forward_path, EncodeEntries(entries));

  entries.clear();
  for (it->SeekToLast(); it->Valid(); it->Prev()) take();
  Check(it->status(), "backward");
  WriteFile(backward_path, EncodeEntries(entries));
}

// An answer is: the filter's verdict ('-' was not asked, 'y' may match, 'n' rejected), '1' or '0'
// for found or not, and the sized key and value found (empty where not). With internal keys, found
// means that the entry landed on has the same user key.
void Lookup(const std::string& table_path, const std::string& keys_path,
            const std::string& answers_path, const Settings& settings) {
  struct Landing {
    const Settings& settings;
    const std::string& wanted;
    bool found;
    Entry entry;
  };
  const OpenTable table(table_path, settings);
  std::string answers;
  for (const std::string& key : DecodeSized(ReadFile(keys_path))) {
    Landing landing{settings, key, false, {}};
    const auto land = [](void* arg, const leveldb::Slice& k, const leveldb::Slice& v) {
      Landing* const at = static_cast<Landing*>(arg);
      at->found = at->settings.internal ? UserKey(k) == UserKey(at->wanted) : k == at->wanted;
      if (at->found) at->entry = {k.ToString(), v.ToString()};
    };
    Check(leveldb::TableCache::Lookup(table.get(), table.verified, key, &landing, land),
          "lookup in " + table_path);
    answers.push_back(settings.policy ? settings.policy->TakeVerdict()
                                      : ObservedPolicy::kNotAsked);
    answers.push_back(landing.found ? '1' : '0');
    PutSized(&answers, landing.entry.first);
    PutSized(&answers, landing.entry.second);
  }
  WriteFile(answers_path, answers);
}

// Lets no compaction begin before it is told to, so that what is read until then are the tables that
// were repaired, not what LevelDB has since made of them.
class PatientEnv : public leveldb::EnvWrapper {
 public:
  PatientEnv() : EnvWrapper(leveldb::Env::Default()), begun_(begin_.get_future()) {}

  void Schedule(void (*function)(void*), void* arg) override {
    const auto run_later = [](void* work) {
      const std::unique_ptr<const Work> w(static_cast<const Work*>(work));
      w->begun.wait();
      w->function(w->arg);
    };
    target()->Schedule(run_later, new Work{function, arg, begun_});
  }

  void Begin() { begin_.set_value(); }

 private:
  struct Work {
    void (*function)(void*);
    void* arg;
    std::shared_future<void> begun;
  };

  std::promise<void> begin_;
  const std::shared_future<void> begun_;
};

enum Compactions { kWait, kBegin };

class OpenDatabase {
 public:
  OpenDatabase(const std::string& path, const Settings& settings, Compactions compactions) {
    leveldb::Options options = settings.options;
    options.env = &env_;
    leveldb::DB* db = nullptr;
    Check(leveldb::DB::Open(options, path, &db), "open " + path);
    db_.reset(db);
    verified.verify_checksums = true;
    if (compactions == kBegin) Begin();
  }

  // A database waits for its compactions before it closes.
  ~OpenDatabase() { Begin(); }

  leveldb::DB* operator->() const { return db_.get(); }

  leveldb::ReadOptions verified;

 private:
  void Begin() {
    if (!std::exchange(begun_, true)) env_.Begin();
  }

  PatientEnv env_;
  bool begun_ = false;
  std::unique_ptr<leveldb::DB> db_;
};

// Answers as those of Lookup; the verdict is that of the table asked last.
void LookupInDatabase(const OpenDatabase& db, const std::string& keys_path,
                      const std::string& answers_path, const Settings& settings) {
  std::string answers;
  for (const std::string& key : DecodeSized(ReadFile(keys_path))) {
    std::string value;
    const leveldb::Status status = db->Get(db.verified, key, &value);
    if (!status.IsNotFound()) Check(status, "get");
    answers.push_back(settings.policy ? settings.policy->TakeVerdict()
                                      : ObservedPolicy::kNotAsked);
    answers.push_back(status.ok() ? '1' : '0');
    PutSized(&answers, status.ok() ? key : "");
    PutSized(&answers, value);
  }
  WriteFile(answers_path, answers);
}

void Run(const std::string& line) {
  std::istringstream words(line);
  std::string command, a, b, c, d, e;
  words >> command >> a;
  if (command == "write") {
    words >> b;
    Write(a, b, Settings(words));
  } else if (command == "scan") {
    words >> b >> c;
    const Settings settings(words);
    Scan(OpenTable(a, settings), b, c);
  } else if (command == "lookup") {
    words >> b >> c;
    Lookup(a, b, c, Settings(words));
  } else if (command == "repair") {
    Check(leveldb::RepairDB(a, Settings(words).options), "repair " + a);
  } else if (command == "read-db") {
    words >> b >> c >> d >> e;
    const Settings settings(words);
    const OpenDatabase db(a, settings, kWait);
    Scan(db, b, c);
    LookupInDatabase(db, d, e, settings);
  } else if (command == "compact-db") {
    const Settings settings(words);
    OpenDatabase(a, settings, kBegin)->CompactRange(nullptr, nullptr);
  } else {
    Die("unknown command");
  }
}

}  // namespace
}  // namespace leveltable

int main(int argc, char** argv) {
  std::string line;
  try {
    leveltable::Check(argc == 2, "usage: peer SCRIPT");
    std::istringstream script(leveltable::ReadFile(argv[1]));
    while (std::getline(script, line)) leveltable::Run(line);
  } catch (const std::exception& e) {
    std::cerr << "at \"" << line << "\": " << e.what() << std::endl;
    return 1;
  }
}
