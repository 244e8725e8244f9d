//! Runs the tool on a server for S3, by a proxy that delays and counts requests.
//!
//! Ignored unless asked for: install the server with `object-store/tests/servers/install`.
#![cfg(unix)]

#[path = "../../object-store/tests/stores/proxy.rs"]
#[allow(dead_code)]
mod proxy;
#[path = "../../object-store/tests/stores/servers.rs"]
#[allow(dead_code)]
mod servers;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use proxy::{Fault, Proxy};

/// A proxy before the server, and a runtime that serves it.
struct Scene {
    proxy: Proxy,
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Scene {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let proxy = runtime.block_on(Proxy::start(servers::seaweed().address));
        Scene {
            proxy,
            _runtime: runtime,
        }
    }

    fn tool(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_leveltable"));
        let endpoint = format!("http://{}", self.proxy.address);
        tool.args(arguments).env("AWS_ENDPOINT", endpoint);
        tool.env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1");
        tool.env("AWS_SKIP_SIGNATURE", "true");
        tool.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut running = tool.spawn().unwrap();
        let mut stdin = running.stdin.take().unwrap();
        let input = input.to_vec();
        // The tool may end before it has read all.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = running.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    fn succeed(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.tool(arguments, input);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        output.stdout
    }

    fn complain(&self, arguments: &[&str]) -> String {
        let output = self.tool(arguments, b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs `work`, and returns how many requests it made, and how long it took.
    fn measure(&self, what: &str, work: impl FnOnce()) -> (usize, Duration) {
        self.proxy.take();
        let start = Instant::now();
        work();
        let measured = (self.proxy.take().len(), start.elapsed());
        println!("{what}: {} requests, {:?}", measured.0, measured.1);
        measured
    }
}

/// Runs `work` up to three times, since a busy machine may delay it, until it takes no longer than `most`.
fn takes_at_most(most: Duration, mut work: impl FnMut() -> Duration) {
    let times: Vec<_> = (0..3)
        .map(|_| work())
        .take_while(|&took| took >= most)
        .collect();
    assert!(times.len() < 3, "{times:?}");
}

/// Lines of 100 bytes of values that hardly compress.
fn lines(range: std::ops::Range<u64>) -> Vec<u8> {
    let mut lines = Vec::new();
    for i in range {
        let mut state = i;
        let words = (0..6).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            format!("{:016x}", state.rotate_left(29))
        });
        let value: String = words.collect();
        writeln!(lines, "{i:016}\t{value}").unwrap();
    }
    lines
}

#[test]
#[ignore = "needs a server"]
fn a_table_is_read_by_many_requests_at_a_time() {
    const COUNT: u64 = 300_000;
    let scene = Scene::new();
    let url = "s3://bucket/urls/large.ldb";
    let all = lines(0..COUNT);
    scene.succeed(&["build", url, "--codec", "none", "--force"], &all);
    scene.proxy.delay(Duration::from_millis(30));

    let keys: Vec<String> = (0..1000)
        .map(|i| format!("{:016}", i * 7919 % COUNT))
        .collect();
    takes_at_most(Duration::from_secs(6), || {
        let (requests, took) = scene.measure("get of 1,000 keys", || {
            let found = scene.succeed(&["get", url, "-"], keys.join("\n").as_bytes());
            assert_eq!(found.split(|&byte| byte == b'\n').count(), 1001);
        });
        assert!(requests <= 1010, "{requests}");
        took
    });

    let (requests, _) = scene.measure("scan", || {
        assert!(scene.succeed(&["scan", url], b"") == all);
    });
    assert!(requests <= 20, "{requests}");
    let (requests, _) = scene.measure("scan --reverse", || {
        let found = scene.succeed(&["scan", url, "--reverse"], b"");
        assert_eq!(found.len(), all.len());
    });
    assert!(requests <= 20, "{requests}");
    let (requests, _) = scene.measure("scan --limit 3", || {
        scene.succeed(
            &["scan", url, "--from", "0000000000100000", "--limit", "3"],
            b"",
        );
    });
    assert!(requests <= 6, "{requests}");
    let (requests, _) = scene.measure("verify", || {
        scene.succeed(&["verify", url], b"");
    });
    assert!(requests <= 10, "{requests}");
    let (requests, _) = scene.measure("info", || {
        scene.succeed(&["info", url], b"");
    });
    assert!(requests <= 8, "{requests}");
}

