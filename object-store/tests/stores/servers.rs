//! Servers on loopback, installed by `object-store/tests/servers/install`.
//!
//! Each is started when the first test asks for it, on free ports and in a temporary directory, and ends with the test program,
//! however that ends.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

/// A server that is running.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    kind: Kind,
    /// Waits for the end of its input, then kills the server and removes its directory.
    _keeper: Child,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    S3,
    Azure,
}

/// SeaweedFS, for S3: ranges, conditions and uploads in parts as Amazon has them.
pub(crate) fn seaweed() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let ports = free_ports::<8>();
        let names = [
            "s3.port",
            "s3.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "master.port",
            "master.port.grpc",
        ];
        let mut command = Command::new(installed("python/bin/weed"));
        command.args(["server", "-filer", "-s3", "-dir=.", "-ip=127.0.0.1"]);
        command.args(["-ip.bind=127.0.0.1", "-volume.max=50"]);
        command.args(["-master.volumeSizeLimitMB=64", "-master.telemetry=false"]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"]);
        for (name, port) in names.iter().zip(ports) {
            command.arg(format!("-{name}={port}"));
        }
        let server = Server::start(command, ports[0], Kind::S3);
        // The gateway answers before it can store anything.
        wait_until("a bucket can be made", || {
            server.send("PUT", "/bucket").starts_with("HTTP/1.1 200")
        });
        wait_until("an object can be stored", || {
            server
                .send("PUT", "/bucket/first")
                .starts_with("HTTP/1.1 200")
        });
        server
    })
}

/// Azurite, for Azure: it has no suffix ranges.
pub(crate) fn azurite() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let [port] = free_ports();
        let mut command = Command::new(installed("node_modules/.bin/azurite-blob"));
        command.args(["--silent", "--location", ".", "--blobHost", "127.0.0.1"]);
        command.args(["--blobPort", &port.to_string()]);
        command.args(["--skipApiVersionCheck", "--disableTelemetry"]);
        let server = Server::start(command, port, Kind::Azure);
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/servers/create_container.py"
        );
        let created = Command::new("python3")
            .args([script, &port.to_string()])
            .status();
        assert!(created.unwrap().success());
        server
    })
}

/// s3rver: takes a suffix range for a range from the start, and ignores conditions.
pub(crate) fn s3rver() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let [port] = free_ports();
        let mut command = Command::new(installed("node_modules/.bin/s3rver"));
        command.args(["--directory", ".", "--address", "127.0.0.1", "--silent"]);
        command.args(["--port", &port.to_string(), "--configure-bucket", "bucket"]);
        Server::start(command, port, Kind::S3)
    })
}

impl Server {
    fn start(command: Command, port: u16, kind: Kind) -> Server {
        let directory = tempfile::tempdir().unwrap().keep();
        let log = directory.join("log");
        let keep = r#"
            directory="$1"; shift
            "$@" >"$directory/log" 2>&1 &
            server=$!
            cat >/dev/null
            kill -9 $server
            wait $server 2>/dev/null
            rm -rf "$directory"
        "#;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", keep, "sh"]).arg(&directory);
        keeper.arg(command.get_program()).args(command.get_args());
        keeper.current_dir(&directory).stdin(Stdio::piped());
        let server = Server {
            address: ([127, 0, 0, 1], port).into(),
            kind,
            _keeper: keeper.spawn().unwrap(),
        };
        wait_until("the server listens", || {
            let mut text = String::new();
            let is_up = TcpStream::connect(server.address).is_ok();
            if !is_up && File::open(&log).is_ok() {
                File::open(&log).unwrap().read_to_string(&mut text).unwrap();
                assert!(!text.contains("EADDRINUSE"), "{text}");
            }
            is_up
        });
        server
    }

    /// The response to an unsigned request without a body.
    pub(crate) fn send(&self, method: &str, target: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let host = self.address;
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        String::from_utf8_lossy(&response).into_owned()
    }

    /// Whether it answers requests for the end of an object.
    pub(crate) fn has_suffixes(&self) -> bool {
        self.kind == Kind::S3
    }

    /// A client of this server, which makes no retries.
    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        self.store_by(self.address)
    }

    /// The same, whose requests go to `address`.
    pub(crate) fn store_by(&self, address: SocketAddr) -> Arc<dyn ObjectStore> {
        self.store_with(address, 0)
    }

    /// The same, which retries by itself.
    pub(crate) fn store_with(&self, address: SocketAddr, retries: usize) -> Arc<dyn ObjectStore> {
        let retry = RetryConfig {
            max_retries: retries,
            ..RetryConfig::default()
        };
        match self.kind {
            Kind::S3 => {
                let builder = AmazonS3Builder::new()
                    .with_endpoint(format!("http://{address}"))
                    .with_allow_http(true)
                    .with_region("us-east-1")
                    .with_bucket_name("bucket")
                    .with_skip_signature(true)
                    .with_conditional_put(S3ConditionalPut::ETagMatch)
                    .with_retry(retry);
                Arc::new(builder.build().unwrap())
            }
            Kind::Azure => {
                let builder = MicrosoftAzureBuilder::new()
                    .with_account("devstoreaccount1")
                    .with_access_key(
                        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
                    )
                    .with_endpoint(format!("http://{address}/devstoreaccount1"))
                    .with_client_options(ClientOptions::new().with_allow_http(true))
                    .with_container_name("bucket")
                    .with_retry(retry);
                Arc::new(builder.build().unwrap())
            }
        }
    }
}

fn installed(program: &str) -> PathBuf {
    // This file is also part of a benchmark, in a directory below.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut installed = above.map(|above| above.join("target/servers"));
    let given = std::env::var_os("LEVELTABLE_SERVERS").map(PathBuf::from);
    let directory = given.or_else(|| installed.find(|directory| directory.exists()));
    let path = directory.map(|directory| directory.join(program));
    path.and_then(|path| path.canonicalize().ok())
        .unwrap_or_else(|| panic!("{program} is missing: run object-store/tests/servers/install"))
}

fn free_ports<const N: usize>() -> [u16; N] {
    // All at once, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{what}: not after a minute"
        );
        thread::sleep(Duration::from_millis(50));
    }
}
