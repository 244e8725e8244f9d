// The writer of databases by goleveldb, told what to do by lines on standard input, as that by C++ LevelDB in database/tests/cpp/writer.cc:
// the commands that it has are the same. `die` ends the process at the next table that a compaction has written.

package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

var db *leveldb.DB
var stor storage.Storage
var snapshots []*leveldb.Snapshot
var dies atomic.Bool

// Ends the process when goleveldb logs that a compaction has written a table.
type mortal struct{ storage.Storage }

func (m mortal) Log(line string) {
	m.Storage.Log(line)
	if dies.Load() && strings.HasPrefix(line, "table@build created") {
		os.Exit(1)
	}
}

func unhex(text string) []byte {
	bytes, _ := hex.DecodeString(strings.TrimPrefix(text, "-"))
	return bytes
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func shut() {
	for _, snapshot := range snapshots {
		snapshot.Release()
	}
	snapshots = nil
	if db != nil {
		db.Close()
		stor.Close()
		db = nil
	}
}

// open DIR BUFFER FILE BLOCK SNAPPY BLOOM REUSE ORDER
func open(words []string) (err error) {
	shut()
	options := &opt.Options{
		WriteBuffer: number(words[1]), CompactionTableSize: number(words[2]), BlockSize: number(words[3]),
		Compression: opt.NoCompression,
	}
	if words[4] == "1" {
		options.Compression = opt.SnappyCompression
	}
	if bits := number(words[5]); bits > 0 {
		options.Filter = filter.NewBloomFilter(bits)
	}
	files, err := storage.OpenFile(words[0], false)
	if err != nil {
		return err
	}
	stor = mortal{files}
	if db, err = leveldb.Open(stor, options); err != nil {
		stor.Close()
	}
	return err
}

func batch(words []string) error {
	batch := new(leveldb.Batch)
	for i := 1; i+1 < len(words); {
		if words[i] == "put" {
			batch.Put(unhex(words[i+1]), unhex(words[i+2]))
			i += 3
		} else {
			batch.Delete(unhex(words[i+1]))
			i += 2
		}
	}
	return db.Write(batch, nil)
}

func dump(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	entries := db.NewIterator(nil, nil)
	for entries.Next() {
		for _, bytes := range [][]byte{entries.Key(), entries.Value()} {
			binary.Write(out, binary.LittleEndian, uint32(len(bytes)))
			out.Write(bytes)
		}
	}
	entries.Release()
	out.Flush()
	file.Close()
	return entries.Error()
}

func check() (string, error) {
	count := 0
	entries := db.NewIterator(nil, nil)
	defer entries.Release()
	for ; entries.Next(); count++ {
		value, err := db.Get(entries.Key(), nil)
		if err != nil {
			return "", err
		}
		if string(value) != string(entries.Value()) {
			return "", errors.New("Get differs from the iterator")
		}
	}
	return fmt.Sprint(" ", count), entries.Error()
}

func run(words []string) (figures string, err error) {
	switch words[0] {
	case "open":
		err = open(words[1:])
	case "batch":
		err = batch(words[1:])
	case "die":
		dies.Store(true)
	case "snapshot":
		var snapshot *leveldb.Snapshot
		snapshot, err = db.GetSnapshot()
		snapshots = append(snapshots, snapshot)
	case "release":
		snapshots[0].Release()
		snapshots = snapshots[1:]
	case "compact", "compact_between":
		err = db.CompactRange(util.Range{})
	case "check":
		figures, err = check()
	case "dump":
		err = dump(words[1])
	case "mortal":
	case "close":
		shut()
	default:
		err = errors.New("no such command")
	}
	return figures, err
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		figures, err := run(strings.Fields(line))
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok" + figures)
		}
	}
	shut()
}
