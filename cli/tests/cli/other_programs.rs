//! Entries from other programs and for them: fields of CSV and JSON, values that are JSON, compressed input.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{complaint, json_lines, names_in, run, stdout, tool};

/// Builds a table of `lines` and returns what `scan` shows of it.
fn built(options: &[&str], lines: &str) -> String {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("new.ldb");
    let mut build = tool();
    build.arg("build").arg(&out).args(options);
    stdout(build.write_stdin(lines).output().unwrap());
    String::from_utf8(stdout(run(["scan".as_ref(), out.as_os_str()]))).unwrap()
}

/// Builds nothing of `lines`, and returns the error.
fn refused(options: &[&str], lines: &str) -> String {
    let directory = TempDir::new().unwrap();
    let mut build = tool();
    build.arg("build").arg(directory.path().join("new.ldb"));
    let complaint = complaint(build.args(options).write_stdin(lines).output().unwrap(), 2);
    assert!(names_in(directory.path()).is_empty());
    complaint
}

#[test]
fn a_key_can_have_several_fields() {
    let csv = "city,id,name\nOslo,7,Ada\nOslo,12,Bo\n";
    let json = "{\"city\":\"Oslo\",\"id\":7,\"name\":\"Ada\"}\n{\"city\":\"Oslo\",\"id\":12,\"name\":\"Bo\"}\n";
    for (format, lines) in [("--format=csv", csv), ("--format=jsonl", json)] {
        let fields = [format, "--key-field=city,id", "--value-field=name"];
        let sorted = [&fields[..], &["--sort"]].concat();
        assert_eq!(built(&sorted, lines), "Oslo:12\tBo\nOslo:7\tAda\n");
        let padded = [&fields[..], &["--pad=4"]].concat();
        assert_eq!(built(&padded, lines), "Oslo:0007\tAda\nOslo:0012\tBo\n");
        let apart = [&padded[..], &["--key-separator=/"]].concat();
        assert_eq!(built(&apart, lines), "Oslo/0007\tAda\nOslo/0012\tBo\n");
        let error = refused(
            &[format, "--key-field=city,none", "--value-field=name"],
            lines,
        );
        assert!(error.contains("none"), "{error}");
    }
    let numbered = [
        "--format=csv",
        "--key-field=2,1",
        "--value-field=3",
        "--header",
    ];
    assert_eq!(
        built(&[&numbered[..], &["--sort"]].concat(), csv),
        "12:Oslo\tBo\n7:Oslo\tAda\n"
    );
}

#[test]
fn the_value_can_be_the_whole_record() {
    let line = "{\"id\": 7, \"roles\": [\"admin\", 1.50], \"id_hex_not\": null}";
    let whole = ["--format=jsonl", "--key-field=id", "--whole-record"];
    let shown = built(&whole, &format!("  {line}\n"));
    assert_eq!(shown, format!("7\t{line}\n"));
    let whole = ["--format=csv", "--key-field=id", "--whole-record"];
    let shown = built(&whole, "id,name\n7,\"Smith, \"\"J\"\"\"\n");
    assert_eq!(
        shown,
        "7\t{\"id\":\"7\",\"name\":\"Smith, \\\\\"J\\\\\"\"}\n"
    );
    let whole = ["--format=csv", "--whole-record"];
    assert_eq!(built(&whole, "7,a,b\n"), "7\t[\"7\",\"a\",\"b\"]\n");
    let error = refused(&["--whole-record"], "a\tb\n");
    assert!(error.contains("need --format csv or --format jsonl"));
}

#[test]
fn padded_numbers_sort_by_size() {
    let lines = "10\tten\n9\tnine\nabc\tno number\n";
    let shown = built(&["--pad=3", "--sort"], lines);
    assert_eq!(shown, "009\tnine\n010\tten\nabc\tno number\n");
    for (line, words) in [
        ("1234\tx\n", "1234 has more than the 3 digits of --pad"),
        ("-1\tx\n", "-1 in a key: --pad is for whole numbers from 0"),
        ("1.5\tx\n", "1.5 in a key"),
    ] {
        let error = refused(&["--pad=3"], line);
        assert!(error.contains(words) && error.contains("line 1"), "{error}");
    }
    // A date is no number.
    assert_eq!(built(&["--pad=3"], "2024-01-02\tx\n"), "2024-01-02\tx\n");
}

