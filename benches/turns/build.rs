//! Compiles what is done with C++ LevelDB, if that is installed.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=CXX");
    println!("cargo::rerun-if-changed=cpp");
    println!("cargo::rerun-if-changed=../peers/cpp/workload.h");
    let out_dir = env::var("OUT_DIR").expect("Cargo sets OUT_DIR");
    let program = Path::new(&out_dir).join("leveldb");
    let compiled = Command::new(env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(["-std=c++17", "-O2", "-DNDEBUG", "-Wall", "-Wextra"])
        .args(["cpp/leveldb.cc", "-pthread", "-lleveldb", "-o"])
        .arg(&program)
        .status();
    if compiled.is_ok_and(|status| status.success()) {
        println!("cargo::rustc-env=CPP_LEVELDB={}", program.display());
    } else {
        println!("cargo::warning=C++ LevelDB is left out: are g++ and libleveldb-dev installed?");
        // A path that does not exist makes Cargo try again at the next build.
        println!("cargo::rerun-if-changed=cpp/leveldb-was-not-built");
    }
}
