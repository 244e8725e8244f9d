//! The store that a URL names, and the path in it.

use std::env;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leveltable::{Error, ErrorKind};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use crate::failure::NO_CREDENTIALS;
use crate::place::is_url;

/// What the names of variables begin with that say how to reach a store, and with which credentials.
const VARIABLES: [&str; 3] = ["aws_", "azure_", "google_"];

/// A store, and a path in it.
type Located = (Arc<dyn ObjectStore>, ObjectPath);

/// Returns the store and the path in it of a URL, or of a file. The store repeats nothing: whoever reads does.
pub(super) fn locate(path: &Path) -> leveltable::Result<Located> {
    locate_with(path, 0)
}

/// Returns the same, of a store that repeats what fails, up to so many times.
pub(super) fn locate_with(path: &Path, max_retries: usize) -> leveltable::Result<Located> {
    let failed = |what: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unsupported, what.to_string()).at_path(path)
    };
    if !is_url(path) {
        let absolute = resolve(path).map_err(|e| failed(&e))?;
        let object = ObjectPath::from_absolute_path(absolute).map_err(|e| failed(&e))?;
        return Ok((files(), object));
    }
    let url = Url::parse(&path.to_string_lossy()).map_err(|e| failed(&e))?;
    let (scheme, object) = ObjectStoreScheme::parse(&url).map_err(|e| failed(&e))?;
    let store = build(&scheme, &url, max_retries).map_err(|e| failed(&e))?;
    Ok((store, object))
}

fn build(
    scheme: &ObjectStoreScheme,
    url: &Url,
    max_retries: usize,
) -> Result<Arc<dyn ObjectStore>, String> {
    let retry = RetryConfig {
        max_retries,
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            base: 2.,
        },
        ..RetryConfig::default()
    };
    // Each kind of store has a builder of its own, with keys of its own.
    macro_rules! builder {
        ($builder:ty) => {
            variables()
                .fold(
                    <$builder>::new().with_url(url.as_str()),
                    |builder, (key, value)| match key.parse() {
                        Ok(key) => builder.with_config(key, value),
                        Err(_) => builder,
                    },
                )
                .with_retry(retry)
                .build()
                .map_err(|e| e.to_string())?
        };
    }
    Ok(match scheme {
        ObjectStoreScheme::Local => files(),
        ObjectStoreScheme::AmazonS3 => {
            check_credentials()?;
            Arc::new(builder!(AmazonS3Builder))
        }
        ObjectStoreScheme::MicrosoftAzure => Arc::new(builder!(MicrosoftAzureBuilder)),
        ObjectStoreScheme::GoogleCloudStorage => Arc::new(builder!(GoogleCloudStorageBuilder)),
        _ => return Err("no store is known for such a URL".into()),
    })
}

/// The variables that say how to reach a store, in lower case.
fn variables() -> impl Iterator<Item = (String, String)> {
    env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?.to_ascii_lowercase();
        let is_for_stores = VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        Some((name, value.into_string().ok()?)).filter(|_| is_for_stores)
    })
}

/// Fails if nothing gives credentials for S3. Requests would find that out after half a minute.
fn check_credentials() -> Result<(), String> {
    const GIVEN: [&str; 6] = [
        "aws_access_key_id",
        "aws_skip_signature",
        "aws_web_identity_token_file",
        "aws_container_credentials_relative_uri",
        "aws_container_credentials_full_uri",
        "aws_metadata_endpoint",
    ];
    if variables().any(|(name, _)| GIVEN.contains(&&*name)) {
        return Ok(());
    }
    // A machine in Amazon's cloud has a role, which this address tells.
    let metadata = SocketAddr::from(([169, 254, 169, 254], 80));
    match TcpStream::connect_timeout(&metadata, Duration::from_secs(1)) {
        Ok(_) => Ok(()),
        Err(_) => Err(NO_CREDENTIALS.into()),
    }
}

/// Returns the path of a file, which need not exist, from the root and without links and dots.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let path = path::absolute(path)?;
    match path.parent().zip(path.file_name()) {
        Some((parent, name)) => Ok(fs::canonicalize(parent)?.join(name)),
        None => Ok(path),
    }
}

/// Returns the store of local files. They are on disk when the tool says that they are written, as those that it names without a URL.
fn files() -> Arc<dyn ObjectStore> {
    Arc::new(LocalFileSystem::new().with_fsync(true))
}