#[test]
#[ignore = "needs a server"]
fn the_tables_of_a_set_are_verified_at_a_time() {
    let scene = Scene::new();
    let manifest = "s3://bucket/verified/manifest";
    let shards: Vec<String> = (0..16)
        .map(|i| format!("s3://bucket/verified/{i}.ldb"))
        .collect();
    for (i, shard) in (0..).zip(&shards) {
        let lines = lines(i * 20_000..(i + 1) * 20_000);
        scene.succeed(&["build", shard, "--codec", "none", "--force"], &lines);
    }
    let names = shards.join("\n");
    scene.succeed(&["publish", manifest, "-", "--force"], names.as_bytes());
    scene.proxy.delay(Duration::from_millis(30));
    takes_at_most(Duration::from_secs(9), || {
        let (requests, took) = scene.measure("verify of 16 tables", || {
            scene.succeed(&["verify", manifest], b"");
        });
        // The manifest, and of each table its end and the rest in two parts.
        assert!(requests <= 1 + 3 * 16, "{requests}");
        took
    });
    let (requests, _) = scene.measure("info of a set", || {
        scene.succeed(&["info", manifest], b"");
    });
    assert_eq!(requests, 1);
    let (requests, _) = scene.measure("get from a set", || {
        scene.succeed(&["get", manifest, "0000000000100000"], b"");
    });
    assert_eq!(requests, 3);
    let (requests, _) = scene.measure("scan of a set", || {
        let found = scene.succeed(&["scan", manifest], b"");
        assert!(found == lines(0..320_000));
    });
    assert!(requests <= 1 + 3 * 16, "{requests}");
}

#[test]
#[ignore = "needs a server"]
fn errors_say_why_and_what_to_do() {
    let scene = Scene::new();
    let (requests, _) = scene.measure("an object that does not exist", || {
        let message = scene.complain(&["get", "s3://bucket/urls/nothing.ldb", "a"]);
        assert!(
            message.ends_with("nothing.ldb: no such object\n"),
            "{message}"
        );
    });
    assert!(requests <= 3, "{requests}");
    let message = scene.complain(&["get", "s3://no-such-bucket/urls/nothing.ldb", "a"]);
    assert!(message.contains("no such bucket"), "{message}");

    // What is there is not built over, and nothing is sent.
    let url = "s3://bucket/urls/there.ldb";
    scene.succeed(&["build", url, "--force"], b"a\tb\n");
    scene.proxy.take();
    let output = scene.tool(&["build", url], &lines(0..200_000));
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("already exists: use --force"), "{message}");
    let seen = scene.proxy.take();
    assert!(seen.len() == 1 && seen[0].sent == 0, "{seen:?}");

    // A failing server is asked four times.
    scene.proxy.rule(|_, _| Fault::Status(503));
    scene.complain(&["get", url, "a"]);
    assert_eq!(scene.proxy.take().len(), 4);

    let plain = |variables: &[(&str, &str)]| {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_leveltable"));
        tool.args(["get", "s3://bucket/urls/there.ldb", "a"])
            .env_clear();
        let output = tool.envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let start = Instant::now();
    let message = plain(&[]);
    assert!(message.contains("set AWS_ACCESS_KEY_ID"), "{message}");
    // At once, and not after requests to a server of credentials.
    assert!(start.elapsed() < Duration::from_secs(20));
    let endpoint = format!("http://{}", scene.proxy.address);
    let skip = ("AWS_SKIP_SIGNATURE", "true");
    let message = plain(&[("AWS_ENDPOINT", &endpoint), skip]);
    assert!(message.contains("set AWS_ALLOW_HTTP=true"), "{message}");
    let closed = ("AWS_ENDPOINT", "http://127.0.0.1:9");
    let message = plain(&[closed, ("AWS_ALLOW_HTTP", "true"), skip]);
    assert!(message.contains("refused"), "{message}");
    assert!(
        message.contains("AWS_ENDPOINT is http://127.0.0.1:9"),
        "{message}"
    );
}
