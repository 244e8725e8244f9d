//! Compiles the C++ peers, those whose libraries are installed.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=CXX");
    println!("cargo::rerun-if-changed=cpp");
    compile("leveldb", "libleveldb-dev");
    compile("rocksdb", "librocksdb-dev");
}

/// Compiles `cpp/<peer>.cc` and tells the driver where the program is, as `PEER_<peer>`.
fn compile(peer: &str, package: &str) {
    let out_dir = env::var("OUT_DIR").expect("Cargo sets OUT_DIR");
    let program = Path::new(&out_dir).join(peer);
    let compiled = Command::new(env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(["-std=c++17", "-O2", "-DNDEBUG", "-Wall", "-Wextra"])
        .args([&format!("cpp/{peer}.cc"), "-pthread"])
        .arg(format!("-l{peer}"))
        .arg("-o")
        .arg(&program)
        .output();
    match compiled {
        Ok(output) if output.status.success() => {
            println!("cargo::rustc-env=PEER_{peer}={}", program.display());
        }
        failed => {
            let what = match &failed {
                Ok(output) => String::from_utf8_lossy(&output.stderr),
                Err(e) => e.to_string().into(),
            };
            for line in what.lines().take(4) {
                println!("cargo::warning={line}");
            }
            println!("cargo::warning=the {peer} peer was left out: is {package} installed?");
            // A path that does not exist makes Cargo try again at the next build.
            println!("cargo::rerun-if-changed={peer}-was-not-built");
        }
    }
}
