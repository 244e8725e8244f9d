//! What the errors of stores mean, and what to do about them.

use std::env;
use std::error::Error as StdError;

use leveltable::Error;

pub(super) const NO_CREDENTIALS: &str = "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
     AWS_SKIP_SIGNATURE=true for a bucket that everybody may read (~/.aws/credentials is not read)";

/// Returns in a line what a store's `error` means, if the store itself says it at length or not at all.
pub(crate) fn explain(error: &Error) -> Option<String> {
    let mut causes = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    let says = |what: &str| causes.iter().any(|cause| cause.contains(what));
    if says("NoSuchBucket") || says("ContainerNotFound") {
        return Some("no such bucket".into());
    }
    if says("builder error") {
        let what = "the endpoint has no https: set AWS_ALLOW_HTTP=true (AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP) to use it";
        return Some(what.into());
    }
    if says("169.254.169.254") || says("metadata") && says("credential") {
        return Some(NO_CREDENTIALS.into());
    }
    if says("error sending request") {
        let root = causes.last().map_or("", String::as_str);
        let endpoint = env::var("AWS_ENDPOINT").ok();
        let endpoint = endpoint.map_or_else(
            || "AWS_ENDPOINT is not set, so this is Amazon".to_owned(),
            |endpoint| format!("AWS_ENDPOINT is {endpoint}"),
        );
        return Some(format!("no connection to the store: {root} ({endpoint})"));
    }
    let advice = "; allow_unpinned(true)";
    let message = causes.first().filter(|message| message.contains(advice))?;
    Some(message.split(advice).next()?.to_owned())
}