/// Whatever is embedded, `build` stores the same bytes again.
#[test]
fn values_that_are_json_can_be_embedded() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (table, again) = (path("table.ldb"), path("again.ldb"));
    let values = [
        ("array", "[1, 2.50]", serde_json::json!([1, 2.5])),
        ("null", "null", serde_json::json!("null")),
        ("number", "7", serde_json::json!(7)),
        (
            "object",
            "{\"a\":{\"b\":null}}",
            serde_json::json!({"a": {"b": null}}),
        ),
        ("string", "\"quoted\"", serde_json::json!("\"quoted\"")),
        ("text", "{no json", serde_json::json!("{no json")),
        ("true", "true", serde_json::json!(true)),
    ];
    let lines: String = { values.iter() }
        .map(|(key, value, _)| format!("{key}\t{value}\n"))
        .collect();
    let mut build = tool();
    build.args(["build", &table]).write_stdin(lines.clone());
    stdout(build.output().unwrap());
    let shown = stdout(run(["scan", &table, "--json", "--json-values"]));
    for (record, (key, _, value)) in json_lines(&shown).iter().zip(&values) {
        assert_eq!(record["value"], *value, "{key}");
        let alone = stdout(run(["get", &table, key, "--json", "--json-values"]));
        assert_eq!(json_lines(&alone)[0]["value"], *value, "{key}");
    }
    let mut build = tool();
    build
        .args(["build", &again, "--format=jsonl"])
        .write_stdin(shown);
    stdout(build.output().unwrap());
    assert_eq!(fs::read(&table).unwrap(), fs::read(&again).unwrap());
    let pretty = "{\"key\":\"a\",\"value\":\"{\\n \\\"b\\\": 1\\r\\n}\"}\n";
    let mut build = tool();
    build
        .args(["build", &again, "--force", "--format=jsonl"])
        .write_stdin(pretty);
    stdout(build.output().unwrap());
    let shown = stdout(run(["scan", &again, "--json", "--json-values"]));
    assert_eq!(json_lines(&shown)[0]["value"], serde_json::json!({"b": 1}));
}

#[test]
fn gzip_is_named() {
    let directory = TempDir::new().unwrap();
    let input = directory.path().join("lines.tsv.gz");
    fs::write(
        &input,
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03K\xe4L\xe2\x02\0\x0c\0\0\0",
    )
    .unwrap();
    for format in ["text", "csv", "jsonl"] {
        let mut build = tool();
        build.args(["build", "--format", format]);
        build.arg(directory.path().join("new.ldb")).arg(&input);
        let error = complaint(build.output().unwrap(), 2);
        assert!(error.contains("compressed by gzip"), "{error}");
        assert!(error.contains(input.to_str().unwrap()), "{error}");
    }
}

/// A file that is there is not replaced, and the message names both.
#[test]
fn swapped_arguments_are_recognised() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (lines, table) = (path("lines.tsv"), path("new.ldb"));
    fs::write(&lines, "a\tb\n").unwrap();
    for arguments in [
        &["build", &lines, &table, "--force"][..],
        &["salvage", &table, &lines, "--force"],
        &["merge", &lines, &table, "--force"],
        &["get", "key", &lines],
    ] {
        let error = complaint(run(arguments), 2);
        assert!(error.contains("were the arguments swapped?"), "{error}");
        assert!(error.contains(&lines), "{error}");
        assert_eq!(fs::read(Path::new(&lines)).unwrap(), b"a\tb\n");
        assert_eq!(names_in(directory.path()).len(), 1);
    }
}
