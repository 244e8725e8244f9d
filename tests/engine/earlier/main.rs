//! Reads a table with an earlier version of leveltable, which `earlier_reader.rs` compiles this with.
//!
//! `earlier scan FILE` prints each entry on a line, with a tab after the key; `earlier get FILE` those whose keys standard input has on
//! its lines, asked one by one and all at once; `earlier verify FILE` what is wrong, and fails if anything is.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use leveltable::repair::{VerifyOptions, verify};
use leveltable::{Source, Table};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, path] = &arguments[..] else {
        return Err("usage: earlier scan|get|verify FILE".into());
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut show = |key: &[u8], value: &[u8]| out.write_all(&[key, b"\t", value, b"\n"].concat());
    match what.as_str() {
        "scan" => {
            for entry in Table::open(path)?.iter() {
                let (key, value) = entry?;
                show(&key, &value)?;
            }
        }
        "get" => {
            let table = Table::open(path)?;
            let keys = io::stdin().lines().collect::<Result<Vec<_>, _>>()?;
            for (key, at_once) in keys.iter().zip(table.get_many(&keys)?) {
                let value = table.get(key)?;
                assert_eq!(value, at_once, "{key}");
                if let Some(value) = value {
                    show(key.as_bytes(), &value)?;
                }
            }
        }
        "verify" => {
            let report = verify(Source::open(path)?, VerifyOptions::new())?;
            if !report.is_sound() {
                println!("{report}");
                return Ok(ExitCode::FAILURE);
            }
        }
        _ => return Err(format!("{what}?").into()),
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
