//! Finds the store and the path in it for a URL.

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
use crate::path::is_url;

/// A store, and a path in it.
type Located = (Arc<dyn ObjectStore>, ObjectPath);

/// Returns the store and the path in it for a URL, or for a file. The store does not retry: the reader does.
pub(super) fn locate(path: &Path) -> leveltable::Result<Located> {
    locate_with(path, 0)
}

/// Returns the same, with a store that retries a failed request up to `max_retries` times.
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
    let failed = |e: object_store::Error| e.to_string();
    // Environment variables say how to reach a store, and with which credentials.
    Ok(match scheme {
        ObjectStoreScheme::Local => files(),
        ObjectStoreScheme::AmazonS3 => {
            check_credentials()?;
            let builder = AmazonS3Builder::from_env().with_url(url.as_str());
            Arc::new(builder.with_retry(retry).build().map_err(failed)?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
            Arc::new(builder.with_retry(retry).build().map_err(failed)?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str());
            Arc::new(builder.with_retry(retry).build().map_err(failed)?)
        }
        _ => return Err("no store is known for such a URL".into()),
    })
}

/// Fails if there are no credentials for S3. Requests would take half a minute to find that out.
fn check_credentials() -> Result<(), String> {
    const GIVEN: [&str; 6] = [
        "AWS_ACCESS_KEY_ID",
        "AWS_SKIP_SIGNATURE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_METADATA_ENDPOINT",
    ];
    if GIVEN.iter().any(|name| env::var_os(name).is_some()) {
        return Ok(());
    }
    // A machine in Amazon's cloud has a role, which this address returns.
    let metadata = SocketAddr::from(([169, 254, 169, 254], 80));
    match TcpStream::connect_timeout(&metadata, Duration::from_secs(1)) {
        Ok(_) => Ok(()),
        Err(_) => Err(NO_CREDENTIALS.into()),
    }
}

/// Returns the absolute path of a file, which need not exist, without links and dots.
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

/// Returns the store of local files. They are on disk when the tool says that they are written, like files that are named without a
/// URL.
fn files() -> Arc<dyn ObjectStore> {
    Arc::new(LocalFileSystem::new().with_fsync(true))
}
